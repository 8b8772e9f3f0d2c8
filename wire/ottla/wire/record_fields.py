"""Positions of the fields of many records in one buffer, found by numpy without an object per
record.

Pure. The end of a record is known only from its length field, so the boundaries of records are
found one after another, or many at once if records have the same size. The fields of all records of
all batches are then found together, with a few array operations per field.

This fast path never returns a wrong result. It returns None for data that it does not support, such
as a varint of ten bytes, 65 headers in a record, or corrupt data. `ottla.wire.records`, which is
slow and exact, then reads the batch or reports its error. Nothing outside of the buffer is read:
positions beyond its end are set to its end. A record with such a position is detected, because it
then does not end at the position given by its length.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.model.errors import CorruptDataError
from ottla.model.limits import INT64_MAX
from ottla.wire.batch import Buffer, TimestampType
from ottla.wire.batch_builder import varint
from ottla.wire.record_layouts import (
    LAYOUT_ROWS_MAX,
    WIDTHS,
    Bytes,
    Ints,
    ValueRun,
    find_alike,
    layout_of,
    short_step,
)
from ottla.wire.records import RECORD_BYTES_MIN, Body

RUN_COUNT_MIN = 32
"""Minimum length of a run (consecutive records of one size) for which a search for runs pays off.
Records of shorter runs are found one by one."""
RUN_PROBE_COUNT = 16
"""Number of records that are compared in the first step of a search for a run (consecutive records
of one size). Each further step compares eight times the previous number. Records of varying sizes
therefore cost only one small step."""
SINGLES_COUNT = 256
"""Number of records that are found one by one before the next search for a run (consecutive records
of one size)."""
HEADERS_MAX = 64
"""Maximum number of headers per record that the fast path supports. Each additional header costs
one more pass over all records."""
TIMESTAMP_SAFE_MAX = 1 << 62
"""Largest base timestamp of a batch, in ms since 1970, to which any delta can be added within 64
bits."""
VARINT_SHIFT_MAX = 56
"""Number of bits by which the ninth byte of a varint is shifted to the left. The nine bytes have 63
bits in total, so that the number fits into 64 bits with its sign."""

LENGTH_BYTES_MAX = 5

LOOK_COUNT = 3
"""Number of consecutive records that must have the same size before a search for a run of such
records begins."""


@cache
def _steps() -> list[int]:
    """Return a table of the total size of a record in bytes, by the record's first two bytes. It
    contains 0 where these bytes do not determine the size.

    The table is created at first use, because that takes milliseconds.
    """
    pairs = np.arange(1 << 16)
    first, second = pairs & 0xFF, pairs >> 8
    is_even = first & 1 == 0
    is_short = (first < 0x80) & is_even
    is_long = (first >= 0x80) & is_even & (second > 0) & (second < 0x80)
    long_steps = ((first & 0x7F | second << 7) >> 1) + 2
    steps: list[int] = np.where(
        is_short, (first >> 1) + 1, np.where(is_long, long_steps, 0)
    ).tolist()
    return steps


ZIGZAG = np.array([(byte >> 1) ^ -(byte & 1) for byte in range(256)], dtype=np.int64)
"""Value of each one-byte zigzag varint, by the unsigned value of the byte."""


class HeaderFields(NamedTuple):
    """Positions of the headers of many records. The headers of record i have the indexes from
    `starts[i]` to `starts[i + 1]`."""

    starts: Ints
    key_at: Ints
    key_bytes: Ints
    value_at: Ints
    value_bytes: Ints
    """Size in bytes of the value of each record header, or -1 for null."""


class Fields(NamedTuple):
    """Positions and values of the fields of many records, one row per record, in order."""

    record_at: Ints
    """Position in the buffer of the length field of each record."""
    record_end: Ints
    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: NDArray[np.int32]
    key_at: Ints
    key_bytes: Ints
    """Size in bytes of each record's key, or -1 for null."""
    value_at: Ints
    value_bytes: Ints
    """Size in bytes of each record's value, or -1 for null."""
    headers: HeaderFields | None
    """Positions of the records' headers, or None if no record has headers."""
    value_runs: list[ValueRun] | None = None
    """Values of each batch, or None if structs do not read the values."""


def read_fields(data: Buffer, bodies: Sequence[Body]) -> Fields | None:
    """Return the fields of all records of several batches. `bodies` are the records of each batch,
    which are adjacent in `data`.

    Returns None if the fast path does not support the data.
    """
    view = np.frombuffer(data, dtype=np.uint8)
    counts = np.array([body.header.record_count for body in bodies], dtype=np.int64)
    if counts.min(initial=0) < 0:
        return None
    if any(body.header.record_count * RECORD_BYTES_MIN > body.size_bytes for body in bodies):
        return None
    if (fields := _alike_fields(view, bodies, counts)) is not None:
        return fields
    found = _plain_boundaries(view, data, bodies, counts) or _boundaries(view, data, bodies, counts)
    if found is None:
        return None
    heads, at, ends = found
    size = len(view)
    at += 1  # skip the attributes, which are unused
    if (stamp := _varints(view, at)) is None or (delta := _varints(view, stamp[1])) is None:
        return None
    if (key := _varints(view, delta[1])) is None or not _are_lengths(key[0], size):
        return None
    key_bytes, key_at = key
    if (value := _varints(view, key_at + np.maximum(key_bytes, 0))) is None:
        return None
    value_bytes, value_at = value
    if not _are_lengths(value_bytes, size):
        return None
    if (count := _varints(view, value_at + np.maximum(value_bytes, 0))) is None:
        return None
    headers = None
    if count[0].any():
        headers = _read_headers(view, *count, ends)
        if headers is None:
            return None
    elif not np.array_equal(count[1], ends):
        return None
    offsets = _offsets(bodies, counts, delta[0])
    timestamps = _timestamps(bodies, counts, stamp[0])
    if offsets is None or timestamps is None:
        return None
    return Fields(
        heads,
        ends,
        offsets,
        timestamps,
        _types(bodies, counts),
        key_at,
        key_bytes,
        value_at,
        value_bytes,
        headers,
    )


def _alike_fields(view: Bytes, bodies: Sequence[Body], counts: Ints) -> Fields | None:
    """Return the fields of records that differ only in their contents, or None if the records
    differ in other ways.

    This needs a third of the array operations of the general case.
    """
    found = find_alike(view, bodies)
    if found is None:
        return None
    headers = [body.header for body in bodies]
    if any(header.record_count - 1 > header.last_offset_delta for header in headers):
        return None
    bases = _base_offsets(bodies, counts)
    timestamps = _timestamps(bodies, counts, ZIGZAG.take(found.stamps))
    if bases is None or timestamps is None:
        return None
    offsets = bases + found.deltas
    return Fields(
        found.heads,
        found.ends,
        offsets,
        timestamps,
        _types(bodies, counts),
        found.key_at,
        np.full(len(offsets), found.key_bytes),
        found.value_at,
        np.full(len(offsets), found.value_bytes),
        None,
        found.value_runs,
    )


Boundaries = tuple[Ints, Ints, Ints]
"""Boundaries of the records in a buffer. For each record: the positions of its length field, of the
byte after that field, and of its end."""


def _plain_boundaries(
    view: Bytes, data: Buffer, bodies: Sequence[Body], counts: Ints
) -> Boundaries | None:
    """Return the boundaries of records whose sizes are equal except for their offset deltas, or
    None if the sizes differ in other ways.

    In each batch, the boundaries are derived from the size of the first record, and then compared
    with the length field of every record. No other boundaries are possible if every length field
    leads to the next record, and the last length field to the end of the batch.
    """
    heads = np.empty(int(counts.sum()), dtype=np.int64)
    done = 0
    for body in bodies:
        count = body.header.record_count
        if not count:
            return None
        step = short_step(data[body.start], data[body.start + 1])
        layout = (
            layout_of(count, body.size_bytes, step) if step and count <= LAYOUT_ROWS_MAX else None
        )
        if layout is None:
            return None
        np.add(layout, body.start, out=heads[done : done + count])
        done += count
    ends = _ends(heads, bodies, counts)
    lengths = _varints(view, heads)
    if lengths is None or not bool((lengths[0] + lengths[1] == ends).all()):
        return None
    return heads, lengths[1], ends


def _ends(heads: Ints, bodies: Sequence[Body], counts: Ints) -> Ints:
    """Return the end position of each record: the start of the next record in its batch, or the end
    of the batch. `heads` are the start positions."""
    ends = np.empty_like(heads)
    ends[:-1] = heads[1:]
    last = np.cumsum(counts)[counts > 0] - 1
    ends[last] = [body.end for body in bodies if body.header.record_count]
    return ends


def _boundaries(
    view: Bytes, data: Buffer, bodies: Sequence[Body], counts: Ints
) -> Boundaries | None:
    """Return the boundaries of all records, which are found one by one or in runs of records of one
    size. Returns None if the fast path does not support the data."""
    heads = np.empty(int(counts.sum()), dtype=np.int64)
    done = 0
    for body in bodies:
        count = body.header.record_count
        if not _fill_heads(view, data, body, heads[done : done + count]):
            return None
        done += count
    ends = _ends(heads, bodies, counts)
    return heads, _behind_length(heads, ends), ends


def _fill_heads(view: Bytes, data: Buffer, body: Body, heads: Ints) -> bool:
    """Store the start position of each record of a batch in `heads`. Returns False if the records
    do not end with the batch."""
    at, done, count = body.start, 0, len(heads)
    try:
        while done < count:
            singles = min(count - done, SINGLES_COUNT)
            if count - done >= RUN_COUNT_MIN and _look_alike(data, at):
                run, step = _run(view, data, at, body.end, count - done)
                if run > 1:
                    heads[done : done + run] = np.arange(at, at + run * step, step)
                    done += run
                    at += run * step
                if run >= RUN_COUNT_MIN:
                    continue
                singles = min(count - done, SINGLES_COUNT)
            found = _walk(data, at, singles)
            at = found.pop()
            heads[done : done + singles] = found
            done += singles
            if at > body.end:
                return False
    except (CorruptDataError, IndexError):
        return False
    return at == body.end


def _look_alike(data: Buffer, at: int) -> bool:
    """Return whether the first records from position `at` on seem to have the same size."""
    step = _step(data, at)
    start = data[at : at + 2]
    return all(data[at + n * step : at + n * step + 2] == start for n in range(1, LOOK_COUNT))


def _walk(data: Buffer, at: int, count: int) -> list[int]:
    """Return the start positions of `count` consecutive records from position `at` on, and the end
    of the last record."""
    steps = _steps()
    found: list[int] = []
    add = found.append
    for _ in range(count):
        add(at)
        at += steps[data[at] | data[at + 1] << 8] or _step(data, at)
    add(at)
    return found


def _step(data: Buffer, at: int) -> int:
    """Return the encoded size in bytes of the record at position `at`, including its length
    field."""
    number = shift = 0
    for behind in range(at, at + LENGTH_BYTES_MAX):
        byte = data[behind]
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if number & 1 or varint(number >> 1) != data[at : behind + 1]:
        raise CorruptDataError(f"record at {at}: no length is written like that")
    return behind + 1 - at + (number >> 1)


def _run(view: Bytes, data: Buffer, at: int, end: int, count: int) -> tuple[int, int]:
    """Return the number of consecutive records, starting at position `at`, that have the same
    length as the first record, and the size in bytes of each."""
    step = _step(data, at)
    width = 1 + sum(step >= least for least in WIDTHS)
    most = min(count, (end - at) // step)
    probe, run = RUN_PROBE_COUNT, 1
    while run < most:
        upto = min(probe, most)
        for column in range(width):
            first = at + run * step + column
            found = view[first : at + upto * step : step] == data[at + column]
            if not found.all():
                upto = run + int(found.argmin())
        if upto < min(probe, most):
            return upto, step
        run, probe = upto, 8 * probe
    return run, step


def _behind_length(heads: Ints, ends: Ints) -> Ints:
    """Return the position after the length field of each record that starts in `heads` and ends in
    `ends`. Lengths are encoded in the fewest possible bytes."""
    sizes = ends - heads
    at = heads + 1
    largest = int(sizes.max(initial=0))
    for least in WIDTHS:
        if largest < least:
            break
        at += sizes >= least
    return at


def _varints(view: Bytes, at: Ints) -> tuple[Ints, Ints] | None:
    """Decode the zigzag varints at the positions `at`. Returns their values and the positions of
    their ends, or None if the fast path does not support one of them."""
    first = view.take(at, mode="clip")
    is_wide = first >= 0x80
    if not is_wide.any():
        return ZIGZAG.take(first), at + 1
    second = view.take(at + 1, mode="clip")
    numbers = (first & 0x7F).astype(np.int64)
    numbers |= np.where(is_wide, second & 0x7F, 0).astype(np.int64) << 7
    behind = at + 1
    behind += is_wide
    rest = np.flatnonzero(is_wide & (second >= 0x80))
    shift = 14
    while rest.size:
        if shift > VARINT_SHIFT_MAX:
            return None
        byte = view.take(behind[rest], mode="clip")
        numbers[rest] |= (byte & 0x7F).astype(np.int64) << shift
        behind[rest] += 1
        rest = rest[byte >= 0x80]
        shift += 7
    return (numbers >> 1) ^ -(numbers & 1), behind


def _are_lengths(found: Ints, size: int) -> bool:
    return bool(found.min(initial=0) >= -1 and found.max(initial=0) <= size)


def _offsets(bodies: Sequence[Body], counts: Ints, deltas: Ints) -> Ints | None:
    bases = _base_offsets(bodies, counts)
    if bases is None:
        return None
    last = [body.header.last_offset_delta for body in bodies]
    if deltas.min(initial=0) < 0 or (deltas > np.array(last, dtype=np.int64).repeat(counts)).any():
        return None
    return bases + deltas


def _base_offsets(bodies: Sequence[Body], counts: Ints) -> Ints | None:
    """Return the base offset of each record's batch, one row per record. Returns None if offsets do
    not fit into 64 bits."""
    headers = [body.header for body in bodies]
    if any(h.base_offset < 0 or h.last_offset > INT64_MAX for h in headers):
        return None
    return np.array([h.base_offset for h in headers], dtype=np.int64).repeat(counts)


def _timestamps(bodies: Sequence[Body], counts: Ints, deltas: Ints) -> Ints | None:
    bases: list[int] = []
    has_append_time = False
    for body in bodies:
        header = body.header
        if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
            bases.append(header.max_timestamp)
            has_append_time = True
        elif abs(header.base_timestamp) > TIMESTAMP_SAFE_MAX:
            return None
        else:
            bases.append(header.base_timestamp)
    if has_append_time:
        own = [body.header.timestamp_type is TimestampType.CREATE_TIME for body in bodies]
        deltas = np.where(np.repeat(np.array(own), counts), deltas, 0)
    return np.repeat(np.array(bases, dtype=np.int64), counts) + deltas


def _types(bodies: Sequence[Body], counts: Ints) -> NDArray[np.int32]:
    types = [int(body.header.timestamp_type) for body in bodies]
    return np.array(types, dtype=np.int32).repeat(counts)


def _read_headers(view: Bytes, counts: Ints, at: Ints, ends: Ints) -> HeaderFields | None:
    """Return the positions of the headers of all records, or None if the fast path does not support
    them. The names of the headers are not validated."""
    most = int(counts.max())
    if counts.min() < 0 or most > HEADERS_MAX:
        return None
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    found = HeaderFields(starts, *(np.empty(int(starts[-1]), dtype=np.int64) for _ in range(4)))
    at = at.copy()
    for index in range(most):
        rows = np.flatnonzero(counts > index)
        slots = starts[rows] + index
        if (key := _varints(view, at[rows])) is None or not _are_lengths(key[0], len(view)):
            return None
        if key[0].min() < 0:
            return None
        found.key_bytes[slots], found.key_at[slots] = key
        if (value := _varints(view, key[1] + key[0])) is None:
            return None
        if not _are_lengths(value[0], len(view)):
            return None
        found.value_bytes[slots], found.value_at[slots] = value
        at[rows] = value[1] + np.maximum(value[0], 0)
    return found if np.array_equal(at, ends) else None
