"""Recovery of a log directory without a broker. The effect is that of a startup after a crash,
followed by a clean shutdown.

The logs are recovered as at a broker startup (`log_recovery_driver`). Then every log is closed, and
checkpoints and the clean shutdown marker are written, so that the next start has nothing to check.
The marker contains no broker epoch, because with an epoch, the controller would assume that no
record was lost in a crash. Interrupted deletions and the metadata log are left to the broker.
"""

from collections.abc import Callable

from ottla.model.errors import ConfigError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.model.seams import Clock, Rng
from ottla.model.values import frozen
from ottla.storage.directories.checkpoint_file import (
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directories.checkpoints_driver import CheckpointLine
from ottla.storage.directories.clean_shutdown import NO_BROKER_EPOCH
from ottla.storage.directories.log_directory_driver import LogDirectory, RecoveryProgress
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.manager.log_recovery_driver import RecoveryPlan, recover_directory
from ottla.storage.segments.log_config import LogConfig

WORKERS = 2
"""Number of logs that an offline recovery checks concurrently, which is Kafka's default of
num.recovery.threads.per.data.dir."""


@frozen(kw_only=True)
class OfflineRecovery:
    """Result of recovering a log directory without a broker."""

    was_clean: bool
    """True if the log directory had a clean shutdown marker. The recovery then changed nothing."""
    end_offsets: dict[TopicPartition, Offset]
    corrupt: dict[TopicPartition, str]
    """Partitions that a broker would take offline at startup, each with the reason."""


async def recover_offline(
    disk: Disk,
    clock: Clock,
    rng: Rng,
    path: str,
    *,
    is_all_checked: bool,
    on_start: Callable[[RecoveryProgress], None] = lambda progress: None,
) -> OfflineRecovery:
    """Recover every log of a log directory without a broker. Returns whether the directory had a
    clean shutdown marker, the end offset of each log, and the corrupt partitions.

    With `is_all_checked`, logs are checked from their first byte. `on_start` is called with the
    progress object when the recovery starts.

    Raises ConfigError if another process has locked the directory, or if the directory does not
    belong to a broker.
    """
    directory = LogDirectory(disk, path)
    try:
        await directory.open()
        if directory.failure is not None:
            raise ConfigError(path, f"cannot be opened: {directory.failure}")
        if directory.identity is None:
            raise ConfigError(path, "is no log directory; it has no meta.properties")
        if directory.was_clean and not is_all_checked:
            return OfflineRecovery(was_clean=True, end_offsets={}, corrupt={})
        on_start(directory.progress)
        return await _recover(disk, clock, rng, directory, is_all_checked=is_all_checked)
    finally:
        directory.release()


async def _recover(
    disk: Disk, clock: Clock, rng: Rng, directory: LogDirectory, *, is_all_checked: bool
) -> OfflineRecovery:
    plan = RecoveryPlan(
        config_of=_config_of,
        worker_count=WORKERS,
        is_all_checked=is_all_checked,
    )
    found = await recover_directory(disk, clock, rng, directory, plan)
    try:
        for log in found.logs.values():
            await log.close()
        directory.checkpoints.close()
        await directory.checkpoints.write_last(_lines_of(found.logs))
        if not found.corrupt:
            directory.is_recovered = True
            await directory.write_clean_marker(NO_BROKER_EPOCH)
    finally:
        for log in found.logs.values():
            log.abandon()
    return OfflineRecovery(
        was_clean=False,
        end_offsets={partition: log.end_offset for partition, log in found.logs.items()},
        corrupt=found.corrupt,
    )


def _lines_of(logs: dict[TopicPartition, Log]) -> dict[str, dict[TopicPartition, CheckpointLine]]:
    lines: dict[str, dict[TopicPartition, CheckpointLine]] = {
        RECOVERY_POINT_FILE: {},
        LOG_START_FILE: {},
        HIGH_WATERMARK_FILE: {},
    }
    for partition, log in logs.items():
        assert log.topic_id is not None
        lines[RECOVERY_POINT_FILE][partition] = CheckpointLine(
            log.topic_id, log.recovery_checkpoint
        )
        lines[LOG_START_FILE][partition] = CheckpointLine(log.topic_id, log.log_start_offset)
        lines[HIGH_WATERMARK_FILE][partition] = CheckpointLine(log.topic_id, log.high_watermark)
    return lines


def _config_of(partition: TopicPartition) -> LogConfig:
    """Return log settings under which recovery removes no record by retention. The topic's own
    settings are not known, because they are in the metadata log.

    The settings allow that any log is tiered. The log start of a log then stays as checkpointed,
    below its first segment.
    """
    return LogConfig(producer_id_expiration_ms=INT64_MAX, is_tiered=True)
