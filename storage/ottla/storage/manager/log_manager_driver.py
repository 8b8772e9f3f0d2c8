"""The log manager: all logs of a broker in its log directories.

The log manager finds and recovers logs at broker startup, creates and deletes partitions, and
writes the checkpoints that shorten the next startup. It also runs the periodic upkeep of each
directory (`log_upkeep_driver`).

Invariants:

- OneLogPerPartition: a partition never has logs in two directories.
- CleanMarkerOnlyAfterClose: see `clean_shutdown`.
- A directory that fails takes only its own logs offline, and a hanging directory delays only its
  own logs. The broker ends when its last directory fails.
"""

import errno
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset, TopicIdPartition, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directories.checkpoints_driver import CheckpointLine
from ottla.storage.directories.clean_shutdown import NO_BROKER_EPOCH
from ottla.storage.directories.log_directory_driver import (
    LOGS_CLOSED_AT_ONCE,
    LogDirectory,
    open_directories,
)
from ottla.storage.disk.disk_errors import is_disk_failure
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.log.log_health import refusal_of
from ottla.storage.log.log_owner import LogOwner
from ottla.storage.losses.known_losses_driver import KnownLosses
from ottla.storage.losses.log_losses import LogLoss, ReplicaPlacement
from ottla.storage.manager.delayed_removal_driver import DelayedRemoval
from ottla.storage.manager.disk_relief_driver import DiskRelief
from ottla.storage.manager.log_checkpoints import CHECKPOINTS, lines_of
from ottla.storage.manager.log_cleaning_driver import open_cleaner
from ottla.storage.manager.log_moves_driver import LogMoves
from ottla.storage.manager.log_names_driver import NewLogs, free_name, make_log, wait_until_idle
from ottla.storage.manager.log_placement import PlacedLog, choose_place
from ottla.storage.manager.log_start_driver import LogStart
from ottla.storage.manager.log_upkeep_driver import DirectoryUpkeep
from ottla.storage.manager.name_locks_driver import NameLocks
from ottla.storage.producers.producer_state import ProducerBudget
from ottla.storage.segments.log_config import LogConfig

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
    """Lock and check every directory, and yield the log manager. The caller then opens the logs
    with `recover`.

    Raises ConfigError if another process has locked a directory, if a directory belongs to another
    cluster or node, or if no directory is usable. If the `async with` block ends without
    `shutdown_cleanly`, the effect is that of a crash.
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


class PlacedLogOwner(LogOwner):
    """Owner of one log that is online in a log directory: the log manager, its cleaner, and the
    upkeep of the directory."""

    __slots__ = ("_manager", "_partition", "directory", "log")

    def __init__(
        self, manager: "LogManager", partition: TopicPartition, log: Log, directory: LogDirectory
    ) -> None:
        self._manager = manager
        self._partition = partition
        self.log = log
        self.directory = directory

    def on_disk_failed(self, reason: str) -> None:
        """Take the log directory offline, because a file of the log has failed."""
        self._manager.fail_directory(self.directory, reason)

    def on_disk_full(self) -> None:
        """Report that the disk of the log directory is full."""
        self.directory.free_space.note_refused()

    def on_roll(self) -> None:
        """Schedule a flush of the log, which has rolled."""
        self._manager.request_flush(self._partition)

    async def on_offsets_decreased(self) -> None:
        """Write the checkpoints of the directory after a truncation of the log."""
        await self._manager._write_lower_checkpoints(self.directory)

    async def on_log_start_raised(self) -> None:
        """Write the log's start offset to the checkpoint of its directory."""
        await self._manager._keep_log_start(self.directory, self._partition, self.log)

    def remove_later(self, paths: list[str], delay_ms: int) -> bool:
        """Schedule the removal of files that were renamed to `.deleted`."""
        self._manager._upkeep[self.directory].removal.add(paths, delay_ms)
        return True

    async def before_truncation(self, offset: Offset) -> None:
        """Stop a compaction of the log before its records from an offset on are removed."""
        await self._manager.cleaner.prepare_truncation(self._partition, self.log, offset)

    def after_truncation(self) -> None:
        """Allow compactions of the log again."""
        self._manager.cleaner.resume(self._partition)


class LogManager:
    """The log manager of one broker: all its logs, by partition, and its log directories."""

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
        """Create the log manager. `runner` compacts logs; if it is None, logs are compacted in the
        event loop."""
        self.directories = directories
        self.on_directory_failed: Callable[[LogDirectory], None] = lambda directory: None
        """Function that is called once for each log directory that goes offline, so that the broker
        can report the failure."""
        self.nursery: trio.Nursery | None = None
        self._disk = disk
        self._config = config
        self._clock = clock
        self._rng = rng
        self._errors = errors or UnexpectedErrors()
        self._placed: dict[TopicPartition, PlacedLogOwner] = {}
        self.offline_reasons: dict[TopicPartition, str] = {}
        self.known_losses = KnownLosses(disk)
        self._start = LogStart(self, disk, clock, rng, config.recovery_threads_per_dir)
        self._changing = NameLocks()
        """Locks held while a partition's log is created or deleted."""
        self._new = NewLogs(self._errors, self.checkpoint_high_watermarks)
        self._log_counts: Counter[str] = Counter()
        """Number of logs that are online or being created in each log directory, by the directory's
        path."""
        self._is_closing = False
        self._producer_budget = ProducerBudget()
        self._upkeep = {directory: self._upkeep_of(directory) for directory in directories}
        self._every_directory_failed = trio.Event()
        self.on_moved: Callable[[TopicPartition, Log], None] = lambda partition, log: None
        """Function that is called with the new log of a partition, in the event-loop iteration in
        which the move switches to that log."""
        self.moves = LogMoves(
            disk, clock, rng, self._errors, self, most=config.move_threads or len(directories)
        )
        self.cleaner = open_cleaner(self, disk, clock, rng, self._errors, config.cleaner, runner)

    # ---- queries

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if this broker has no log of the partition.

        Raises RefusedError(KAFKA_STORAGE_ERROR) while the log is offline: it is corrupt or its disk
        failed.
        """
        placed = self._placed.get(partition)
        if placed is not None:
            return placed.log
        if partition in self.offline_reasons:
            raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline_reasons[partition])
        return None

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that contains a partition's log, or None if the log is not
        online."""
        placed = self._placed.get(partition)
        return None if placed is None else placed.directory

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield each partition whose log is online, together with the log."""
        # Only keys are copied: a caller that waits between partitions holds the copy for long.
        for partition in list(self._placed):
            placed = self._placed.get(partition)
            if placed is not None:
                yield partition, placed.log

    def in_directory(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield each partition whose log is online in one log directory, together with the log."""
        for partition in list(self._placed):
            placed = self._placed.get(partition)
            if placed is not None and placed.directory is directory:
                yield partition, placed.log

    def __len__(self) -> int:
        return len(self._placed)

    def moving_into(self, directory: LogDirectory) -> Iterator[tuple[TopicPartition, int, int]]:
        """Yield the moves of logs to a log directory. Each move is a tuple: the partition, the
        number of copied bytes, and the number of missing offsets."""
        for move in self.moves.into(directory):
            yield move.partition, 0 if move.copy is None else move.copy.size_bytes, move.lag

    def start_move(self, partition: TopicPartition, directory: LogDirectory) -> None:
        """Start the move of an online log to another log directory, in the background."""
        self.moves.start(partition, directory)

    @property
    def offline(self) -> dict[TopicPartition, str]:
        """The partitions whose logs are offline, each with the reason."""
        return dict(self.offline_reasons)

    def placed(self, partition: TopicPartition) -> PlacedLog | None:
        """Return a partition's log with its log directory, or None if the log is not online."""
        placed = self._placed.get(partition)
        return None if placed is None else PlacedLog(placed.log, placed.directory)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch of the last clean shutdown. -1 without a clean shutdown, or if the log
        directories have different epochs."""
        epochs = {directory.previous_broker_epoch for directory in self.live_directories()}
        return epochs.pop() if len(epochs) == 1 else NO_BROKER_EPOCH

    def live_directories(self) -> list[LogDirectory]:
        """Return the log directories that are online, in the order of log.dirs."""
        return [directory for directory in self.directories if directory.is_live]

    # ---- the start

    async def recover(
        self,
        config_of: Callable[[TopicPartition], LogConfig],
        is_stray: Callable[[TopicPartition, UUID | None], bool] = lambda partition, topic_id: False,
        directory_id_of: Callable[[TopicPartition], UUID | None] = lambda partition: None,
        placements: Sequence[ReplicaPlacement] | None = None,
    ) -> None:
        """Open all logs of all directories, and bring those logs online that belong to replicas of
        this broker.

        Calls `open_logs`, then `settle`. A broker calls these methods itself, and registers with
        the controller between the two calls.
        """
        await self.open_logs(config_of, placements)
        await self.settle(is_stray, directory_id_of, placements)

    async def open_logs(
        self,
        config_of: Callable[[TopicPartition], LogConfig],
        placements: Sequence[ReplicaPlacement] | None = None,
    ) -> None:
        """Open all logs of all log directories, and find lost records. No log is online yet.

        `placements` are the replicas that the metadata image places on this broker, or None if no
        image is known.
        """
        await self._start.open_logs(config_of, placements)

    async def settle(
        self,
        is_stray: Callable[[TopicPartition, UUID | None], bool],
        directory_id_of: Callable[[TopicPartition], UUID | None],
        placements: Sequence[ReplicaPlacement] | None = None,
    ) -> None:
        """Bring those opened logs online that the cluster places on this broker. The directories of
        all other logs get the suffix `-stray`.

        The metadata image must include this broker's registration, because an older image may lack
        a topic whose records are on this broker. `losses` may grow by losses that only this image
        shows.

        If a partition has logs in two directories, the longer log is used. If they are equal, the
        log in the directory assigned by the cluster (`directory_id_of`) is used. The other log is
        taken out of use. Interrupted moves start again.

        Raises ConfigError if neither rule decides which log to use.
        """
        await self._start.settle(is_stray, directory_id_of, placements)

    @property
    def losses(self) -> Mapping[TopicIdPartition, LogLoss]:
        """Losses of records in replicas that are not complete again yet, by partition."""
        return self.known_losses.by_partition

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Durably remove the recorded losses of replicas that are complete again, or deleted.

        If a replica that is complete again was elected leader, a hole in its log is no longer a
        loss.
        """
        for key in self.losses.keys() & set(whole):
            placed = self._placed.get(self.losses[key].partition)
            if placed is not None and placed.log.topic_id == key.topic_id:
                placed.log.note_hole(None)
        if not self.losses.keys().isdisjoint(whole):
            try:
                await self.known_losses.forget(self.live_directories(), whole)
            except OSError as error:  # the file lists too much: the next start reports it again
                _LOGGER.warning("losses of complete replicas could not be removed: %s", error)

    def place(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Bring a partition's log online, and become its owner."""
        assert partition not in self._placed
        owner = PlacedLogOwner(self, partition, log, directory)
        self._placed[partition] = log.state.owner = owner
        self._log_counts[directory.path] += 1
        log.share_producer_budget(self._producer_budget)

    def displace(self, partition: TopicPartition) -> PlacedLog | None:
        """Take a partition's log out of use. Returns the log and its log directory, or None if the
        log is not online."""
        placed = self.placed(partition)
        if placed is not None:
            del self._placed[partition]
            self._log_counts[placed.directory.path] -= 1
        return placed

    # ---- creation and deletion

    async def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        directory_id: UUID | None = None,
        holds_nothing: bool = True,
    ) -> Log:
        """Return the partition's log. If it does not exist, it is created in the directory
        `directory_id`, or by default in the directory with the fewest logs.

        `holds_nothing` means that the replica cannot have had committed records (see
        `choose_place`). Raises RefusedError(INCONSISTENT_TOPIC_ID) if this broker has a log of
        another topic with the same name. Raises RefusedError(KAFKA_STORAGE_ERROR) if the disk fails
        or the log may be on a missing disk.
        """
        async with self._changing.alone_with(partition):
            log = self.get(partition)
            if log is not None:
                if log.topic_id != topic_id:
                    raise RefusedError(ErrorCode.INCONSISTENT_TOPIC_ID)
                return log
            if self._is_closing:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker is stopping")
            begun = self._holder_of(partition)  # by an attempt that was interrupted
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
                self.on_disk_error(directory, error)
                raise refusal_of(error, directory.path) from error
            finally:
                self._log_counts[directory.path] -= 1
            if not directory.is_live:  # it failed during the await
                log.abandon()
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, directory.failure)
            self.place(partition, log, directory)
            assert self.nursery is not None
            self._new.schedule_directory_sync(self.nursery, partition, log)
            return log

    async def delete(self, partition: TopicPartition) -> None:
        """Remove a partition's log at once. Its files are deleted after file.delete.delay.ms.

        When this returns, a new topic can use the partition's name, even after a crash. Tasks that
        use the log's files are awaited first, because they remove files by name.
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
        """Rename the directory of a partition's log, so that a new log can use the name. The files
        are deleted after `delay_ms`.

        Raises RefusedError(KAFKA_STORAGE_ERROR) if the disk fails.
        """
        try:
            target = await free_name(self._disk, self._rng, directory, partition)
        except OSError as error:
            self.on_disk_error(directory, error)
            raise refusal_of(error, directory.path) from error
        if target is not None:
            self.start_removal(directory, target, delay_ms=delay_ms)

    def switch_log(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        """Make another log the log of a partition. The new log must have all records of the current
        log."""
        self.displace(partition)
        self.place(partition, log, directory)
        self.on_moved(partition, log)

    def _holder_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the online log directory that contains a directory with this partition's name, or
        None if no log directory contains one.

        This method is used for partitions whose logs are not online.
        """
        for directory in self.live_directories():
            if self._disk.exists(f"{directory.path}/{partition}"):
                return directory
        return None

    def start_removal(self, directory: LogDirectory, path: str, *, delay_ms: int) -> None:
        """Schedule the removal of a deleted partition's directory at `path` after a delay in ms, in
        the background."""
        assert self.nursery is not None
        self.nursery.start_soon(self._remove_later, directory, path, delay_ms)

    async def _remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        """Remove a deleted partition's directory after a delay in ms, in which readers finish."""
        await trio.sleep(delay_ms / 1_000)
        if not directory.is_live:
            return
        try:
            await self._disk.remove_tree(path)
        except OSError as error:
            _LOGGER.warning("%s stays until the next start: %s", path, error)
            self.on_disk_error(directory, error)
        except Exception as error:
            self._errors.note("removal", path, error)

    # ---- failures

    def on_disk_error(self, directory: LogDirectory, error: OSError) -> None:
        """Take a log directory offline if an OSError is a failure of its disk. A temporary error is
        only logged."""
        if is_disk_failure(error):
            self.fail_directory(directory, error.strerror or str(error))
        else:
            directory.note_passing(error)

    def on_file_error(self, path: str, error: OSError) -> None:
        """Handle an OSError of a log's file that occurred outside of the log's own methods, for
        example while a slice was sent."""
        for directory in self.live_directories():
            if path.startswith(f"{directory.path}/"):
                self.on_disk_error(directory, error)

    def fail_directory(self, directory: LogDirectory, reason: str) -> None:
        """Take a log directory and its logs offline until the next start of the broker."""
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
        """Wait until no log directory is online, then raise OSError. A broker cannot work without a
        disk."""
        await self._every_directory_failed.wait()
        raise OSError(errno.EIO, "every log directory failed")

    # ---- periodic work

    async def run_periodically(self) -> None:
        """Run the periodic work of each log directory until cancelled: write checkpoints, flush
        logs and delete old segments."""
        async with trio.open_nursery() as nursery:
            for upkeep in self._upkeep.values():
                nursery.start_soon(upkeep.run)

    @property
    def reliefs(self) -> list[DiskRelief]:
        """Tasks that delete copied segments if free space is short, one for each log directory."""
        return [upkeep.relief for upkeep in self._upkeep.values()]

    def _upkeep_of(self, directory: LogDirectory) -> DirectoryUpkeep:
        removal = DelayedRemoval(self._disk, lambda error: self.on_disk_error(directory, error))
        return DirectoryUpkeep(
            directory.path,
            self._config,
            self._clock,
            self._errors,
            logs=lambda: self.in_directory(directory),
            write_checkpoint=lambda name: self._checkpoint_if_recovered(directory, name),
            flush_idle=lambda: self._flush_idle(directory),
            measure_free_space=directory.free_space.run,
            removal=removal,
            relief=DiskRelief(
                directory.path,
                self._config.tier.local_free_bytes_min,
                self._clock,
                logs=lambda: self.in_directory(directory),
                measure=directory.free_space.fresh,
                removal=removal,
            ),
        )

    async def _flush_idle(self, directory: LogDirectory) -> None:
        if directory.is_live:
            try:
                await self._disk.flush_idle(directory.path)
            except OSError as error:  # any errno: the kernel forgets failed writes
                self.fail_directory(directory, error.strerror or str(error))

    async def checkpoint_high_watermarks(self) -> None:
        """Write the high watermark checkpoints, so that a restarted broker can serve committed
        records immediately."""
        await self._checkpoint(HIGH_WATERMARK_FILE)

    async def checkpoint_recovery_points(self) -> None:
        """Write the recovery point checkpoints. The next start checks the logs above these
        offsets."""
        await self._checkpoint(RECOVERY_POINT_FILE)

    async def checkpoint_log_starts(self) -> None:
        """Write the log start offset checkpoints, so that deleted records do not reappear after a
        restart."""
        await self._checkpoint(LOG_START_FILE)

    async def write_checkpoints(self, directory: LogDirectory) -> None:
        """Write all checkpoint files of a log directory."""
        for name in CHECKPOINTS:
            await self._checkpoint_if_recovered(directory, name)

    async def _checkpoint(self, name: str) -> None:
        async with trio.open_nursery() as nursery:
            for directory in self.directories:
                nursery.start_soon(self._checkpoint_if_recovered, directory, name)

    async def _checkpoint_if_recovered(self, directory: LogDirectory, name: str) -> None:
        if directory.is_live and directory.is_recovered:  # until then the file knows more
            await self.checkpoint_in(directory, name)

    async def checkpoint_in(self, directory: LogDirectory, name: str) -> None:
        """Write the checkpoint file `name` of a log directory. An error that is not temporary takes
        the directory offline."""
        try:
            await self.write_checkpoint(directory, name)
        except OSError as error:
            self.on_disk_error(directory, error)

    async def write_checkpoint(self, directory: LogDirectory, name: str) -> None:
        """Write the checkpoint file `name` of a log directory. Raises OSError if the write
        fails."""
        await directory.checkpoints.write(name, lambda: self._lines(directory, name))

    async def _write_lower_checkpoints(self, directory: LogDirectory) -> None:
        """Write the checkpoints of a log directory after a truncation of one of its logs lowered
        offsets. Raises OSError if a write fails."""
        await self.write_checkpoint(directory, RECOVERY_POINT_FILE)
        await self.write_checkpoint(directory, HIGH_WATERMARK_FILE)

    async def _keep_log_start(
        self, directory: LogDirectory, partition: TopicPartition, log: Log
    ) -> None:
        """Write a log's start offset to the checkpoint of its log directory if the checkpoint does
        not contain it. Concurrent calls share one write."""
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
        """Schedule a retention check of all logs soon, because a retention setting was changed."""
        for upkeep in self._upkeep.values():
            upkeep.apply_retention_soon()

    def request_flush(self, partition: TopicPartition) -> None:
        """Schedule a flush of a partition's log after the log has rolled."""
        placed = self._placed.get(partition)
        if placed is not None:
            self._upkeep[placed.directory].request_flush(partition, placed.log)

    # ---- the end

    async def shutdown_cleanly(self, broker_epoch: int) -> None:
        """Flush and close every log, then write the clean shutdown marker of each log directory
        with `broker_epoch`."""
        self._is_closing = True
        await self.moves.stop()
        await self.cleaner.stop()
        for partition in self._changing:  # wait for creations and deletions under way
            async with self._changing.alone_with(partition):
                pass
        async with trio.open_nursery() as nursery:
            for directory in self.live_directories():
                nursery.start_soon(self._close_directory, directory, broker_epoch)

    async def _close_directory(self, directory: LogDirectory, broker_epoch: int) -> None:
        if not directory.is_recovered:
            return  # nothing was opened; its marker, if any, may be gone already
        directory.checkpoints.close()  # a late write would drop the lines of logs closed by then
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
                    log.abandon()  # a deleted file uses space while it is open
                    is_clean = is_closed = False
                await wait_until_idle(log)
                for name in CHECKPOINTS:
                    lines[name].update(lines_of(name, [(partition, log)]))
                if is_closed and log.topic_id is not None:
                    # Exact, as in Kafka: a log that ends below it at the next start has lost
                    # records.
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
            self.on_disk_error(directory, error)
        directory.is_recovered = False

    def abandon(self) -> None:
        """Release all files and locks of the logs without flushing, as a crash does."""
        self.moves.abandon()
        self._start.abandon(self.directories)
        for placed in self._placed.values():
            placed.log.abandon()
        self._placed.clear()
        for directory in self.directories:
            directory.release()
