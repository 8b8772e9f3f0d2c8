"""Encoding of many records that have the same timestamp and no headers.

Pure. Records without keys are encoded in bulk. The values and the encoded fields around them are
interleaved in one list, which is joined with a few calls per batch. No Python code runs for each
record.
"""

from collections.abc import Sequence

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
    for such records."""
    try:
        sizes = list(map(len, values))  # type: ignore[arg-type]  # the length of None is refused
    except TypeError:
        return None
    found: list[bytes] = []
    first, end = 0, len(values)
    for width, bound in enumerate(WIDTH_BOUNDS, 1):
        count = min(end - first, bound - delta)
        if count > 0:
            frames, deltas = _Frames(stamp, width), _deltas(delta, count)
            found.append(
                _joined_records(
                    frames, deltas, values[first : first + count], sizes[first : first + count]
                )
            )
            first += count
            delta += count
    return found[0] if len(found) == 1 else b"".join(found)


def _joined_records(
    frames: "_Frames",
    deltas: Sequence[bytes],
    values: Sequence[bytes | None],
    sizes: Sequence[int],
) -> bytes:
    count, size = len(values), sizes[0]
    if min(sizes) == max(sizes):
        # All parts but offset and value are equal, so the end of one record and the start of the
        # next are one part.
        parts: list[bytes | None] = [NO_HEADERS + frames[size]] * (4 * count + 1)
        parts[0] = frames[size]
        parts[1::4] = deltas
        parts[2::4] = [frames.value_heads[size]] * count
        parts[3::4] = values
        parts[-1] = NO_HEADERS
    else:
        parts = [NO_HEADERS] * (5 * count)
        parts[0::5] = map(frames.__getitem__, sizes)
        parts[1::5] = deltas
        parts[2::5] = map(frames.value_heads.__getitem__, sizes)
        parts[3::5] = values
    return b"".join(parts)  # type: ignore[arg-type]  # no value is null here


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
