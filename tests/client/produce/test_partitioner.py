"""The partitioners against independent implementations, and where keyless records go."""

import zlib
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from ottla.client.produce.partitioner import (
    Partitioner,
    StickyPartitions,
    crc32_partition_of,
    murmur2,
    partition_of,
)

PARTITIONS = (0, 1, 2)


def deal(*numbers: int) -> StickyPartitions:
    """Return partitions that stick for 100 bytes and are dealt by these numbers in turn."""
    left = list(numbers)
    return StickyPartitions(100, lambda bound: left.pop(0) % bound)


@given(st.binary(max_size=64))
def test_a_key_hashes_as_other_clients_hash_it(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@given(st.binary(max_size=16), st.integers(1, 100))
def test_a_key_has_one_partition_among_those_there_are(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count
    assert 0 <= crc32_partition_of(key, count) < count


def test_an_empty_key_is_a_key_for_java_and_none_for_librdkafka() -> None:
    assert Partitioner.MURMUR2_RANDOM.partition_of(b"", 7) == partition_of(b"", 7)
    assert Partitioner.MURMUR2_RANDOM.partition_of(None, 7) is None
    assert Partitioner.CONSISTENT_RANDOM.partition_of(b"", 7) is None
    assert Partitioner.CONSISTENT_RANDOM.partition_of(b"k", 7) == zlib.crc32(b"k") % 7


def test_keyless_records_stay_until_a_batch_is_full_and_then_move() -> None:
    sticky = deal(1, 0)

    found = [sticky.choose("t", PARTITIONS, 40) for _ in range(6)]

    assert found == [1, 1, 1, 0, 0, 0]


def test_the_next_partition_is_another_one_where_there_is_another() -> None:
    sticky = deal(0, 0, 0)

    assert [sticky.choose("t", PARTITIONS, 100) for _ in range(3)] == [0, 1, 0]
    assert [deal(0, 0).choose("t", (0,), 100) for _ in range(2)] == [0, 0]


def test_a_lone_partition_has_room_for_a_whole_batch_at_any_time() -> None:
    sticky = deal(0, 0)
    sticky.choose("t", (0,), 60)
    whole_bytes = sticky.room_bytes("t")
    sticky.note("t", 60)

    assert sticky.choose("t", (0,), 60) == 0
    assert sticky.room_bytes("t") == whole_bytes

    assert sticky.choose("t", (0, 1), 60) == 0  # its bytes count from now on
    assert sticky.room_bytes("t") == whole_bytes - 60


def test_keyless_records_leave_a_partition_that_lost_its_leader() -> None:
    sticky = deal(2, 0)

    assert sticky.choose("t", PARTITIONS, 1) == 2
    assert sticky.choose("t", (0, 1), 1) == 0


def test_topics_stick_apart() -> None:
    sticky = deal(1, 2)

    found = Counter((topic, sticky.choose(topic, PARTITIONS, 1)) for topic in "abab")

    assert found == {("a", 1): 2, ("b", 2): 2}
