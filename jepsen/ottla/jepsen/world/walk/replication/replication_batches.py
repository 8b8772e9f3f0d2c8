"""Encodes and decodes the batches that simulated producers send to replicated partitions. Each
batch has one record, whose timestamp identifies it."""

from functools import lru_cache

from ottla.jepsen.world.invariants.replication import JudgedRecord
from ottla.model.ids import NO_PRODUCER_ID, ProducerId
from ottla.wire.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, batches
from ottla.wire.batch_builder import build_batch

NO_RECORD = JudgedRecord(-1, -1)
"""Placeholder for a deleted record in a list of a log's records."""


@lru_cache(maxsize=1 << 14)
def batch_of(number: int, producer_id: int = -1, sequence: int = -1) -> bytes:
    """Return the batch of one record in the form that a client sends it. `number` identifies the
    record."""
    is_idempotent = producer_id >= 0
    return build_batch(
        [(number, None, b"")],
        producer_id=ProducerId(producer_id) if is_idempotent else NO_PRODUCER_ID,
        producer_epoch=0 if is_idempotent else NO_PRODUCER_EPOCH,
        base_sequence=sequence if is_idempotent else NO_SEQUENCE,
    )


def records_in(data: bytes | memoryview) -> list[tuple[int, JudgedRecord]]:
    """Return (offset, record) of every complete batch in fetched bytes."""
    return [
        (header.base_offset, JudgedRecord(header.partition_leader_epoch, header.max_timestamp))
        for _, header in batches(memoryview(data), is_partial_end_allowed=True)
    ]
