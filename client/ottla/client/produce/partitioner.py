"""Built-in partitioners, compatible with other Kafka clients.

Clients with the same hash function send a key to the same partition. The Java client and
kafka-python use murmur2. CRC32 is the default of librdkafka. Records without a key are sent to one
partition until about one batch of bytes has been sent, then to another partition. Batches therefore
become full (KIP-480, KIP-794). Pure: random numbers are an argument.
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
    """Partitioners that hash the key of a record, under librdkafka's names."""

    MURMUR2_RANDOM = "murmur2_random"
    """Default of the Java client and kafka-python: the murmur2 hash. An empty key is hashed like
    any other key."""
    CONSISTENT_RANDOM = "consistent_random"
    """Default of librdkafka: the CRC32 hash. A record with an empty key is treated as a record
    without a key."""

    def partition_of(self, key: bytes | None, partition_count: int) -> int | None:
        """Return the partition for a key, or None if the record may be sent to any partition."""
        if self is Partitioner.CONSISTENT_RANDOM:
            return crc32_partition_of(key, partition_count) if key else None
        return None if key is None else partition_of(key, partition_count)


class UnplacedRecord(NamedTuple):
    """A record that was sent without a partition, together with the partitions of its topic."""

    topic: str
    """Name of the topic."""
    key: bytes | None
    """Key of the record, or None."""
    value: bytes | None
    """Value of the record; None for a tombstone."""
    partitions: Sequence[int]
    """Partition numbers of the topic, ascending."""
    available: Sequence[int]
    """Numbers of the partitions that have a leader, or of all partitions if no partition has a
    leader."""


PartitionChoice: TypeAlias = Callable[[UnplacedRecord], int | None]
"""Partitioner of the application: a function that returns a partition number, or None to use the
setting `partitioner`."""


class StickyPartitions:
    """Current partition of records without a key, and the remaining number of bytes until another
    partition is chosen, by topic."""

    __slots__ = ("_below", "_stay", "_sticky_bytes")

    def __init__(self, sticky_bytes: int, below: Callable[[int], int]) -> None:
        assert sticky_bytes > 0
        self._sticky_bytes = sticky_bytes
        self._below = below
        self._stay: dict[str, list[int]] = {}

    def choose(self, topic: str, available: Sequence[int], record_bytes: int) -> int:
        """Return the partition for the next record without a key. Only partitions with a leader are
        chosen.

        Another partition is chosen after about one batch of bytes, or if the current partition has
        no leader. If only one partition has a leader, its bytes are not counted.
        """
        assert available
        stay = self._stay.get(topic)
        if stay is None or stay[1] >= self._sticky_bytes or stay[0] not in available:
            others = [one for one in available if stay is None or one != stay[0]] or available
            stay = self._stay[topic] = [others[self._below(len(others))], 0]
        # With one partition, a limit in the middle of a batch would only cost time.
        stay[1] = stay[1] + record_bytes if len(available) > 1 else 0
        return stay[0]

    def note(self, topic: str, record_bytes: int) -> None:
        """Count a record that was sent to the topic's current partition without a call of
        `choose`."""
        if record_bytes:
            self._stay[topic][1] += record_bytes

    def room_bytes(self, topic: str) -> int:
        """Return the number of bytes that are still sent to the topic's current partition before
        another partition is chosen."""
        return self._sticky_bytes - self._stay[topic][1]


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition for a key, among `partition_count` partitions, as the Java client
    computes it (murmur2)."""
    assert partition_count > 0
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


def crc32_partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition for a key, as the default partitioner of librdkafka computes it
    (CRC32)."""
    assert partition_count > 0
    return zlib.crc32(key) % partition_count


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of the data, with Kafka's seed."""
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
    """Return the error for a partition number that does not exist in a topic."""
    return RefusedError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{partition}"
    )
