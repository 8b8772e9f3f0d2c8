"""Names of the files in a partition's directory: Kafka's own, and those that Ottla adds."""

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

INDEX_SUFFIXES = (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_SUFFIXES = (LOG, *INDEX_SUFFIXES)

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
PRODUCER_BATCHES = "producer-batches"
"""Ottla's own side file of the newest producer snapshot."""

OFFSET_DIGITS = 20
"""Number of digits of an offset in a file name. Offsets are zero-padded, so that names and offsets
have the same order."""


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment's or a snapshot's file."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in the name of a file with this suffix, or None for any other name."""
    digits = name.removesuffix(suffix)
    if len(digits) != OFFSET_DIGITS or digits == name:
        return None
    return int(digits) if digits.isascii() and digits.isdigit() else None


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Return the sorted offsets of all files with this suffix."""
    found = (offset_of(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)
