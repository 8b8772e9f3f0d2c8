"""Encoder and decoder of Kafka's offset checkpoint files. Pure. The format is: version, count, then
one line `topic partition offset` for each partition.

The recovery points, the log start offsets, the high watermarks and the first dirty offsets of a
directory all use this format.
"""

from collections.abc import Mapping

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition

RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_FILE = "log-start-offset-checkpoint"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
VERSION = 0


def format_checkpoint(offsets: Mapping[TopicPartition, Offset]) -> bytes:
    """Return the bytes of a checkpoint file with an offset for each partition. Partitions are
    sorted, so that equal offsets result in equal bytes."""
    lines = [str(VERSION), str(len(offsets))]
    lines += [f"{key.topic} {key.partition} {offsets[key]}" for key in sorted(offsets)]
    return ("\n".join(lines) + "\n").encode()


def parse_checkpoint(data: bytes) -> dict[TopicPartition, Offset]:
    """Return the offsets in a checkpoint file, by partition. Raises CorruptDataError, which names
    the line, if the file is malformed."""
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptDataError("checkpoint: it is not UTF-8") from None
    if len(lines) < 2 or lines[0] != str(VERSION):
        raise CorruptDataError(f"checkpoint: its first line is not version {VERSION}")
    if not _is_number(lines[1]) or int(lines[1]) != len(lines) - 2:
        raise CorruptDataError(f"checkpoint: {lines[1]!r} entries said, {len(lines) - 2} found")
    offsets: dict[TopicPartition, Offset] = {}
    for number, line in enumerate(lines[2:], start=3):
        words = line.split(" ")
        if len(words) != 3 or not _is_number(words[1]) or not _is_number(words[2]):
            raise CorruptDataError(f"checkpoint: line {number} is {line!r}")
        key = TopicPartition(words[0], int(words[1]))
        if key in offsets:
            raise CorruptDataError(f"checkpoint: line {number} names {key} again")
        offsets[key] = Offset(int(words[2]))
    return offsets


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 19
