"""Encodes many records of one timestamp, none of which has headers, as a batch holds them.

Pure.  Keyless ones are encoded without a step of Python for each: their parts are laid side by side
and joined, a few calls for a whole batch.
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
"""Offset deltas below these take 1, 2, 3, 4, 5 bytes."""


def encode_each(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], delta: int, stamp: bytes
) -> bytes:
    """Return records with keys or nulls; `stamp` is the varint of their timestamp delta."""
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


def encode_plain(
    values: Sequence[bytes | None], sizes: Sequence[int], delta: int, stamp: bytes
) -> bytes:
    """Return records without keys or nulls; `sizes` are those of the values."""
    found: list[bytes] = []
    first, end = 0, len(values)
    for width, bound in enumerate(WIDTH_BOUNDS, 1):
        count = min(end - first, bound - delta)
        if count > 0:
            frames, some = _Frames(stamp, width), sizes[first : first + count]
            parts: list[bytes | None] = [NO_HEADERS] * (5 * count)
            parts[0::5] = map(frames.__getitem__, some)
            parts[1::5] = _deltas(delta, count)
            parts[2::5] = map(frames.value_heads.__getitem__, some)
            parts[3::5] = values[first : first + count]
            found.append(b"".join(parts))  # type: ignore[arg-type]  # none is null here
            first += count
            delta += count
    return b"".join(found)


class _ValueHeads(dict[int, bytes]):
    """What stands between a record's offset and its value, by the value's size."""

    def __missing__(self, size: int) -> bytes:
        found = self[size] = NULL + varint(size)
        return found


class _Frames(dict[int, bytes]):
    """How a record begins, before its offset, by the size of its value."""

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
