"""All logs of a broker, over several directories: who is where.

It finds and recovers logs at the start, makes and deletes partitions, writes the checkpoints that
make the next start short, and has each directory looked after in time (`log_upkeep_driver`).
Invariants: OneLogPerPartition (never the same partition in two directories),
CleanMarkerOnlyAfterClose, and: a directory that fails takes its own logs offline and nothing else,
unless it was the last one; one that hangs delays its own logs and nothing else.
"""

import errno
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicIdPartition, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.checkpoint_file import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from ottla.storage.checkpoints_driver import CheckpointLine
from ottla.storage.clean_shutdown import NO_BROKER_EPOCH
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.delayed_removal_driver import DelayedRemoval
from ottla.storage.disk_errors import is_disk_failure
from ottla.storage.disk_seam import Disk
from ottla.storage.log import Log
from ottla.storage.log_checkpoints import CHECKPOINTS, lines_of
from ottla.storage.log_cleaning_driver import open_cleaner
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory_driver import LOGS_CLOSED_AT_ONCE, LogDirectory, open_directories
from ottla.storage.log_failures import refusal_of
from ottla.storage.log_losses import LogLoss, ReplicaPlacement
from ottla.storage.log_moves_driver import LogMoves
from ottla.storage.log_names_driver import NewLogs, free_name, make_log, wait_until_idle
from ottla.storage.log_placement import Placed, choose_place
from ottla.storage.log_start_driver import LogStart
from ottla.storage.log_upkeep_driver import DirectoryUpkeep
from ottla.storage.losses.known_losses_driver import KnownLosses
from ottla.storage.name_locks_driver import NameLocks
from ottla.storage.producer_state import ProducerRoom

_LOGGER = logging.getLogger(__name__)


@asynccontextmanager
async def open_log_manager(
    disk: Disk,
    config: BrokerConfig,
    clock: Clock,
    rng: Rng,
    *,
    cluster_id: str | None = None,
    errors: UnexpectedErrors | None = None,
    runner: CleaningRunner | None = None,
) -> AsyncIterator["LogManager"]:
    """Lock and check every directory; `recover` then opens the logs.

    ConfigError when another process holds a directory, when one belongs to another cluster or
    node, or when none can be used.  Leaving without `shutdown_cleanly` is a crash.
    """
    directories = await open_directories(disk, config, rng, cluster_id)
    logs = LogManager(disk, config, clock, rng, directories, errors, runner)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(logs.end_when_every_directory_failed)
            nursery.start_soon(logs.run_periodically)
            nursery.start_soon(logs.cleaner.run)
            logs.nursery = logs.moves.nursery = nursery
            yield logs
            nursery.cancel_scope.cancel()
    finally:
        logs.abandon()


class LogManager:
    """The registry of logs."""

    def __init__(
        self,
        disk: Disk,
        config: BrokerConfig,
        clock: Clock,
        rng: Rng,
        directories: tuple[LogDirectory, ...],
        errors: UnexpectedErrors | None = None,
        runner: CleaningRunner | None = None,
    ) -> None:
        """`runner` compacts logs; without one that is done in place."""
        self.directories = directories
        self.on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None
        """Told once of each directory that went offline, so that the broker can report it."""
        self.nursery: trio.Nursery | None = None
        self._disk = disk
        self._config = config
        self._clock = clock
        self._rng = rng
        self._errors = errors or UnexpectedErrors()
        self._placed: dict[TopicPartition, Placed] = {}
        self.offline_reasons: dict[TopicPartition, str] = {}
        self.known_losses = KnownLosses(disk)
        self._start = LogStart(self, disk, clock, rng, config.recovery_threads_per_dir)
        self._changing = NameLocks()
        """Held while a partition's log is made or deleted."""
        self._new = NewLogs(self._errors, self.checkpoint_high_watermarks)
        self._log_counts: Counter[str] = Counter()
        """Logs that serve or are being made, by directory."""
        self._is_closing = False
        self._producer_room = ProducerRoom()
        self._upkeep = {directory: self._upkeep_of(directory) for directory in directories}
        self._every_directory_failed = trio.Event()
        self.on_moved: Callable[[TopicPartition, Log], None] = lambda partition, log: None
        """Told of the log that a partition uses from now on, in the turn that it changes over."""
        self.moves = LogMoves(
            disk, clock, rng, self._errors, self, most=config.move_threads or len(directories)
        )
        self.cleaner = open_cleaner(self, disk, clock, rng, self._errors, config.cleaner, runner)

    # ---- what is where

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, None when there is none here.

        RefusedError(KAFKA_STORAGE_ERROR) while it is offline: its bytes lie or its disk failed.
        """
        placed = self._placed.get(partition)
        if placed is not None:
            return placed.log
        if partition in self.offline_reasons:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reasons[partition])
        return None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory a partition's log lies in."""
        placed = self._placed.get(partition)
        return None if placed is None else placed.directory

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition that serves, with its log."""
        for partition, placed in list(self._placed.items()):
            yield partition, placed.log

    def in_directory(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition that serves from one directory, with its log."""
        for partition, placed in list(self._placed.items()):
            if placed.directory is directory:
                yield partition, placed.log

    def __len__(self) -> int:
        return len(self._placed)

    def moving_into(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield what moves to a directory: partition, bytes that are there, offsets missing."""
        for move in self.moves.into(directory):
            yield move.partition, 0 if move.copy is None else move.copy.size_bytes, move.lag

    def start_move(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Have a partition that serves lie in a directory, in time."""
        self.moves.start(partition, directory)

    @property
    def offline(self) -> dict[TopicPartition, str]:
        """Return the partitions that do not serve, each with its reason."""
        return dict(self.offline_reasons)

    def placed(self, partition: TopicPartition) -> Placed | None:
        """Return a partition's log with its directory, None if it does not serve."""
        return self._placed.get(partition)

    @property
    def previous_broker_epoch(self) -> int:
        """Return the epoch of a clean stop, -1 unless every directory tells the same one."""
        epochs = {directory.previous_broker_epoch for directory in self.live_directories()}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def live_directories(self) -> list[LogDirectory]:
        """Return the directories that serve, in the order of log.dirs."""
        return [directory for directory in self.directories if directory.is_live]

    # ---- the start

    async def recover(
        self,
        config_of: Callable[[TopicPartition], LogConfig],
        is_stray: Callable[[TopicPartition, UUID | None], bool] = lambda partition, topic_id: False,
        directory_id_of: Callable[[TopicPartition], UUID | None] = lambda partition: None,
        placements: Sequence[ReplicaPlacement] | None = None,
    ) -> None:
        """Open every log of every directory and let those serve that belong here.

        `open_logs` and `settle` are the two steps; a broker registers between them.
        """
        await self.open_logs(config_of, placements)
        await self.settle(is_stray, directory_id_of, placements)

    async def open_logs(
        self,
        config_of: Callable[[TopicPartition], LogConfig],
        placements: Sequence[ReplicaPlacement] | None = None,
    ) -> None:
        """Open every log of every directory, and find what they lack; none serves yet.

        `placements` are the replicas that the image has here; None where no image is known.
        """
        await self._start.open_logs(config_of, placements)

    async def settle(
        self,
        is_stray: Callable[[TopicPartition, UUID | None], bool],
        directory_id_of: Callable[[TopicPartition], UUID | None],
        placements: Sequence[ReplicaPlacement] | None = None,
    ) -> None:
        """Let the opened logs serve that the cluster places here, and set all others aside.

        It decides by an image that has this broker's registration: an older one may not know a
        topic yet whose records lie here.  `losses` may grow by what only that image tells.

        Of a partition that lies in two directories the longer log counts, of equal ones that in the
        directory which the cluster knows it in, as `directory_id_of` says; the other one is set
        aside.  Moves that were under way begin again.

        Raises ConfigError if nothing says which one counts.
        """
        await self._start.settle(is_stray, directory_id_of, placements)

    @property
    def losses(self) -> Mapping[TopicIdPartition, LogLoss]:
        """Return the replicas that lack what they promised, until they are whole again."""
        return self.known_losses.by_partition

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Forget the losses of replicas that are whole again, or deleted; durably.

        A hole that an elected leader has is a part of its log from now on.
        """
        for key in self.losses.keys() & set(whole):
            placed = self._placed.get(self.losses[key].partition)
            if placed is not None and placed.log.topic_id == key.topic_id:
                placed.log.note_hole(None)
        if not self.losses.keys().isdisjoint(whole):
            try:
                await self.known_losses.forget(self.live_directories(), whole)
            except OSError as error:  # the file says too much: the next start reports it again
                _LOGGER.warning("what was lost stays known: %s", error)

    def place(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Let a log serve, and have its directory act on what it reports."""
        assert partition not in self._placed
        self._placed[partition] = Placed(log, directory)
        self._log_counts[directory.path] += 1
        log.share_producer_room(self._producer_room)
        self.cleaner.watch(partition, log)
        log.on_roll = lambda rolled: self.request_flush(partition)
        log.on_disk_failed = lambda failed: self.fail_directory(directory, failed.failure or "")
        log.on_disk_full = directory.room.note_refused
        log.remove_later = self._upkeep[directory].removal.add
        log.on_log_start_raised = lambda raised: self._keep_log_start(directory, partition, log)
        log.on_recede = lambda cut: self._keep_recession(directory)

    def displace(self, partition: TopicPartition) -> Placed | None:
        """Let a partition serve no longer; return what it served from."""
        placed = self._placed.pop(partition, None)
        if placed is not None:
            self._log_counts[placed.directory.path] -= 1
        return placed

    # ---- making and deleting

    async def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        directory_id: UUID | None = None,
        holds_nothing: bool = True,
    ) -> Log:
        """Return the partition's log, made in the directory with the fewest when it is not there.

        `holds_nothing` says that the replica cannot have records that count (see `choose_place`).

        Raises RefusedError: INCONSISTENT_TOPIC_ID if another topic of the name has its log here,
        KAFKA_STORAGE_ERROR if the disk fails or the log may lie on a missing one.
        """
        async with self._changing.alone_with(partition):
            log = self.get(partition)
            if log is not None:
                if log.topic_id != topic_id:
                    raise RefusedError(ErrorCode.INCONSISTENT_TOPIC_ID)
                return log
            if self._is_closing:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping")
            begun = self._holder_of(partition)  # by a try that did not get to its end
            directory = (
                begun
                or self.directories[
                    choose_place(
                        self.directories,
                        directory_id,
                        self._log_counts,
                        holds_nothing=holds_nothing,
                    )
                ]
            )
            self._log_counts[directory.path] += 1
            try:
                log = await make_log(
                    self._disk,
                    self._clock,
                    self._rng,
                    directory,
                    partition,
                    topic_id,
                    config,
                    lambda: {served for served, _ in self.in_directory(directory)},
                    is_there=begun is not None,
                )
            except OSError as error:
                self.judge(directory, error)
                raise refusal_of(error, directory.path) from error
            finally:
                self._log_counts[directory.path] -= 1
            if not directory.is_live:  # it failed while we awaited
                log.abandon()
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, directory.failure)
            self.place(partition, log, directory)
            assert self.nursery is not None
            self._new.keep_soon(self.nursery, partition, log)
            return log

    async def delete(self, partition: TopicPartition) -> None:
        """Take a partition away at once; its files go after file.delete.delay.ms.

        The name is free for a new topic when this returns, also after a crash.  The log's own tasks
        under way end before: what they remove, they remove by name.
        """
        async with self._changing.alone_with(partition), self.cleaner.paused(partition):
            self.cleaner.forget(partition)
            await self.moves.end(partition)
            placed = self.displace(partition)
            self.offline_reasons.pop(partition, None)
            directory = self._holder_of(partition) if placed is None else placed.directory
            if directory is None:
                return
            delay_ms = LogConfig().file_delete_delay_ms
            if placed is not None:
                delay_ms = placed.log.config.file_delete_delay_ms
                placed.log.abandon()
                await wait_until_idle(placed.log)
            await self.free_name(partition, directory, delay_ms)

    async def free_name(
        self, partition: TopicPartition, directory: LogDirectory, delay_ms: int
    ) -> None:
        """Take a partition's name from its directory, whose files go after the delay.

        Raises RefusedError(KAFKA_STORAGE_ERROR) if the disk fails.
        """
        try:
            target = await free_name(self._disk, self._rng, directory, partition)
        except OSError as error:
            self.judge(directory, error)
            raise refusal_of(error, directory.path) from error
        if target is not None:
            self.start_removal(directory, target, delay_ms=delay_ms)

    def change_over(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Have a partition use another log, which has all that its own has."""
        self.displace(partition)
        self.place(partition, log, directory)
        self.on_moved(partition, log)

    def _holder_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory with the files of a log that does not serve."""
        for directory in self.live_directories():
            if self._disk.exists(f"{directory.path}/{partition}"):
                return directory
        return None

    def start_removal(self, directory: LogDirectory, path: str, *, delay_ms: int) -> None:
        """Remove a deleted partition's files after a delay, in the background."""
        assert self.nursery is not None
        self.nursery.start_soon(self._remove_later, directory, path, delay_ms)

    async def _remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        """Remove a deleted partition's files, after those who still read them have finished."""
        await trio.sleep(delay_ms / 1_000)
        if not directory.is_live:
            return
        try:
            await self._disk.remove_tree(path)
        except OSError as error:
            _LOGGER.warning("%s stays until the next start: %s", path, error)
            self.judge(directory, error)
        except Exception as error:
            self._errors.note("removal", path, error)

    # ---- failures

    def judge(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline for a failure; what passes by itself leaves it as it is."""
        if is_disk_failure(error):
            self.fail_directory(directory, error.strerror or str(error))
        else:
            directory.note_passing(error)

    def on_file_error(self, path: str, error: OSError) -> None:
        """Judge an error of a file that was met outside of its log, as by who sends a slice."""
        for directory in self.live_directories():
            if path.startswith(f"{directory.path}/"):
                self.judge(directory, error)

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Take a directory and its logs offline until the next start."""
        if not directory.is_live:
            return
        directory.fail(f"{directory.path}: {reason}")
        for partition, placed in list(self._placed.items()):
            if placed.directory is directory:
                self.displace(partition)
                self.offline_reasons[partition] = directory.failure or reason
                self.cleaner.abort(partition)
                placed.log.abandon()
        self._start.abandon([directory])
        self.moves.on_directory_failed(directory)
        self.on_directory_failed(directory)
        if not self.live_directories():
            self._every_directory_failed.set()

    async def end_when_every_directory_failed(self) -> None:
        """Raise OSError once no directory is left: a broker without a disk serves nobody."""
        await self._every_directory_failed.wait()
        raise OSError(errno.EIO, "every log directory failed")

    # ---- what is done in time

    async def run_periodically(self) -> None:
        """Write checkpoints, flush and delete old segments, each directory in its own rhythm."""
        async with trio.open_nursery() as nursery:
            for upkeep in self._upkeep.values():
                nursery.start_soon(upkeep.run)

    def _upkeep_of(self, directory: LogDirectory) -> DirectoryUpkeep:
        return DirectoryUpkeep(
            directory.path,
            self._config,
            self._clock,
            self._errors,
            logs=lambda: self.in_directory(directory),
            write_checkpoint=lambda name: self._checkpoint_if_recovered(directory, name),
            flush_idle=lambda: self._flush_idle(directory),
            measure_room=directory.room.run,
            removal=DelayedRemoval(self._disk, lambda error: self.judge(directory, error)),
        )

    async def _flush_idle(self, directory: LogDirectory) -> None:
        if directory.is_live:
            try:
                await self._disk.flush_idle(directory.path)
            except OSError as error:  # whatever its number: the kernel forgets what it had
                self.fail_directory(directory, error.strerror or str(error))

    async def checkpoint_high_watermarks(self) -> None:
        """Write what is committed, so that a restarted broker serves it at once."""
        await self._checkpoint(HIGH_WATERMARK_FILE)

    async def checkpoint_recovery_points(self) -> None:
        """Write what is flushed, above which the next start has to check."""
        await self._checkpoint(RECOVERY_POINT_FILE)

    async def checkpoint_log_starts(self) -> None:
        """Write where logs begin, so that deleted records stay deleted."""
        await self._checkpoint(LOG_START_FILE)

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write all that is remembered of a directory's logs."""
        for name in CHECKPOINTS:
            await self._checkpoint_if_recovered(directory, name)

    async def _checkpoint(self, name: str) -> None:
        async with trio.open_nursery() as nursery:
            for directory in self.directories:
                nursery.start_soon(self._checkpoint_if_recovered, directory, name)

    async def _checkpoint_if_recovered(self, directory: LogDirectory, name: str) -> None:
        if directory.is_live and directory.is_recovered:  # until then its file knows more than we
            await self.checkpoint_in(directory, name)

    async def checkpoint_in(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint of a directory; an error takes the directory offline, or passes."""
        try:
            await self.write_checkpoint(directory, name)
        except OSError as error:
            self.judge(directory, error)

    async def write_checkpoint(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint of a directory.  OSError if it cannot be."""
        await directory.checkpoints.write(name, lambda: self._lines(directory, name))

    async def _keep_recession(self, directory: LogDirectory) -> None:
        """Write how far a log goes that was cut.  OSError if it cannot be."""
        await self.write_checkpoint(directory, RECOVERY_POINT_FILE)
        await self.write_checkpoint(directory, HIGH_WATERMARK_FILE)

    async def _keep_log_start(
        self, directory: LogDirectory, partition: TopicPartition, log: Log
    ) -> None:
        """Write where a log begins now, unless its checkpoint has it: many logs share one write."""
        assert log.topic_id is not None
        kept = directory.checkpoints.durable_offset_of(LOG_START_FILE, partition, log.topic_id)
        if log.log_start_offset > (kept or 0):
            await self.write_checkpoint(directory, LOG_START_FILE)

    def _lines(self, directory: LogDirectory, name: str) -> dict[TopicPartition, CheckpointLine]:
        waiting = self.offline_reasons.keys() - self._placed.keys()
        lines = directory.checkpoints.lines_of(name, waiting)
        lines.update(lines_of(name, self.in_directory(directory)))
        return lines

    def apply_retention_soon(self) -> None:
        """Look at all logs now: how long something is kept was changed."""
        for upkeep in self._upkeep.values():
            upkeep.apply_retention_soon()

    def request_flush(self, partition: TopicPartition) -> None:
        """Have a log flushed soon: after a roll."""
        placed = self._placed.get(partition)
        if placed is not None:
            self._upkeep[placed.directory].request_flush(partition, placed.log)

    # ---- the end

    async def shutdown_cleanly(self, broker_epoch: int) -> None:
        """Flush and close every log, then say so in each directory's marker."""
        self._is_closing = True
        await self.moves.stop()
        await self.cleaner.stop()
        for partition in self._changing:  # what is being made or deleted is so to its end
            async with self._changing.alone_with(partition):
                pass
        async with trio.open_nursery() as nursery:
            for directory in self.live_directories():
                nursery.start_soon(self._close_directory, directory, broker_epoch)

    async def _close_directory(self, directory: LogDirectory, broker_epoch: int) -> None:
        if not directory.is_recovered:
            return  # nothing was opened; its marker, if it had one, may be spent
        directory.checkpoints.close()  # a late one would forget the logs that are closed by then
        lines = {name: self._lines(directory, name) for name in CHECKPOINTS}
        is_clean = not directory.is_partly_unchecked

        async def close(waiting: Iterator[tuple[TopicPartition, Log]]) -> None:
            nonlocal is_clean
            for partition, log in waiting:
                is_closed = True
                try:
                    await log.close()
                except RefusedError as error:
                    _LOGGER.error("%s could not be closed: %s", partition, error.message)
                    log.abandon()  # a deleted file takes space while it is open
                    is_clean = is_closed = False
                await wait_until_idle(log)
                for name in CHECKPOINTS:
                    lines[name].update(lines_of(name, [(partition, log)]))
                if is_closed and log.topic_id is not None:
                    # Exact, as in Kafka: a log that ends below it when it is opened lost records.
                    end = CheckpointLine(log.topic_id, log.end_offset)
                    lines[RECOVERY_POINT_FILE][partition] = end
                self.displace(partition)
                await trio.lowlevel.checkpoint()

        waiting = self.in_directory(directory)
        async with trio.open_nursery() as nursery:
            for _ in range(LOGS_CLOSED_AT_ONCE):
                nursery.start_soon(close, waiting)
        try:
            await directory.checkpoints.write_last(lines)
            if is_clean:
                await directory.write_clean_marker(broker_epoch)
        except OSError as error:
            self.judge(directory, error)
        directory.is_recovered = False

    def abandon(self) -> None:
        """Let go of all files and locks as they are: what a crash does."""
        self.moves.abandon()
        self._start.abandon(self.directories)
        for placed in self._placed.values():
            placed.log.abandon()
        self._placed.clear()
        for directory in self.directories:
            directory.release()
