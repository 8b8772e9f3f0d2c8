"""The logs of a broker that are on their way to another of its directories.

At most one move a partition; a later wish replaces an earlier one, and the wish for the directory
where the log is ends the move.  What a move fails by is logged, and the log stays where it is.
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
from ottla.storage.disk_seam import Disk
from ottla.storage.log import Log
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_move_driver import LogMove, MovePorts
from ottla.storage.log_names_driver import wait_until_idle

_LOGGER = logging.getLogger(__name__)

SETTLE_S = 1.0
"""How long the old log can still be read after its partition changed over: a request that looked
at it in steps is done by then."""


class Logs(Protocol):
    """What moves need of the log manager."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log."""
        ...

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory a partition's log lies in."""
        ...

    def in_directory(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition that serves from one directory."""
        ...

    def change_over(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Have a partition use another log from now on."""
        ...

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write all that is remembered of a directory's logs."""
        ...

    async def free_name(
        self, partition: TopicPartition, directory: LogDirectory, delay_ms: int
    ) -> None:
        """Take a partition's name from its directory, whose files go later."""
        ...

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory offline."""
        ...

    def judge(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline if an error says that its disk failed."""
        ...


async def _unthrottled(size: int) -> None:
    """Take as many bytes as come."""


async def _known_at_once(partition: TopicPartition, directory_id: UUID) -> None:
    """Return at once: there is no cluster to be asked."""


def _nothing_told(partition: TopicPartition, directory_id: UUID) -> None:
    """Do nothing: there is no cluster."""


async def _not_cleaned(partition: TopicPartition) -> None:
    """Return at once: no log is cleaned."""


class LogMoves:
    """The moves under way."""

    def __init__(
        self, disk: Disk, clock: Clock, rng: Rng, errors: UnexpectedErrors, logs: Logs, *, most: int
    ) -> None:
        """`most` moves copy at the same time (`num.replica.alter.log.dirs.threads`)."""
        self.nursery: trio.Nursery | None = None
        self.take: Callable[[int], Awaitable[None]] = _unthrottled
        """Awaited before this number of bytes is copied."""
        self.tell: Callable[[TopicPartition, UUID], Awaitable[None]] = _known_at_once
        """Returns once the cluster knows a partition in the directory of this id."""
        self.take_back: Callable[[TopicPartition, UUID], None] = _nothing_told
        """Called with where a partition lies whose move ended after the cluster was told of it."""
        self.end_cleaning: Callable[[TopicPartition], Awaitable[None]] = _not_cleaned
        """Awaited before a log is copied: one that is cleaned meanwhile may lose a deletion before
        it is copied, of a record that was copied."""
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
        """Yield the moves to a directory."""
        for move in list(self._moves.values()):
            if move.target is directory and not move.has_changed_over:
                yield move

    def start(self, partition: TopicPartition, target: LogDirectory) -> None:
        """Have a partition that serves lie in another directory, in time."""
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
            take=self.take,
            tell=self.tell,
            served=lambda: {served for served, _ in self._logs.in_directory(target)},
            fail_target=lambda reason: self._logs.fail_directory(target, reason),
            change_over=lambda log: self._logs.change_over(partition, log, target),
        )
        move = LogMove(ports, partition, source, target)
        self._moves[partition] = move
        assert self.nursery is not None
        self.nursery.start_soon(self._run, move, under_way, directory)

    def is_moving(self, partition: TopicPartition) -> bool:
        """Whether a partition is on its way, or its old log not let go yet."""
        return partition in self._moves

    async def end(self, partition: TopicPartition) -> None:
        """Give a partition's move up; return when nothing of it is left."""
        while (move := self._moves.get(partition)) is not None:
            move.give_up()
            await move.ended.wait()

    def on_directory_failed(self, directory: LogDirectory) -> None:
        """Give the moves up that read or write in a directory that went offline."""
        for move in self._moves.values():
            if move.target is directory or move.source.failure is not None:
                move.give_up()

    async def stop(self) -> None:
        """Give all moves up for a stop; the next start takes them up again."""
        self._is_stopping = True
        for partition in list(self._moves):
            await self.end(partition)

    def abandon(self) -> None:
        """Let go of the copies as they are."""
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
                await self._let_go(move, source_directory)
            elif not self._is_stopping or move.has_name:
                await self._remove_copy(move)
            source_id = source_directory.directory_id
            if move.is_told and not move.has_changed_over and source_id is not None:
                self.take_back(partition, source_id)
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
            self._logs.judge(move.target, error)
        except Exception as error:
            self._errors.note("move of a log", move.partition, error)

    async def _let_go(self, move: LogMove, directory: LogDirectory) -> None:
        """Give the old log up, once the new one needs it for nothing any more."""
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
            self._logs.judge(move.target, error)
