"""Names of the files in a partition's directory: Kafka's files, and files that only Ottla has.
Pure."""

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
"""Name of Ottla's own file with the recent batches of each producer. It belongs to the newest
producer snapshot."""

OFFSET_DIGITS = 20
"""Number of digits of an offset in a file name. Offsets are zero-padded, so that the order of names
is the order of offsets."""


def file_name(base_offset: int, suffix: str) -> str:
    """Return the name of a segment file or snapshot file: the zero-padded base offset, then the
    suffix."""
    return f"{base_offset:0{OFFSET_DIGITS}d}{suffix}"


def offset_of(name: str, suffix: str) -> int | None:
    """Return the offset in a file name that ends with `suffix`, or None for any other name."""
    digits = name.removesuffix(suffix)
    if len(digits) != OFFSET_DIGITS or digits == name:
        return None
    return int(digits) if digits.isascii() and digits.isdigit() else None


def offsets_of(names: list[str], suffix: str) -> list[int]:
    """Return the sorted offsets in those file names that end with `suffix`."""
    found = (offset_of(name, suffix) for name in names)
    return sorted(offset for offset in found if offset is not None)
