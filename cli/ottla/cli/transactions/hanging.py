"""Which open transactions hang: no coordinator will end what a partition holds open.  Pure.

Kafka's rule (KIP-664): a transaction that is open for longer than any may be, and whose producer
id belongs to no transactional id whose transaction has the partition.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.model.ids import Offset, ProducerId, TopicPartition

LATE_MS = 5 * 60_000
"""How much later than its timeout a transaction may still end by itself."""


class OpenTransaction(NamedTuple):
    """A transaction that a partition's leader holds open."""

    at: TopicPartition
    producer: ActiveProducer

    @property
    def start(self) -> Offset:
        """Where it begins in the partition."""
        assert self.producer.transaction_start is not None
        return self.producer.transaction_start


def open_transactions(
    producers: Mapping[TopicPartition, Iterable[ActiveProducer]],
    *,
    before_ms: int | None = None,
) -> Iterator[OpenTransaction]:
    """Yield what is open, by partition and offset: all, or what had no record since `before_ms`."""
    for at in sorted(producers):
        found = [
            OpenTransaction(at, producer)
            for producer in producers[at]
            if producer.transaction_start is not None
            and (before_ms is None or producer.last_timestamp_ms < before_ms)
        ]
        yield from sorted(found, key=lambda one: one.start)


def hanging_of(
    open_: Iterable[OpenTransaction],
    owners: Mapping[ProducerId, Iterable[TransactionDescription]],
) -> list[OpenTransaction]:
    """Return those whose producers' coordinators do not have the partition in a transaction."""
    return [
        one
        for one in open_
        if not any(one.at in owner.partitions for owner in owners.get(one.producer.producer_id, ()))
    ]
