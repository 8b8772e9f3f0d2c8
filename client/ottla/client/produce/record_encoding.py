"""Encoding of many records that have the same timestamp and no headers.

Pure. Records without keys are encoded in bulk. The values and the encoded fields around them are
interleaved in one list, which is joined with a few calls per batch. No Python code runs for each
record.
"""

from collections.abc import Sequence
from functools import lru_cache

from ottla.wire.batch_builder import (
    NO_ATTRIBUTES,
    NO_HEADERS,
    NULL,
    VARINT_COUNT,
    VARINTS,
    varint,
)

WIDTH_BOUNDS = (64, 8_192, 1 << 20, 1 << 27, 1 << 34)
"""Upper bounds, exclusive, of the offset deltas that are encoded in 1, 2, 3, 4 and 5 bytes."""
HEADS_KEPT_MAX = 8
"""Number of pairs of a value's size and a timestamp delta for which encoded fields of records are
kept. Each pair takes up to 120 KB. Fast producers of records of one size use one to three pairs, so
a larger number mostly uses memory."""


def encode_each(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], delta: int, stamp: bytes
) -> bytes:
    """Encode records that have keys or null values, one by one.

    `delta` is the offset delta of the first record. `stamp` is the encoded timestamp delta, which
    is the same for all records.
    """
    found: list[bytes] = []
    for delta_now, (key, value) in enumerate(zip(keys, values, strict=True), delta):
        record = b"".join(
            (
                NO_ATTRIBUTES,
                stamp,
                varint(delta_now),
                NULL if key is None else varint(len(key)),
                key or b"",
                NULL if value is None else varint(len(value)),
                value or b"",
                NO_HEADERS,
            )
        )
        found.append(varint(len(record)))
        found.append(record)
    return b"".join(found)


def encode_plain(values: Sequence[bytes | None], delta: int, stamp: bytes) -> bytes | None:
    """Encode records without keys. Returns None if a value is null, because `encode_each` is needed
    for such records.

    `delta` and `stamp` are those of `encode_each`.
    """
    try:
        sizes = set(map(len, values))  # type: ignore[arg-type]  # the length of None is refused
    except TypeError:
        return None
    if len(sizes) == 1 and delta + len(values) <= VARINT_COUNT:
        return _joined_alike(values, sizes.pop(), delta, stamp)
    parts: list[bytes | None] = []
    first, end = 0, len(values)
    for width, bound in enumerate(WIDTH_BOUNDS, 1):
        count = min(end - first, bound - delta)
        if count > 0:
            frames, deltas = _Frames(stamp, width), _deltas(delta, count)
            parts += _parts(frames, deltas, values[first : first + count])
            first += count
            delta += count
    return b"".join(parts)  # type: ignore[arg-type]  # no value is null here


def _joined_alike(values: Sequence[bytes | None], size: int, delta: int, stamp: bytes) -> bytes:
    """Encode records whose values all have the same size, in bytes."""
    end = delta + len(values)
    known = _known_heads(size, stamp)
    known += [b""] * (end - len(known))
    heads = known[delta:end]
    if not all(heads):
        heads = known[delta:end] = _heads(size, delta, end, stamp)
    # The end of a record and the start of the next one are one part.
    parts: list[bytes | None] = [NO_HEADERS] * (2 * len(values) + 1)
    parts[0:-1:2] = heads
    parts[0] = heads[0][len(NO_HEADERS) :]
    parts[1::2] = values
    return b"".join(parts)  # type: ignore[arg-type]  # no value is null here


@lru_cache(HEADS_KEPT_MAX)
def _known_heads(size: int, stamp: bytes) -> list[bytes]:
    """Return the kept heads of records by their offset delta. An element is empty until a record
    with that delta is encoded. The caller extends the list."""
    return []


def _heads(size: int, delta: int, end: int, stamp: bytes) -> list[bytes]:
    """Return the encoded fields from the last field of a record to the value of the next record,
    for records with the offset deltas [delta, end) and values of `size` bytes."""
    start, value_head = NO_ATTRIBUTES + stamp, NULL + varint(size)
    found: list[bytes] = []
    for fields in [start + encoded + value_head for encoded in VARINTS[delta:end]]:
        length = len(fields) + size + len(NO_HEADERS)
        found.append(NO_HEADERS + varint(length) + fields)
    return found


def _parts(
    frames: "_Frames", deltas: Sequence[bytes], values: Sequence[bytes | None]
) -> list[bytes | None]:
    """Return the parts of encoded records whose values have several sizes."""
    sizes: list[int] = list(map(len, values))  # type: ignore[arg-type]  # no value is null here
    parts: list[bytes | None] = [NO_HEADERS] * (5 * len(sizes))
    parts[0::5] = map(frames.__getitem__, sizes)
    parts[1::5] = deltas
    parts[2::5] = map(frames.value_heads.__getitem__, sizes)
    parts[3::5] = values
    return parts


class _ValueHeads(dict[int, bytes]):
    """Encoded fields between the offset and the value of a record, by the size of the value in
    bytes."""

    def __missing__(self, size: int) -> bytes:
        found = self[size] = NULL + varint(size)
        return found


class _Frames(dict[int, bytes]):
    """Encoded fields before the offset of a record, by the size of its value in bytes."""

    def __init__(self, stamp: bytes, delta_width: int) -> None:
        super().__init__()
        self.value_heads = _ValueHeads()
        self._start = NO_ATTRIBUTES + stamp
        self._other_bytes = len(self._start) + delta_width + len(NO_HEADERS)

    def __missing__(self, size: int) -> bytes:
        length = self._other_bytes + len(self.value_heads[size]) + size
        found = self[size] = varint(length) + self._start
        return found


def _deltas(first: int, count: int) -> Sequence[bytes]:
    if first + count <= VARINT_COUNT:
        return VARINTS[first : first + count]
    return [varint(delta) for delta in range(first, first + count)]
