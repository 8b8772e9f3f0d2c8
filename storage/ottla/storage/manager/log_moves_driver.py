"""Moves of partition logs between the log directories of one broker.

A partition has at most one move. A later request replaces an earlier one, and a request for the
directory of the current log cancels the move. If a move fails, the error is logged and the log
stays in its directory.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.manager.log_move_driver import LogMove, MovePorts
from ottla.storage.manager.log_names_driver import wait_until_idle

_LOGGER = logging.getLogger(__name__)

SETTLE_S = 1.0
"""Time in seconds for which the old log remains readable after its partition switched to another
log directory. With a shorter time, requests that read the old log in several steps fail. A longer
time occupies disk space."""


class Logs(Protocol):
    """The part of the log manager that moves of logs need."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if this broker has no log of the partition."""
        ...

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that contains a partition's log, or None if the log is not
        online."""
        ...

    def in_directory(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield each partition whose log is online in one log directory, together with the log."""
        ...

    def switch_log(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Make another log, which is in `directory`, the log of a partition."""
        ...

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write all checkpoint files of a log directory."""
        ...

    async def free_name(
        self, partition: TopicPartition, directory: LogDirectory, delay_ms: int
    ) -> None:
        """Rename the directory of a partition's log, so that a new log can use the name. The files
        are deleted after `delay_ms`."""
        ...

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Take a log directory and its logs offline until the next start of the broker."""
        ...

    def on_disk_error(self, directory: LogDirectory, error: OSError) -> None:
        """Take a log directory offline if an OSError is a failure of its disk."""
        ...


async def _unthrottled(size: int) -> None:
    """Default function for the throttling of a log's move. Does nothing."""


async def _announce_nothing(partition: TopicPartition, directory_id: UUID) -> None:
    """Default function for announcing a move, used without a cluster to inform. Does nothing."""


def _ignore_move(partition: TopicPartition, directory_id: UUID) -> None:
    """Default function for withdrawing the announcement of a move, used without a cluster to
    inform. Does nothing."""


async def _not_cleaned(partition: TopicPartition) -> None:
    """Default function for stopping a compaction before a move, used without a log cleaner. Does
    nothing."""


class LogMoves:
    """The moves of logs between log directories that are in progress on one broker."""

    def __init__(
        self, disk: Disk, clock: Clock, rng: Rng, errors: UnexpectedErrors, logs: Logs, *, most: int
    ) -> None:
        """Create the collection without any moves. At most `most` moves copy data at the same time
        (`num.replica.alter.log.dirs.threads`)."""
        self.nursery: trio.Nursery | None = None
        self.throttle: Callable[[int], Awaitable[None]] = _unthrottled
        """Function that waits until the replication throttle permits the copy of a number of
        bytes."""
        self.announce: Callable[[TopicPartition, UUID], Awaitable[None]] = _announce_nothing
        """Function that informs the cluster of a partition's new log directory. Its arguments are
        the partition and the directory id. Returns once the cluster has recorded the directory."""
        self.withdraw: Callable[[TopicPartition, UUID], None] = _ignore_move
        """Function that is called if a move is cancelled after it was announced to the cluster. Its
        arguments are the partition and the id of the log directory in which the log remains."""
        self.end_cleaning: Callable[[TopicPartition], Awaitable[None]] = _not_cleaned
        """Function that is awaited before a log is copied, and stops a compaction of the log. A
        running compaction could remove a tombstone before it is copied, although an older value of
        its key was copied.
        """
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._errors = errors
        self._logs = logs
        self._moves: dict[TopicPartition, LogMove] = {}
        self._limit = trio.CapacityLimiter(most)
        self._is_stopping = False

    def __len__(self) -> int:
        return len(self._moves)

    def into(self, directory: LogDirectory) -> Iterator[LogMove]:
        """Yield the moves in progress whose target is a log directory."""
        for move in list(self._moves.values()):
            if move.target is directory and not move.has_changed_over:
                yield move

    def start(self, partition: TopicPartition, target: LogDirectory) -> None:
        """Start the move of an online log to another log directory, in the background."""
        under_way = self._moves.get(partition)
        if self._logs.directory_of(partition) is target:
            if under_way is not None and not under_way.has_changed_over:
                under_way.give_up()
            return
        if under_way is not None:
            if under_way.target is target and not under_way.given_up.is_set():
                return
            under_way.give_up()
        source, directory = self._logs.get(partition), self._logs.directory_of(partition)
        assert source is not None
        assert directory is not None
        ports = MovePorts(
            disk=self._disk,
            clock=self._clock,
            rng=self._rng,
            throttle=self.throttle,
            announce=self.announce,
            served=lambda: {served for served, _ in self._logs.in_directory(target)},
            fail_target=lambda reason: self._logs.fail_directory(target, reason),
            switch_log=lambda log: self._logs.switch_log(partition, log, target),
        )
        move = LogMove(ports, partition, source, target)
        self._moves[partition] = move
        assert self.nursery is not None
        self.nursery.start_soon(self._run, move, under_way, directory)

    def is_moving(self, partition: TopicPartition) -> bool:
        """Return whether a partition's log is moving. A move lasts until the old log is closed."""
        return partition in self._moves

    async def end(self, partition: TopicPartition) -> None:
        """Cancel the move of a partition's log. Waits until the copy is removed and no task of the
        move runs."""
        while (move := self._moves.get(partition)) is not None:
            move.give_up()
            await move.ended.wait()

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Cancel the moves from or to a log directory that went offline."""
        for move in self._moves.values():
            if move.target is directory or move.source.failure is not None:
                move.give_up()

    async def stop(self) -> None:
        """Stop all moves of logs for a shutdown. They begin again at the next start of the
        broker."""
        self._is_stopping = True
        for partition in list(self._moves):
            await self.end(partition)

    def abandon(self) -> None:
        """Close the copies of all moves without flushing, as a crash does."""
        for move in self._moves.values():
            if move.copy is not None and not move.has_changed_over:
                move.copy.abandon()

    async def _run(
        self, move: LogMove, earlier: LogMove | None, source_directory: LogDirectory
    ) -> None:
        partition = move.partition
        try:
            if earlier is not None:
                await earlier.ended.wait()
            with move.scope:
                async with self._limit:
                    _LOGGER.info("%s moves to %s", partition, move.target.path)
                    await self._move(move)
            if move.has_changed_over:
                await self._abandon_move(move, source_directory)
            elif not self._is_stopping or move.has_name:
                await self._remove_copy(move)
            source_id = source_directory.directory_id
            if move.is_announced and not move.has_changed_over and source_id is not None:
                self.withdraw(partition, source_id)
        finally:
            if move.copy is not None and not move.has_changed_over:
                move.copy.abandon()
            if self._moves.get(partition) is move:
                del self._moves[partition]
            move.ended.set()

    async def _move(self, move: LogMove) -> None:
        try:
            await self.end_cleaning(move.partition)
            await move.run()
        except (RefusedError, CorruptDataError) as error:
            _LOGGER.error("%s does not move to %s: %s", move.partition, move.target.path, error)
        except OSError as error:
            _LOGGER.error("%s does not move to %s: %s", move.partition, move.target.path, error)
            self._logs.on_disk_error(move.target, error)
        except Exception as error:
            self._errors.note("move of a log", move.partition, error)

    async def _abandon_move(self, move: LogMove, directory: LogDirectory) -> None:
        """Remove the old log of a completed move, once the new log and its checkpoints are durable.
        If that fails, the old log's files stay."""
        old, new = move.source, move.copy
        assert new is not None
        await wait_until_idle(old)
        try:
            await new.flush()
            await self._logs.write_checkpoints(move.target)
        except RefusedError as error:
            _LOGGER.error("%s: the old log stays in %s: %s", move.partition, directory.path, error)
            old.abandon()
            return
        with trio.move_on_after(SETTLE_S):
            await move.given_up.wait()
        delay_ms = old.config.file_delete_delay_ms
        old.abandon()
        await wait_until_idle(old)
        try:
            await self._logs.free_name(move.partition, directory, delay_ms)
        except RefusedError as error:
            _LOGGER.error("%s stays in %s: %s", move.partition, directory.path, error)
        else:
            _LOGGER.info("%s has moved to %s", move.partition, move.target.path)

    async def _remove_copy(self, move: LogMove) -> None:
        try:
            await move.remove_copy()
        except OSError as error:
            _LOGGER.warning("a copy of %s stays until the next start: %s", move.partition, error)
            self._logs.on_disk_error(move.target, error)
