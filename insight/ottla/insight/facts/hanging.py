"""Detection of hanging transactions: transactions that are open in a partition, but that no
coordinator would end. Pure.

By Kafka's rule (KIP-664), a transaction hangs if two conditions are true. It has been open longer
than the maximum timeout, and no transactional id of its producer id has the partition in its
present transaction.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.client.admin_parts.admin_replicas import ActiveProducer
from ottla.client.admin_parts.admin_transactions import TransactionDescription
from ottla.model.ids import Offset, ProducerId, TopicPartition

LATE_MS = 5 * 60_000
"""Grace period, in ms, after the timeout of a transaction. During this period, its coordinator may
still end it, so that it does not count as hanging."""


class OpenTransaction(NamedTuple):
    """A transaction in one partition that is open according to the partition's leader."""

    at: TopicPartition
    producer: ActiveProducer

    @property
    def start(self) -> Offset:
        """First offset of the open transaction in the partition."""
        assert self.producer.transaction_start is not None
        return self.producer.transaction_start


def open_transactions(
    producers: Mapping[TopicPartition, Iterable[ActiveProducer]],
    *,
    before_ms: int | None = None,
) -> Iterator[OpenTransaction]:
    """Yield the open transactions of the given producers, sorted by partition and offset. If
    `before_ms` is set, a transaction with a record since that time (ms since 1970) is omitted."""
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
    """Return the open transactions that no transaction coordinator knows. `owners` has the
    coordinators' descriptions of transactions, by producer id."""
    return [
        one
        for one in open_
        if not any(one.at in owner.partitions for owner in owners.get(one.producer.producer_id, ()))
    ]
