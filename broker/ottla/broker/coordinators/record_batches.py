"""Encodes the records of a coordinator's events as record batches. Pure.

A log contains a batch completely or not at all, and may be truncated between any two batches. The
records of one event are therefore written in one batch. A part of an event, such as the removal of
an assignment without the removal of its member, would result in an invalid state.
"""

from collections.abc import Sequence
from functools import partial

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.model.ids import ProducerId
from ottla.wire.batch_builder import BatchBuilder

RECORD_OVERHEAD_BYTES = 128
"""Maximum number of bytes that a record batch adds to the key and value of a record, including the
batch header."""


def batches_of(
    writes: Sequence[list[CoordinatorRecord]],
    timestamp_ms: int,
    bytes_max: int,
    producer: tuple[ProducerId, int] | None = None,
) -> bytes:
    """Encode the records of a coordinator's events in as few record batches as possible, each of at
    most `bytes_max`. Returns the batches as one byte string.

    An event is split only if it exceeds the maximum size of a batch. `producer` (id and epoch) is
    the producer of the transaction to which the batches belong, or None.
    """
    done: list[bytes] = []
    build = BatchBuilder.build if producer is None else partial(_build_of, producer=producer)
    builder = BatchBuilder()
    for write in writes:
        size = 0
        for key, value in write:
            size += len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
        if builder.size_bytes + size <= bytes_max:
            for key, value in write:
                builder.append(timestamp_ms, key, value)
            continue
        if builder.record_count:
            done.append(build(builder))
            builder = BatchBuilder()
        for record in write:
            if builder.record_count and builder.size_bytes + _size_of(record) > bytes_max:
                done.append(build(builder))
                builder = BatchBuilder()
            builder.append(timestamp_ms, *record)
    done.append(build(builder))
    return b"".join(done)


def _build_of(builder: BatchBuilder, *, producer: tuple[ProducerId, int]) -> bytes:
    producer_id, epoch = producer
    return builder.build(producer_id=producer_id, producer_epoch=epoch, is_transactional=True)


def _size_of(record: CoordinatorRecord) -> int:
    key, value = record
    return len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
