"""Startup of a broker's logs: opens all logs, finds losses of records, and brings those logs online
that the cluster places on this broker.

There are two steps, and the broker registers with the controller between them. The controller must
know the losses before it may elect this broker. The second step decides which logs are strays. It
needs a metadata image with the broker's own registration, because an older image may lack a topic
whose records are on this broker.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

import trio

from ottla.model.errors import RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.losses.known_losses_driver import KnownLosses
from ottla.storage.losses.log_losses import DirectoryFindings, LogPromise, ReplicaPlacement
from ottla.storage.manager.log_moves_driver import LogMoves
from ottla.storage.manager.log_placement import PlacedLog, choose_log
from ottla.storage.manager.log_recovery_driver import (
    DirectoryContents,
    RecoveryPlan,
    recover_directory,
    rename_to_stray,
)
from ottla.storage.segments.log_config import LogConfig

_LOGGER = logging.getLogger(__name__)


TWO_LOGS = (
    "%s has logs in both %s and %s, as after an interrupted move or a manual copy: the log in %s "
    "is the later one and is used, the other is removed if it has no further records, otherwise "
    "set aside"
)


class StartedLogs(Protocol):
    """The part of the log manager that `LogStart` uses at broker startup."""

    directories: tuple[LogDirectory, ...]
    known_losses: KnownLosses
    offline_reasons: dict[TopicPartition, str]
    moves: LogMoves

    def live_directories(self) -> list[LogDirectory]:
        """Return the log directories that are online."""
        ...

    def placed(self, partition: TopicPartition) -> PlacedLog | None:
        """Return a partition's log and its log directory, or None if the log is not online."""
        ...

    def place(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Bring a partition's log in a log directory online."""
        ...

    def displace(self, partition: TopicPartition) -> PlacedLog | None:
        """Take a partition's log out of use. Returns the log and its log directory, or None if the
        log is not online."""
        ...

    def start_removal(self, directory: LogDirectory, path: str, *, delay_ms: int) -> None:
        """Schedule the removal of a partition's directory at `path` after a delay in ms."""
        ...

    async def free_name(
        self, partition: TopicPartition, directory: LogDirectory, delay_ms: int
    ) -> None:
        """Rename the directory of a partition's log, so that a new log can use the name. The files
        are deleted after `delay_ms`. Raises RefusedError if the disk fails."""
        ...

    async def checkpoint_in(self, directory: LogDirectory, name: str) -> None:
        """Write the checkpoint file `name` of a log directory."""
        ...

    def on_disk_error(self, directory: LogDirectory, error: OSError) -> None:
        """Take a log directory offline if an OSError is a failure of its disk."""
        ...

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Take a log directory and its logs offline until the next start of the broker."""
        ...


class LogStart:
    """Startup of one broker's logs: the logs opened so far, and the records found lost."""

    def __init__(
        self, logs: StartedLogs, disk: Disk, clock: Clock, rng: Rng, worker_count: int
    ) -> None:
        self._logs = logs
        self._disk = disk
        self._clock = clock
        self._rng = rng
        self._worker_count = worker_count
        self._found: dict[LogDirectory, DirectoryContents] = {}
        self._findings: list[DirectoryFindings] = []

    async def open_logs(
        self,
        config_of: Callable[[TopicPartition], LogConfig],
        placements: Sequence[ReplicaPlacement] | None,
    ) -> None:
        """Open the logs of all log directories concurrently, and find lost records."""
        plan = RecoveryPlan(config_of=config_of, worker_count=self._worker_count)
        for directory in self._logs.live_directories():
            try:
                await self._logs.known_losses.load([directory])
            except OSError as error:
                self._logs.fail_directory(directory, error.strerror or str(error))
        async with trio.open_nursery() as nursery:
            for directory in self._logs.live_directories():
                nursery.start_soon(self._recover_directory, directory, plan)
        for _, held in self._contents():
            self._logs.known_losses.cut_bytes += sum(held.cut_bytes.values())
        self._findings = [findings_of(at, held) for at, held in self._contents()]
        await self._find_losses(placements)

    async def settle(
        self,
        is_stray: Callable[[TopicPartition, UUID | None], bool],
        directory_id_of: Callable[[TopicPartition], UUID | None],
        placements: Sequence[ReplicaPlacement] | None,
    ) -> None:
        """Bring those opened logs online that the cluster places on this broker. The directories of
        all other logs are renamed to `-stray`.

        Raises ConfigError if a partition has logs in two directories and no rule decides which log
        is valid.
        """
        if placements is not None:
            await self._find_losses(placements)
        logs = self._logs
        for directory, held in self._contents():
            for partition, log in list(held.logs.items()):
                other = logs.placed(partition)
                if is_stray(partition, log.topic_id):
                    await self._rename_to_stray(partition, PlacedLog(log, directory))
                elif other is None:
                    logs.place(partition, log, directory)
                else:
                    await self._choose(
                        partition, other, PlacedLog(log, directory), directory_id_of(partition)
                    )
            logs.offline_reasons.update(held.corrupt)
            for path in held.to_delete:
                logs.start_removal(directory, path, delay_ms=0)
            directory.is_recovered = True
            directory.is_partly_unchecked = bool(held.corrupt)
            if held.receded:  # the bytes that replaced flushed ones are not flushed
                await logs.checkpoint_in(directory, RECOVERY_POINT_FILE)
            if not directory.checkpoints.is_whole:  # from now on, missing files are damage
                await self._complete_checkpoints(directory)
        for directory, held in self._contents():
            for partition in held.moving:
                if logs.placed(partition) is not None and directory.is_live:
                    logs.moves.start(partition, directory)
        self._found.clear()
        self._findings.clear()

    def abandon(self, directories: Sequence[LogDirectory]) -> None:
        """Close the opened logs in some log directories that were not brought online."""
        for directory in directories:
            held = self._found.pop(directory, None)
            for partition, log in () if held is None else held.logs.items():
                placed = self._logs.placed(partition)
                if placed is None or placed.log is not log:
                    log.abandon()

    def _contents(self) -> Iterator[tuple[LogDirectory, DirectoryContents]]:
        """Yield each log directory that is still online with its contents, in the order of
        log.dirs."""
        for directory in self._logs.directories:
            if directory in self._found and directory.is_live:
                yield directory, self._found[directory]

    async def _complete_checkpoints(self, directory: LogDirectory) -> None:
        try:
            await directory.checkpoints.complete()
        except OSError as error:
            self._logs.on_disk_error(directory, error)
            return
        await self._logs.checkpoint_in(directory, HIGH_WATERMARK_FILE)
        await self._logs.checkpoint_in(directory, RECOVERY_POINT_FILE)

    async def _find_losses(self, placements: Sequence[ReplicaPlacement] | None) -> None:
        logs = self._logs
        live = logs.live_directories()
        try:
            await logs.known_losses.find_losses(
                live,
                self._findings,
                placements,
                is_every_directory_live=len(live) == len(logs.directories),
            )
        except OSError as error:
            # Losses that are not durable may be forgotten, so the directory must not go online.
            paths = {error.filename, error.filename2}
            affected = [at for at in live if any(str(one).startswith(at.path) for one in paths)]
            for directory in affected or live:
                logs.fail_directory(directory, error.strerror or str(error))
        self._note_holes()

    def _note_holes(self) -> None:
        """Mark the holes (ranges of missing offsets) in logs that an earlier startup found and
        replication has not filled yet."""
        for loss in self._logs.known_losses.by_partition.values():
            for _, held in self._contents():
                log = held.logs.get(loss.partition)
                if log is not None and loss.is_hole_of(log.topic_id):
                    log.note_hole(loss.found_end_offset)

    async def _recover_directory(self, directory: LogDirectory, plan: RecoveryPlan) -> None:
        try:
            self._found[directory] = await recover_directory(
                self._disk, self._clock, self._rng, directory, plan
            )
        except OSError as error:
            # Whatever the error: without its logs the directory is useless.
            self._logs.fail_directory(directory, error.strerror or str(error))
        except RefusedError as error:
            self._logs.fail_directory(directory, error.message)

    async def _choose(
        self, partition: TopicPartition, one: PlacedLog, other: PlacedLog, wanted: UUID | None
    ) -> None:
        """Choose one of a partition's two logs. The log that was not chosen is removed, or its
        directory is renamed to `-stray`."""
        kept, stray = choose_log(partition, one, other, wanted)
        _LOGGER.error(
            TWO_LOGS, partition, *(at.directory.path for at in (one, other)), kept.directory.path
        )
        kept.log.adopt_bounds(stray.log)
        if kept is other:
            self._logs.displace(partition)
            self._logs.place(partition, kept.log, kept.directory)
        if kept.log.holds_all_of(stray.log):
            stray.log.abandon()
            try:
                await kept.log.flush()  # the other log may be the only durable one
                await self._logs.free_name(partition, stray.directory, delay_ms=0)
            except RefusedError as error:
                _LOGGER.error("%s stays in %s: %s", partition, stray.directory.path, error)
        else:
            await self._rename_to_stray(partition, stray)

    async def _rename_to_stray(self, partition: TopicPartition, stray: PlacedLog) -> None:
        """Close a log without flushing, and add the suffix `-stray` to its directory. Used if the
        cluster does not place the partition in that directory, or if the partition's other log was
        chosen."""
        stray.log.abandon()
        try:
            await rename_to_stray(self._disk, self._rng, stray.directory, partition)
        except OSError as error:
            self._logs.on_disk_error(stray.directory, error)


def findings_of(directory: LogDirectory, held: DirectoryContents) -> DirectoryFindings:
    """Return the logs and checkpoints that the broker found in one log directory at startup.

    `StartFindings` compares logs with checkpoints to determine the records that this directory has
    lost.
    """
    checkpoints = directory.checkpoints

    def promise_of(partition: TopicPartition, topic_id: UUID) -> LogPromise:
        return LogPromise(
            high_watermark=checkpoints.offset_of(HIGH_WATERMARK_FILE, partition, topic_id),
            recovery_point=checkpoints.offset_of(RECOVERY_POINT_FILE, partition, topic_id),
            log_start_offset=checkpoints.offset_of(LOG_START_FILE, partition, topic_id)
            or Offset(0),
        )

    return DirectoryFindings(
        path=directory.path,
        directory_id=directory.directory_id,
        was_clean=directory.was_clean,
        has_whole_checkpoints=checkpoints.is_whole,
        promise_of=promise_of,
        end_offsets={
            (partition, log.topic_id): log.end_offset
            for partition, log in held.logs.items()
            if log.topic_id is not None
        },
        hole_offsets={
            (partition, log.topic_id): log.hole_offset
            for partition, log in held.logs.items()
            if log.topic_id is not None and log.hole_offset is not None
        },
        unopened=dict(held.unopened),
        unnamed=frozenset(held.unnamed),
    )
