"""The start of a broker's logs: opens all, finds what they lack, and lets those serve that belong.

The two steps are apart because a broker registers between them.  The controller has to know what
was lost before it may elect this broker, and which logs are strays only an image tells that has the
broker's own registration: an older one may not know a topic yet whose records lie here.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

import trio

from ottla.model.errors import RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.storage.checkpoint_file import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from ottla.storage.disk_seam import Disk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_losses import DirectoryFindings, LogPromise, ReplicaPlacement
from ottla.storage.log_moves_driver import LogMoves
from ottla.storage.log_placement import Placed, choose_log
from ottla.storage.log_recovery_driver import (
    DirectoryContents,
    RecoveryPlan,
    recover_directory,
    set_stray_aside,
)
from ottla.storage.losses.known_losses_driver import KnownLosses

_LOGGER = logging.getLogger(__name__)


TWO_LOGS = (
    "%s lies in both %s and %s, as a move that was cut short or a copy by hand leaves it: the log "
    "in %s is the later one and serves, the other is removed if it has nothing more, else set aside"
)


class StartedLogs(Protocol):
    """The registry of logs, as its start uses it."""

    directories: tuple[LogDirectory, ...]
    known_losses: KnownLosses
    offline_reasons: dict[TopicPartition, str]
    moves: LogMoves

    def live_directories(self) -> list[LogDirectory]:
        """Return the directories that serve."""
        ...

    def placed(self, partition: TopicPartition) -> Placed | None:
        """Return a partition's log with its directory, None if it does not serve."""
        ...

    def place(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Let a log serve."""
        ...

    def displace(self, partition: TopicPartition) -> Placed | None:
        """Let a partition serve no longer; return what it served from."""
        ...

    def start_removal(self, directory: LogDirectory, path: str, *, delay_ms: int) -> None:
        """Remove a directory after a delay."""
        ...

    async def free_name(
        self, partition: TopicPartition, directory: LogDirectory, delay_ms: int
    ) -> None:
        """Take a partition's name from its directory.  Raises RefusedError if the disk fails."""
        ...

    async def checkpoint_in(self, directory: LogDirectory, name: str) -> None:
        """Write a checkpoint of a directory."""
        ...

    def judge(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline for a failure."""
        ...

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory offline."""
        ...


class LogStart:
    """The start of one broker's logs."""

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
        """Open the logs of all directories at the same time, and judge what they lack."""
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
        await self._judge(placements)

    async def settle(
        self,
        is_stray: Callable[[TopicPartition, UUID | None], bool],
        directory_id_of: Callable[[TopicPartition], UUID | None],
        placements: Sequence[ReplicaPlacement] | None,
    ) -> None:
        """Let the opened logs serve that belong here; set strays aside.

        Raises ConfigError if a partition lies in two directories, and nothing says which counts.
        """
        if placements is not None:
            await self._judge(placements)
        logs = self._logs
        for directory, held in self._contents():
            for partition, log in list(held.logs.items()):
                other = logs.placed(partition)
                if is_stray(partition, log.topic_id):
                    await self._set_aside(partition, Placed(log, directory))
                elif other is None:
                    logs.place(partition, log, directory)
                else:
                    await self._choose(
                        partition, other, Placed(log, directory), directory_id_of(partition)
                    )
            logs.offline_reasons.update(held.corrupt)
            for path in held.to_delete:
                logs.start_removal(directory, path, delay_ms=0)
            directory.is_recovered = True
            directory.is_partly_unchecked = bool(held.corrupt)
            if held.receded:  # what comes where flushed bytes were is not flushed
                await logs.checkpoint_in(directory, RECOVERY_POINT_FILE)
            if not directory.checkpoints.is_whole:  # from now on, files that are gone are damage
                await self._complete_checkpoints(directory)
        for directory, held in self._contents():
            for partition in held.moving:
                if logs.placed(partition) is not None and directory.is_live:
                    logs.moves.start(partition, directory)
        self._found.clear()
        self._findings.clear()

    def abandon(self, directories: Sequence[LogDirectory]) -> None:
        """Close the logs of these directories that were opened and do not serve."""
        for directory in directories:
            held = self._found.pop(directory, None)
            for partition, log in () if held is None else held.logs.items():
                placed = self._logs.placed(partition)
                if placed is None or placed.log is not log:
                    log.abandon()

    def _contents(self) -> Iterator[tuple[LogDirectory, DirectoryContents]]:
        """Yield what was found in each directory that still serves, in the order of log.dirs."""
        for directory in self._logs.directories:
            if directory in self._found and directory.is_live:
                yield directory, self._found[directory]

    async def _complete_checkpoints(self, directory: LogDirectory) -> None:
        try:
            await directory.checkpoints.complete()
        except OSError as error:
            self._logs.judge(directory, error)
            return
        await self._logs.checkpoint_in(directory, HIGH_WATERMARK_FILE)
        await self._logs.checkpoint_in(directory, RECOVERY_POINT_FILE)

    async def _judge(self, placements: Sequence[ReplicaPlacement] | None) -> None:
        logs = self._logs
        live = logs.live_directories()
        try:
            await logs.known_losses.judge(
                live,
                self._findings,
                placements,
                is_every_directory_live=len(live) == len(logs.directories),
            )
        except OSError as error:
            # What is not known durably may be forgotten: the directory may not serve.
            paths = {error.filename, error.filename2}
            hurt = [at for at in live if any(str(one).startswith(at.path) for one in paths)]
            for directory in hurt or live:
                logs.fail_directory(directory, error.strerror or str(error))
        self._note_holes()

    def _note_holes(self) -> None:
        """Have logs know the holes that an earlier start found, and no follower filled yet."""
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
            # Whatever it was: without its logs the directory cannot serve.
            self._logs.fail_directory(directory, error.strerror or str(error))
        except RefusedError as error:
            self._logs.fail_directory(directory, error.message)

    async def _choose(
        self, partition: TopicPartition, one: Placed, other: Placed, wanted: UUID | None
    ) -> None:
        """Take one of two logs of a partition; the other is removed, or set aside."""
        kept, stray = choose_log(partition, one, other, wanted)
        _LOGGER.error(
            TWO_LOGS, partition, *(at.directory.path for at in (one, other)), kept.directory.path
        )
        kept.log.keep_what_is_known_of(stray.log)
        if kept is other:
            self._logs.displace(partition)
            self._logs.place(partition, kept.log, kept.directory)
        if kept.log.holds_all_of(stray.log):
            stray.log.abandon()
            try:
                await kept.log.flush()  # the other may be the one that is on its disk
                await self._logs.free_name(partition, stray.directory, delay_ms=0)
            except RefusedError as error:
                _LOGGER.error("%s stays in %s: %s", partition, stray.directory.path, error)
        else:
            await self._set_aside(partition, stray)

    async def _set_aside(self, partition: TopicPartition, stray: Placed) -> None:
        """Set a log aside that lies where the cluster does not know the partition."""
        stray.log.abandon()
        try:
            await set_stray_aside(self._disk, self._rng, stray.directory, partition)
        except OSError as error:
            self._logs.judge(stray.directory, error)


def findings_of(directory: LogDirectory, held: DirectoryContents) -> DirectoryFindings:
    """Return the findings of a start in a directory, from which its losses are judged."""
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
