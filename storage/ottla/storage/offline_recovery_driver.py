"""Does for a log directory, without a broker, what a start after a crash and a clean stop do.

The recovery is the start's own (`log_recovery_driver`); then every log is closed, and checkpoints
and the clean marker are written, so that the next start has nothing to check.  The marker bears no
broker epoch: what a crash may have lost must not look to the controller as if it was kept.
Deletions under way are left to the broker, and so is the metadata log.
"""

from collections.abc import Callable

from ottla.model.errors import ConfigError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.model.seams import Clock, Rng
from ottla.model.values import frozen
from ottla.storage.checkpoint_file import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from ottla.storage.checkpoints_driver import CheckpointLine
from ottla.storage.clean_shutdown import NO_BROKER_EPOCH
from ottla.storage.disk_seam import Disk
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory_driver import LogDirectory, RecoveryProgress
from ottla.storage.log_recovery_driver import RecoveryPlan, recover_directory

WORKERS = 2
"""Logs recovered at once; Kafka's default of num.recovery.threads.per.data.dir."""


@frozen(kw_only=True)
class OfflineRecovery:
    """What was done."""

    was_clean: bool
    """Whether the directory was stopped cleanly, and was left as it is."""
    end_offsets: dict[TopicPartition, Offset]
    corrupt: dict[TopicPartition, str]
    """Partitions that a start takes offline, and why."""


async def recover_offline(
    disk: Disk,
    clock: Clock,
    rng: Rng,
    path: str,
    *,
    is_all_checked: bool,
    on_start: Callable[[RecoveryProgress], None] = lambda progress: None,
) -> OfflineRecovery:
    """Recover every log of a directory; with `is_all_checked` from its first byte.

    Raises ConfigError if another process has the directory, or if it is none of a broker.
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
    """Return settings that lose nothing: those of the topic are in the metadata log."""
    return LogConfig(producer_id_expiration_ms=INT64_MAX)
