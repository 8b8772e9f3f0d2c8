"""Checkpoint lines of logs: the offset that each log contributes to the checkpoint files of its log
directory. Pure."""

from collections.abc import Callable, Iterable

from ottla.model.ids import Offset, TopicPartition
from ottla.storage.directories.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directories.checkpoints_driver import CheckpointLine
from ottla.storage.log.log import Log

CHECKPOINTS: dict[str, Callable[[Log], Offset | None]] = {
    RECOVERY_POINT_FILE: lambda log: log.recovery_checkpoint,
    LOG_START_FILE: lambda log: log.log_start_offset,
    HIGH_WATERMARK_FILE: lambda log: log.high_watermark,
    CLEANER_OFFSET_FILE: lambda log: log.first_dirty_offset if log.config.is_compacted else None,
}


def lines_of(
    name: str, logs: Iterable[tuple[TopicPartition, Log]]
) -> dict[TopicPartition, CheckpointLine]:
    """Return the lines of the checkpoint file `name` for several logs, by partition."""
    value_of = CHECKPOINTS[name]
    lines: dict[TopicPartition, CheckpointLine] = {}
    for partition, log in logs:
        if name == HIGH_WATERMARK_FILE and not log.names.is_kept:
            continue  # a line without a log counts as damage; a power failure must not cause one
        offset = value_of(log)
        if offset is not None:
            assert log.topic_id is not None
            lines[partition] = CheckpointLine(log.topic_id, offset)
    return lines
