"""What events decided, as batches.  Pure.

A batch is in a log whole or not at all, and a log may be cut between any two of them.  So what one
event decided goes into one batch: half of it, such as a member's assignment taken away and the
member still there, is a state that never was.
"""

from collections.abc import Sequence

from ottla.broker.groups.group_records import GroupRecord
from ottla.wire.batch_builder import BatchBuilder

RECORD_OVERHEAD_BYTES = 128
"""At most what a batch adds to a record's key and value, its own header included."""


def batches_of(writes: Sequence[list[GroupRecord]], timestamp_ms: int, bytes_max: int) -> bytes:
    """Return the records in as few batches as can be, none of more than `bytes_max`.

    An event is parted only where it alone is more than a batch may hold.
    """
    done: list[bytes] = []
    builder = BatchBuilder()
    for write in writes:
        if builder.record_count and builder.size_bytes + sum(map(_size_of, write)) > bytes_max:
            done.append(builder.build())
            builder = BatchBuilder()
        for record in write:
            if builder.record_count and builder.size_bytes + _size_of(record) > bytes_max:
                done.append(builder.build())
                builder = BatchBuilder()
            builder.append(timestamp_ms, *record)
    done.append(builder.build())
    return b"".join(done)


def _size_of(record: GroupRecord) -> int:
    key, value = record
    return len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES
