"""What events decided, as batches.  Pure.

A batch is in a log whole or not at all, and a log may be cut between any two of them.  So what one
event decided goes into one batch: half of it, such as a member's assignment taken away and the
member still there, is a state that never was.
"""

from collections.abc import Sequence
from functools import partial

from ottla.broker.groups.group_records import GroupRecord
from ottla.model.ids import ProducerId
from ottla.wire.batch_builder import BatchBuilder

RECORD_OVERHEAD_BYTES = 128
"""At most what a batch adds to a record's key and value, its own header included."""


def batches_of(
    writes: Sequence[list[GroupRecord]],
    timestamp_ms: int,
    bytes_max: int,
    producer: tuple[ProducerId, int] | None = None,
) -> bytes:
    """Return the records in as few batches as can be, none of more than `bytes_max`.

    An event is parted only where it alone is more than a batch may hold.  With a `producer`, its id
    and epoch, they belong to its transaction.
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


def _size_of(record: GroupRecord) -> int:
    key, value = record
    return len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
