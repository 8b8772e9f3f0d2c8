"""Interface between the log manager and the log cleaner: the logs to compact, and their
checkpoints."""

from collections.abc import Iterator
from typing import Protocol

from ottla.model.ids import Offset, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.cleaner.cleaner_driver import LogCleaner
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.directories.checkpoint_file import CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.manager.log_moves_driver import LogMoves


class ManagedLogs(Protocol):
    """The part of the log manager that `LogsToClean` needs."""

    moves: LogMoves

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield each partition whose log is online, with its log."""
        ...

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that contains a partition's log, or None if the log is not
        online."""
        ...

    async def write_checkpoint(self, directory: LogDirectory, name: str) -> None:
        """Write the checkpoint file `name` of a log directory. Raises OSError if the write
        fails."""
        ...

    def on_file_error(self, path: str, error: OSError) -> None:
        """Handle an OSError of a log's file that occurred outside of the log's own methods."""
        ...


class LogsToClean:
    """Adapter through which the log cleaner gets the log manager's logs, and writes their
    checkpoints."""

    def __init__(self, logs: ManagedLogs) -> None:
        self._logs = logs

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        return iter(self._logs)

    def is_moving(self, partition: TopicPartition) -> bool:
        """Return whether a partition's log is moving to another log directory."""
        return self._logs.moves.is_moving(partition)

    async def keep_recovery_point(self, partition: TopicPartition, log: Log, at: Offset) -> None:
        """Write the recovery point checkpoint of the log's directory. Does nothing if the
        checkpoint already contains `at` or a larger offset for the partition."""
        directory = self._logs.directory_of(partition)
        if directory is None or log.topic_id is None:
            return
        kept = directory.checkpoints.durable_offset_of(RECOVERY_POINT_FILE, partition, log.topic_id)
        if kept is None or kept < at:
            await self._logs.write_checkpoint(directory, RECOVERY_POINT_FILE)

    async def keep_first_dirty(self, partition: TopicPartition) -> None:
        """Write the first dirty offsets of all logs in the partition's log directory to its
        checkpoint file."""
        directory = self._logs.directory_of(partition)
        if directory is not None and directory.is_live and directory.is_recovered:
            await self._logs.write_checkpoint(directory, CLEANER_OFFSET_FILE)

    def on_file_error(self, path: str, error: OSError) -> None:
        """Handle an OSError of a log's file. The log manager may take the log directory offline."""
        self._logs.on_file_error(path, error)


def open_cleaner(
    logs: ManagedLogs,
    disk: Disk,
    clock: Clock,
    rng: Rng,
    errors: UnexpectedErrors,
    config: CleanerConfig,
    runner: CleaningRunner | None,
) -> LogCleaner:
    """Return the log cleaner for the logs of a log manager. Without a `runner`, the cleaner
    compacts logs in the event loop."""
    if runner is None:
        from ottla.storage.cleaner.in_place_driver import InPlaceRunner

        runner = InPlaceRunner(disk)
    cleaner = LogCleaner(disk, clock, rng, errors, config, LogsToClean(logs), runner)
    logs.moves.end_cleaning = cleaner.wait_for_cleaning
    return cleaner
