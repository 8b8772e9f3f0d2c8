"""Which partition a record belongs to, decided as other clients decide it.

A key has the same partition under every client that hashes alike: Java's and kafka-python's
murmur2, or CRC32 as librdkafka does by default.  Records without a key stay on one partition until
a batch's worth of bytes went there (KIP-480, KIP-794), so that batches fill.  Pure: chance is
handed in.
"""

import zlib
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

from ottla.model.errors import ErrorCode, RefusedError

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
MASK = 0xFFFFFFFF


class Partitioner(Enum):
    """How keys are hashed, under librdkafka's names."""

    MURMUR2_RANDOM = "murmur2_random"
    """Java's and kafka-python's default: an empty key is a key."""
    CONSISTENT_RANDOM = "consistent_random"
    """librdkafka's default, CRC32: an empty key is no key."""

    def partition_of(self, key: bytes | None, partition_count: int) -> int | None:
        """Return the partition of a key; None where any partition will do."""
        if self is Partitioner.CONSISTENT_RANDOM:
            return crc32_partition_of(key, partition_count) if key else None
        return None if key is None else partition_of(key, partition_count)


class UnplacedRecord(NamedTuple):
    """A record whose partition is to be chosen, and the partitions of its topic."""

    topic: str
    """Name of the topic."""
    key: bytes | None
    """Key of the record; None if it has none."""
    value: bytes | None
    """Value of the record; None for a tombstone."""
    partitions: Sequence[int]
    """Partition numbers of the topic, ascending."""
    available: Sequence[int]
    """Those that have a leader; all of them if none has."""


PartitionChoice: TypeAlias = Callable[[UnplacedRecord], int | None]
"""A partitioner of the application's own; None leaves the choice to the setting `partitioner`."""


class StickyPartitions:
    """Where the keyless records of each topic go now, and for how many bytes more."""

    __slots__ = ("_below", "_stay", "_sticky_bytes")

    def __init__(self, sticky_bytes: int, below: Callable[[int], int]) -> None:
        assert sticky_bytes > 0
        self._sticky_bytes = sticky_bytes
        self._below = below
        self._stay: dict[str, list[int]] = {}

    def choose(self, topic: str, available: Sequence[int], record_bytes: int) -> int:
        """Return the partition of the next keyless record of a topic, of those that have a leader.

        A batch's worth of bytes later, or when that partition is not available any more, another
        one is dealt.
        """
        assert available
        stay = self._stay.get(topic)
        if stay is None or stay[1] >= self._sticky_bytes or stay[0] not in available:
            others = [one for one in available if stay is None or one != stay[0]] or available
            stay = self._stay[topic] = [others[self._below(len(others))], 0]
        stay[1] += record_bytes
        return stay[0]

    def note(self, topic: str, record_bytes: int) -> None:
        """Take note of what went to a topic's partition without a choice."""
        if record_bytes:
            self._stay[topic][1] += record_bytes

    def room_bytes(self, topic: str) -> int:
        """Return how many bytes may go to the chosen partition until another one is dealt."""
        return self._sticky_bytes - self._stay[topic][1]


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition number of a key among `partition_count`, as Java's client does."""
    assert partition_count > 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def crc32_partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition number of a key as librdkafka's default partitioner does."""
    assert partition_count > 0
    return zlib.crc32(key) % partition_count


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash with Kafka's seed."""
    length = len(data)
    result = (SEED ^ length) & MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> 24) * MULTIPLIER & MASK
        result = (result * MULTIPLIER & MASK) ^ word
    if length > whole:
        result = (result ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    result = (result ^ result >> 13) * MULTIPLIER & MASK
    return result ^ result >> 15


def no_partition(topic: str, partition: int) -> RefusedError:
    """Return the refusal of a record for a partition that the topic has not."""
    return RefusedError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}"
    )
