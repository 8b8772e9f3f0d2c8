"""The log manager as the cleaner sees it: its logs, and what is written down of them."""

from collections.abc import Iterator
from typing import Protocol

from ottla.model.ids import Offset, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.settings.cleaner import CleanerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.checkpoint_file import CLEANER_OFFSET_FILE, RECOVERY_POINT_FILE
from ottla.storage.cleaner.cleaner_driver import LogCleaner
from ottla.storage.cleaner.cleaning_runner import CleaningRunner
from ottla.storage.disk_seam import Disk
from ottla.storage.log import Log
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_moves_driver import LogMoves


class ManagedLogs(Protocol):
    """What cleaning needs of the log manager."""

    moves: LogMoves

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition that serves, with its log."""
        ...

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        """Return the directory a partition's log lies in."""
        ...

    async def write_checkpoint(self, directory: LogDirectory, name: str) -> None:
        """Write one checkpoint of a directory.  OSError if it cannot be."""
        ...

    def on_file_error(self, path: str, error: OSError) -> None:
        """Judge an error of a file that was met outside of its log."""
        ...


class LogsToClean:
    """The port of the cleaner."""

    def __init__(self, logs: ManagedLogs) -> None:
        self._logs = logs

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        return iter(self._logs)

    def is_moving(self, partition: TopicPartition) -> bool:
        """Whether a partition is on its way to another directory."""
        return self._logs.moves.is_moving(partition)

    async def keep_recovery_point(self, partition: TopicPartition, log: Log, at: Offset) -> None:
        """Write the recovery point down, unless its checkpoint says `at` or more."""
        directory = self._logs.directory_of(partition)
        if directory is None or log.topic_id is None:
            return
        kept = directory.checkpoints.durable_offset_of(RECOVERY_POINT_FILE, partition, log.topic_id)
        if kept is None or kept < at:
            await self._logs.write_checkpoint(directory, RECOVERY_POINT_FILE)

    async def keep_first_dirty(self, partition: TopicPartition) -> None:
        """Write the first dirty offsets of the partition's directory down."""
        directory = self._logs.directory_of(partition)
        if directory is not None and directory.is_live and directory.is_recovered:
            await self._logs.write_checkpoint(directory, CLEANER_OFFSET_FILE)

    def on_file_error(self, path: str, error: OSError) -> None:
        """Judge an error of a log's disk."""
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
    """Return the cleaner of a log manager; without a runner it cleans in place."""
    if runner is None:
        from ottla.storage.cleaner.in_place_driver import InPlaceRunner

        runner = InPlaceRunner(disk)
    cleaner = LogCleaner(disk, clock, rng, errors, config, LogsToClean(logs), runner)
    logs.moves.end_cleaning = cleaner.pause_for_a_while
    return cleaner
