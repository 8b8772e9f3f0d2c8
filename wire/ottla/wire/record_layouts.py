"""Layouts of batches whose records all have one size: the positions of all fields of the records.
They are derived from the record count, the size of the batch and its first record.

Pure. In most batches all records have the same size, and their structure differs only in their
deltas. A layout describes such a batch. To determine whether a batch has a layout, all its records
are compared with the layout. A few array operations compare all batches together. Invariant:
NothingIsAssumed (every byte that encodes a length is compared).
"""

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.wire.batch_builder import varint
from ottla.wire.records import NULL_LENGTH, Body

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

LAYOUTS_KEPT_MAX = 16
"""Number of layouts (positions of the fields of all records in a batch) that are kept for later
batches. Most batches of a partition have one of a few layouts, so a larger number only uses
memory."""
LAYOUT_ROWS_MAX = 16_384
"""Maximum number of records in a batch for which `layout_of` computes the start positions of the
records. It limits the memory of all kept layouts to 2 MiB."""
TABLE_ROWS_MAX = 4_096
"""Maximum number of records in a batch for which a `RecordLayout` (the positions of all fields) is
computed. It limits the memory of the kept layouts to 4.5 MiB."""
DELTA_BOUNDS = (1 << 6, 1 << 13, 1 << 20)
"""Bounds of a record's offset delta: below these three numbers it is encoded in 1, 2 and 3
bytes."""
WIDTHS = ((1 << 6) + 1, (1 << 13) + 2, (1 << 20) + 3, (1 << 27) + 4)
"""Sizes in bytes of a record from which its length field has 2, 3, 4 and 5 bytes. The size of a
record includes the length field."""

HEAD_BYTES = 8
"""Number of bytes at the start of a record that are compared first, when a batch is compared with a
known layout. These bytes include the length of the record and the length of its key."""
VALUE_HEAD_BYTES = 4
"""Number of bytes that are compared to check the size of a record's value: its encoded length,
which precedes the value."""
VALUES_TOGETHER_BYTES_MAX = 1 << 20
"""Maximum size in bytes of all values of a batch that one struct reads. A reader may need only some
of the values, so a larger number may use more memory for nothing."""
VALUE_BYTES_MIN = 2
"""Minimum size in bytes of the values of records for which a `RecordLayout` is computed. A smaller
value may be null, or may end less than `VALUE_HEAD_BYTES` before the end of the buffer."""
HEAD_AT = 0
END_AT = 1
KEY_AT = 2
VALUE_HEAD_AT = 3
VALUE_AT = 4
PLACES_COUNT = 5
"""Number of rows of a `RecordLayout` table that contain positions of fields. They precede the rows
of other properties."""
DELTA = 5
EXPECTED = 6
MASK = 7
SHIFT = 8
ROWS_COUNT = 9


class RecordLayout:
    """Positions of the fields of all records of a batch. All keys have the same size, and all
    values have the same size."""

    __slots__ = (
        "_reader",
        "_was_used",
        "key_bytes",
        "table",
        "value_bytes",
        "value_head",
        "value_mask",
    )

    def __init__(self, table: Ints, key_bytes: int, value_bytes: int, value_head: bytes) -> None:
        self.table = table
        """Known properties of the records, with one column per record. The rows are: positions
        within the batch's records, the offset delta, the record's first bytes as a number, the mask
        of the bits that are compared, and the shift of the timestamp delta in bits."""
        self.key_bytes = key_bytes
        self.value_bytes = value_bytes
        self.value_head = int.from_bytes(value_head, "little")
        """The encoded length of each record's value, as a number of `VALUE_HEAD_BYTES` bytes."""
        self.value_mask = (1 << 8 * len(value_head)) - 1
        self._reader: Struct | None = None
        self._was_used = False

    def value_reader(self) -> Struct | None:
        """Return a struct that reads the values of all records, from the first value on. Returns
        None at the first call, and if the values are large.

        The struct needs two thirds of numpy's time, because it does not copy the values twice, but
        its creation takes three times as long as it saves. It is therefore created when a second
        batch has the layout.
        """
        size = self.value_bytes
        is_small = size * self.table.shape[1] <= VALUES_TOGETHER_BYTES_MAX
        if self._reader is None and self._was_used and is_small:
            skipped = np.diff(self.table[VALUE_AT]) - size
            self._reader = Struct(
                "".join([f"{size}s", *(f"{gap}x{size}s" for gap in skipped.tolist())])
            )
        self._was_used = True
        return self._reader


class ValueRun:
    """Values of the records of one batch in a buffer, and the struct that reads them."""

    __slots__ = ("end_row", "first_row", "reader", "value_at")

    def __init__(self, first_row: int, end_row: int, value_at: int, reader: Struct) -> None:
        self.first_row = first_row
        self.end_row = end_row
        self.value_at = value_at
        """Position of the first value in the buffer."""
        self.reader = reader


class AlikeRecords(NamedTuple):
    """Positions of the fields of records of one size, one row per record."""

    heads: Ints
    ends: Ints
    deltas: Ints
    stamps: Ints
    """Encoded timestamp delta of each record, one byte each."""
    key_at: Ints
    value_at: Ints
    key_bytes: int
    value_bytes: int
    value_runs: list[ValueRun] | None
    """Values of each batch.  None if any batch has no struct that reads its values."""


def short_step(first: int, second: int) -> int:
    """Return the size in bytes of a record by its first two bytes, or 0 if these bytes do not
    determine the size."""
    if first & 1:
        return 0
    if first < 0x80:
        return (first >> 1) + 1
    return ((first & 0x7F | second << 7) >> 1) + 2 if 0 < second < 0x80 else 0


@lru_cache(LAYOUTS_KEPT_MAX)
def layout_of(count: int, size_bytes: int, step: int) -> Ints | None:
    """Return the start positions of records whose structure differs only in offset deltas that
    increase by one.

    `step` is the size of the first record. Returns None if such records would not end at the end of
    the batch.
    """
    heads = np.empty(count, dtype=np.int64)
    length = step - (1 if step < WIDTHS[0] else 2)
    at = done = 0
    for bound in DELTA_BOUNDS:
        some = min(count, bound) - done
        if some <= 0:
            break
        size = length + len(varint(length))
        heads[done : done + some] = np.arange(at, at + some * size, size)
        at += some * size
        done += some
        length += 1  # later offset deltas have one byte more
    heads.flags.writeable = False
    return heads if at == size_bytes else None


@lru_cache(LAYOUTS_KEPT_MAX)
def record_layout(count: int, size_bytes: int, step: int, key_length: int) -> RecordLayout | None:
    """Return the positions of the fields of the records whose start positions `layout_of` returns,
    if the records also have no headers and small timestamp deltas.

    `key_length` is the byte with the encoded size of the key. Returns None if there is no such
    layout.
    """
    heads = layout_of(count, size_bytes, step)
    key_bytes = -1 if key_length == NULL_LENGTH else key_length >> 1
    if heads is None or key_length >= 0x80 or (key_length & 1 and key_bytes >= 0):
        return None
    length = step - (1 if step < WIDTHS[0] else 2)
    # The value follows attributes, both deltas and the key with its length; the count of headers
    # follows it.
    found = _value_of(length - 4 - max(key_bytes, 0) - 1)
    if found is None:
        return None
    value_bytes, value_head = found
    table = np.empty((ROWS_COUNT, count), dtype=np.int64)
    table[HEAD_AT] = heads
    table[END_AT, :-1] = heads[1:]
    table[END_AT, -1] = size_bytes
    table[DELTA] = np.arange(count)
    done = 0
    for width, bound in enumerate(DELTA_BOUNDS, 1):
        some = min(count, bound) - done
        if some <= 0:
            break
        part = table[:, done : done + some]
        prefix = varint(length)
        stamp_at = len(prefix) + 1
        key_length_at = stamp_at + 1 + width
        if key_length_at >= HEAD_BYTES:
            return None
        mask = (1 << 8 * len(prefix)) - 1 | 0x80 << 8 * stamp_at
        mask |= (1 << 8 * (width + 1)) - 1 << 8 * (stamp_at + 1)
        part[EXPECTED] = int.from_bytes(prefix, "little")
        part[EXPECTED] |= _varint_numbers(part[DELTA], width) << 8 * (stamp_at + 1)
        part[EXPECTED] |= _signed(key_length << 8 * key_length_at)
        part[MASK] = _signed(mask)
        part[SHIFT] = 8 * stamp_at
        part[KEY_AT] = part[HEAD_AT] + (key_length_at + 1)
        part[VALUE_HEAD_AT] = part[KEY_AT] + max(key_bytes, 0)
        part[VALUE_AT] = part[VALUE_HEAD_AT] + len(value_head)
        done += some
        length += 1
    table.flags.writeable = False
    return RecordLayout(table, key_bytes, value_bytes, value_head)


def find_alike(view: Bytes, bodies: Sequence[Body]) -> AlikeRecords | None:
    """Return the positions of the fields of all records in several batches, whose bodies are in
    `view`. Returns None if the structure of the records differs or is unusual.

    Batches may differ in their record counts, but not in the size of their first record, nor in the
    size of that record's key.
    """
    start = bodies[0].start
    if bodies[0].size_bytes < HEAD_BYTES:
        return None
    step = short_step(int(view[start]), int(view[start + 1]))
    if step < HEAD_BYTES:
        return None
    # The key follows the length, the attributes and two deltas of one byte each.
    key_length = int(view[start + (4 if step < WIDTHS[0] else 5)])
    layouts: list[RecordLayout] = []
    for body in bodies:
        count = body.header.record_count
        if not 0 < count <= TABLE_ROWS_MAX:
            return None
        layout = record_layout(count, body.end - body.start, step, key_length)
        if layout is None:
            return None
        layouts.append(layout)
    table = np.concatenate([layout.table for layout in layouts], axis=1)
    counts = [body.header.record_count for body in bodies]
    table[:PLACES_COUNT] += np.array([body.start for body in bodies], dtype=np.int64).repeat(counts)
    words = np.ndarray((len(view) - HEAD_BYTES + 1,), np.int64, view, 0, (1,))
    found = words[table[HEAD_AT]]
    stamps = found >> table[SHIFT]
    stamps &= 0x7F
    found ^= table[EXPECTED]
    found &= table[MASK]
    if found.any():
        return None
    first = layouts[0]
    words = np.ndarray((len(view) - VALUE_HEAD_BYTES + 1,), np.uint32, view, 0, (1,))
    lengths = words[table[VALUE_HEAD_AT]]
    lengths &= first.value_mask
    if (lengths != first.value_head).any() or view[table[END_AT] - 1].any():
        return None
    return AlikeRecords(
        table[HEAD_AT],
        table[END_AT],
        table[DELTA],
        stamps,
        table[KEY_AT],
        table[VALUE_AT],
        first.key_bytes,
        first.value_bytes,
        _value_runs(layouts, bodies),
    )


def _value_runs(layouts: Sequence[RecordLayout], bodies: Sequence[Body]) -> list[ValueRun] | None:
    """Return the values of each batch, or None if any batch has no struct that reads its values."""
    readers = [layout.value_reader() for layout in layouts]
    runs: list[ValueRun] = []
    row = 0
    for layout, body, reader in zip(layouts, bodies, readers, strict=True):
        if reader is None:
            return None
        end = row + body.header.record_count
        runs.append(ValueRun(row, end, body.start + int(layout.table[VALUE_AT, 0]), reader))
        row = end
    return runs


def _value_of(size_bytes: int) -> tuple[int, bytes] | None:
    """Return the size in bytes and the encoded length of a value whose total encoded size is
    `size_bytes`. Returns None if there is no such value."""
    for width in range(1, VALUE_HEAD_BYTES + 1):
        value_bytes = size_bytes - width
        if value_bytes >= VALUE_BYTES_MIN and len(head := varint(value_bytes)) == width:
            return value_bytes, head
    return None


def _varint_numbers(deltas: Ints, width: int) -> Ints:
    """Return the encoded varint of each number in `deltas` as one integer. All varints have `width`
    bytes."""
    zigzag = deltas << 1
    found = zigzag & 0x7F
    for place in range(1, width):
        found |= ((zigzag >> 7 * place) & 0x7F) << 8 * place
        found |= 0x80 << 8 * (place - 1)
    return found


def _signed(number: int) -> int:
    """Return an unsigned 64-bit number as numpy's int64."""
    return number - (1 << 64) if number >> 63 else number
