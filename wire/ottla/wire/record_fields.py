"""Where the fields of many records lie in one buffer, found with numpy: no Python object a record.

Pure.  A record's end is known only from its length, so the boundaries are found one after the
other, or many at once where records are of one size; the fields of all records of all batches are
then found together, a few array operations a field.

This is the fast way, and it vouches for what it says: it returns None for whatever it is not sure
of (a varint of ten bytes, 65 headers in a record, bytes that lie), and `ottla.wire.records`, which
is slow and exact, then reads the batch or says what is wrong with it.  Nothing outside of the
buffer is read: positions beyond its end are clipped, and the record they belong to cannot end where
its length says.
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
    find_alike,
    layout_of,
    short_step,
)
from ottla.wire.records import RECORD_BYTES_MIN, Body

RUN_COUNT_MIN = 32
"""Records of one size in a row that pay for looking for them; fewer are found one by one."""
RUN_PROBE_COUNT = 16
"""How many are compared at first, eightfold from then on: records of many sizes cost one probe."""
SINGLES_COUNT = 256
"""Records found one by one before records of one size are looked for again."""
HEADERS_MAX = 64
"""Headers of one record that are found together; each more is one more pass over all records."""
TIMESTAMP_SAFE_MAX = 1 << 62
"""A batch's base timestamp up to this size plus any delta stays within 64 bits."""
VARINT_SHIFT_MAX = 56
"""Nine bytes of seven bits: what surely fits into 64 bits with its sign."""

LENGTH_BYTES_MAX = 5

LOOK_COUNT = 3
"""Records in a row that must be of one size before more such are looked for."""


@cache
def _steps() -> list[int]:
    """Return by the first two bytes of a record its whole size, 0 where they do not tell it.

    Made where it is needed first, since that takes milliseconds.
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
"""What a varint of one byte says."""


class HeaderFields(NamedTuple):
    """The headers of all records: those of record i are at `starts[i]` to `starts[i + 1]`."""

    starts: Ints
    key_at: Ints
    key_bytes: Ints
    value_at: Ints
    value_bytes: Ints
    """-1 for null."""


class Fields(NamedTuple):
    """One row a record, in order."""

    record_at: Ints
    """Where its length begins."""
    record_end: Ints
    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: NDArray[np.int32]
    key_at: Ints
    key_bytes: Ints
    """-1 for null."""
    value_at: Ints
    value_bytes: Ints
    """-1 for null."""
    headers: HeaderFields | None
    """None where no record has any."""


def read_fields(data: Buffer, bodies: Sequence[Body]) -> Fields | None:
    """Return the fields of all records of `bodies`, which lie in `data` one behind the other.

    None where the fast way cannot vouch for the bytes.
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
    at += 1  # its attributes, unused
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
    """Return the fields of records that are alike in all but what they say; None if they are not.

    A third of the array operations of what finds other records.
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
    )


Boundaries = tuple[Ints, Ints, Ints]
"""Where each record's length begins, where it goes on behind its length, and where it ends."""


def _plain_boundaries(
    view: Bytes, data: Buffer, bodies: Sequence[Body], counts: Ints
) -> Boundaries | None:
    """Return the boundaries of records that are alike but for their offsets; None if they are not.

    They are guessed for all batches, by the size of each one's first record, and then compared with
    the length of every record: where all lengths lead from one record to the next, and the last
    one to its batch's end, no other boundaries are possible.
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
    """Return where each record ends: where the next one of its batch begins, or its batch ends."""
    ends = np.empty_like(heads)
    ends[:-1] = heads[1:]
    last = np.cumsum(counts)[counts > 0] - 1
    ends[last] = [body.end for body in bodies if body.header.record_count]
    return ends


def _boundaries(
    view: Bytes, data: Buffer, bodies: Sequence[Body], counts: Ints
) -> Boundaries | None:
    """Return the boundaries of any records, found one after the other or by runs of one size."""
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
    """Fill in where each record of a batch begins; return whether they end where the batch does."""
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
    """Return whether the first records from `at` on seem to be of one size."""
    step = _step(data, at)
    start = data[at : at + 2]
    return all(data[at + n * step : at + n * step + 2] == start for n in range(1, LOOK_COUNT))


def _walk(data: Buffer, at: int, count: int) -> list[int]:
    """Return where so many records begin, and where the last of them ends."""
    steps = _steps()
    found: list[int] = []
    add = found.append
    for _ in range(count):
        add(at)
        at += steps[data[at] | data[at + 1] << 8] or _step(data, at)
    add(at)
    return found


def _step(data: Buffer, at: int) -> int:
    """Return the size of the record at `at`, its length field included."""
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
    """Return how many records from `at` on have the same length as the first, and their size."""
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
    """Return where each record goes on behind its length; lengths are written in fewest bytes."""
    sizes = ends - heads
    at = heads + 1
    largest = int(sizes.max(initial=0))
    for least in WIDTHS:
        if largest < least:
            break
        at += sizes >= least
    return at


def _varints(view: Bytes, at: Ints) -> tuple[Ints, Ints] | None:
    """Return the zigzag varints at these positions and where each ends."""
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
    """Return each record's base offset; None where offsets do not fit in 64 bits."""
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
    """Return where the headers of all records lie; their names are not looked at."""
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
