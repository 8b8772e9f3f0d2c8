"""Which open transactions no coordinator will end."""

from typing import Any

import pytest

from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.insight.facts.hanging import OpenTransaction, hanging_of, open_transactions
from ottla.model.ids import NodeId, Offset, ProducerId, TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def producer(number: int, start: int | None, last_ms: int = 1_000) -> ActiveProducer:
    return ActiveProducer(
        ProducerId(number), 0, 5, last_ms, 0, None if start is None else Offset(start)
    )


def owner(number: int, *partitions: TopicPartition, **changes: Any) -> TransactionDescription:
    fields: dict[str, Any] = {
        "transactional_id": f"id-{number}",
        "coordinator": NodeId(1),
        "state": "Ongoing",
        "producer_id": ProducerId(number),
        "producer_epoch": 0,
        "timeout_ms": 60_000,
        "start_ms": 1_000,
        "partitions": frozenset(partitions),
    }
    return TransactionDescription(**{**fields, **changes})


def test_what_is_open_comes_by_partition_and_offset() -> None:
    producers = {B: [producer(1, 4)], A: [producer(2, 9), producer(3, None), producer(4, 7)]}
    found = [(one.at, one.start) for one in open_transactions(producers)]
    assert found == [(A, 7), (A, 9), (B, 4)]


@pytest.mark.parametrize(("before_ms", "is_found"), [(1_000, False), (1_001, True)])
def test_what_had_a_record_lately_is_left_out(before_ms: int, is_found: bool) -> None:
    producers = {A: [producer(1, 0, last_ms=1_000)]}
    assert bool(list(open_transactions(producers, before_ms=before_ms))) == is_found


@pytest.mark.parametrize(
    ("owners", "is_hanging"),
    [
        ({}, True),
        ({1: [owner(1, A)]}, False),
        # It has a transaction, but not this partition in it.
        ({1: [owner(1, B)]}, True),
        # It was another producer's.
        ({2: [owner(2, A)]}, True),
        # Two ids may have had the producer id one after the other.
        ({1: [owner(1, B), owner(1, A)]}, False),
    ],
)
def test_one_hangs_that_no_coordinator_has_with_the_partition(
    owners: dict[Any, Any], is_hanging: bool
) -> None:
    one = OpenTransaction(A, producer(1, 0))
    assert hanging_of([one], owners) == ([one] if is_hanging else [])
