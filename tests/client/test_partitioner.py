"""The partitioner against an independent implementation of Kafka's murmur2."""

from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as reference

from ottla.client.partitioner import murmur2, partition_of


@given(st.binary(max_size=64))
def test_a_key_hashes_as_other_clients_hash_it(key: bytes) -> None:
    assert murmur2(key) == reference(key) & 0xFFFFFFFF


@given(st.binary(max_size=16), st.integers(1, 100))
def test_a_key_has_one_partition_among_those_there_are(key: bytes, count: int) -> None:
    assert 0 <= partition_of(key, count) < count
