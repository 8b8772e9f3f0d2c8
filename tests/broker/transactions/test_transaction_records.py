"""The records of `__transaction_state`, byte for byte as Kafka writes them."""

from dataclasses import replace

import pytest

from ottla.broker.transactions.transaction import TransactionFacts, TransactionStatus
from ottla.broker.transactions.transaction_records import read_state_record, state_record
from ottla.model.errors import CorruptDataError
from ottla.model.ids import ProducerId, TopicPartition

FACTS = TransactionFacts(
    producer_id=ProducerId(0x0102),
    previous_producer_id=ProducerId(0x0102),
    producer_epoch=5,
    timeout_ms=60_000,
    status=TransactionStatus.ONGOING,
    partitions=frozenset((TopicPartition("b", 1), TopicPartition("a", 4), TopicPartition("b", 0))),
    start_ms=0x18BCFE56800,
    last_update_ms=0x18BCFE56801,
)
KEY = b"\0\0" + b"\0\2t1"
COMMON = b"\0\0\0\0\0\0\x01\x02" + b"\0\5" + b"\0\0\xea\x60" + b"\1"
TIMES = b"\0\0\x01\x8b\xcf\xe5\x68\x01" + b"\0\0\x01\x8b\xcf\xe5\x68\0"
VALUE_0 = (
    b"\0\0"
    + COMMON
    + (b"\0\0\0\2" + b"\0\1a" + b"\0\0\0\1\0\0\0\4" + b"\0\1b" + b"\0\0\0\2\0\0\0\0\0\0\0\1")
    + TIMES
)
VALUE_1 = (
    b"\0\1"
    + COMMON
    + (b"\3" + b"\2a" + b"\2\0\0\0\4" + b"\0" + b"\2b" + b"\3\0\0\0\0\0\0\0\1" + b"\0")
    + TIMES
    + b"\3"  # three tagged fields
    + b"\0\x08\0\0\0\0\0\0\x01\x02"  # the previous producer id
    + b"\1\x08\0\0\0\0\0\0\x03\xe8"  # the next producer id
    + b"\2\2\0\2"  # the client's transaction version
)
BUMPED = replace(FACTS, next_producer_id=ProducerId(1_000), client_version=2)


def test_a_value_of_a_cluster_without_the_feature() -> None:
    assert state_record("t1", FACTS) == (KEY, VALUE_0)
    read = read_state_record(KEY, VALUE_0)
    assert read == ("t1", replace(FACTS, previous_producer_id=ProducerId(-1)))


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_value_with_what_a_client_of_version_2_needs(transaction_version: int) -> None:
    assert state_record("t1", BUMPED, transaction_version) == (KEY, VALUE_1)
    assert read_state_record(KEY, VALUE_1) == ("t1", BUMPED)


def test_the_last_epoch_is_not_stored() -> None:
    key, value = state_record("t1", replace(BUMPED, last_producer_epoch=4), 2)
    assert read_state_record(key, value) == ("t1", BUMPED)


@pytest.mark.parametrize("transaction_version", [0, 1])
def test_partitions_are_null_where_nothing_was_ever_open(transaction_version: int) -> None:
    empty = replace(FACTS, status=TransactionStatus.EMPTY, partitions=frozenset())
    _, value = state_record("t1", empty, transaction_version)
    assert value is not None
    at = 2 + len(COMMON)
    assert value[at:].startswith(b"\0" if transaction_version else b"\xff\xff\xff\xff")
    read = read_state_record(KEY, value)
    assert read is not None
    assert read[1] is not None
    assert read[1].partitions == frozenset()


def test_a_tombstone_forgets_the_id() -> None:
    assert state_record("t1", None) == (KEY, None)
    assert read_state_record(KEY, None) == ("t1", None)


def test_a_key_of_a_later_version_is_passed_over() -> None:
    assert read_state_record(b"\0\1" + b"\0\2t1", VALUE_0) is None


def test_a_field_of_two_phase_commit_is_readable() -> None:
    with_epoch = VALUE_1.replace(TIMES + b"\3", TIMES + b"\4") + b"\3\2\0\7"
    assert read_state_record(KEY, with_epoch) == ("t1", BUMPED)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE_0),
        (b"\0", VALUE_0),
        (b"\0\0\0\x09t1", VALUE_0),
        (KEY, b"\0"),
        (KEY, b"\0\2" + VALUE_0[2:]),
        (KEY, VALUE_0[:-1]),
        (KEY, VALUE_0[:16] + b"\6" + VALUE_0[17:]),
        (KEY, VALUE_0[:16] + b"\7" + VALUE_0[17:]),
    ],
    ids=["no-key", "short", "cut-key", "no-version", "version-2", "cut", "dead", "fence"],
)
def test_what_is_no_record_of_it_is_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(CorruptDataError):
        read_state_record(key, value)
