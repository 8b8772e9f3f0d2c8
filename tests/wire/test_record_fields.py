"""Fields of many records by arrays: what is vouched for is what the scan gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire import record_fields
from ottla.wire.batch import batches, parse_header
from ottla.wire.batch_builder import build_batch
from ottla.wire.record_fields import Fields, read_fields
from ottla.wire.records import Body, Record, scan


def alike(count: int, value_bytes: int) -> bytes:
    """Return a batch of records that differ in their offsets alone."""
    return build_batch([(5, None, b"v" * value_bytes)] * count)


def bodies_of(data: bytes) -> list[Body]:
    return [
        Body(header, data, at + BATCH_HEADER_BYTES, at + header.size_bytes)
        for at, header in batches(data)
    ]


def rows_of(data: bytes, fields: Fields) -> list[Record]:
    def cut(at: int, size: int) -> bytes | None:
        return None if size < 0 else data[at : at + size]

    assert fields.headers is None
    columns = (
        fields.offsets,
        fields.timestamps_ms,
        fields.key_at,
        fields.key_bytes,
        fields.value_at,
        fields.value_bytes,
    )
    return [
        Record(offset, stamp, cut(key_at, key_bytes), cut(value_at, value_bytes), ())
        for offset, stamp, key_at, key_bytes, value_at, value_bytes in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200, 8_191, 8_192, 8_200])
@pytest.mark.parametrize("value_bytes", [0, 1, 56, 57, 58, 59, 100, 8_182])
def test_records_that_are_alike_are_found_by_their_layout(count: int, value_bytes: int) -> None:
    if count > 200 and value_bytes > 100:
        count = 130
    data = alike(count, value_bytes) + alike(3, value_bytes)
    bodies = bodies_of(data)
    counts = np.array([body.header.record_count for body in bodies])
    view = np.frombuffer(data, dtype=np.uint8)

    found = record_fields._plain_boundaries(view, data, bodies, counts)
    obvious = record_fields._boundaries(view, data, bodies, counts)

    assert found is not None and obvious is not None
    for ours, theirs in zip(found, obvious, strict=True):
        assert np.array_equal(ours, theirs)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 140), st.integers(0, 70)), min_size=1, max_size=4),
    at=st.integers(0, 1 << 20),
    byte=st.integers(0, 255),
)
def test_one_wrong_byte_gives_what_the_scan_gives_or_nothing(
    sizes: list[tuple[int, int]], at: int, byte: int
) -> None:
    data = bytearray(b"".join(alike(count, value_bytes) for count, value_bytes in sizes))
    bodies = bodies_of(bytes(data))
    places = [place for body in bodies for place in range(body.start, body.end)]
    data[places[at % len(places)]] = byte
    lying = bytes(data)

    fields = read_fields(lying, [body._replace(data=lying) for body in bodies])

    if fields is None:
        return
    expected = [
        record
        for body in bodies
        for record in scan(lying, body.start - BATCH_HEADER_BYTES, body.header)
    ]
    if fields.headers is None:
        assert rows_of(lying, fields) == expected
    assert len(fields.offsets) == len(expected)


def test_the_size_of_the_first_record_alone_is_no_proof() -> None:
    # As long as three alike ones, and not alike.
    mixed = build_batch([(5, None, b"v" * 10), (5, None, b"v" * 4), (5, None, b"v" * 16)])

    fields = read_fields(mixed, bodies_of(mixed))

    assert fields is not None
    assert fields.value_bytes.tolist() == [10, 4, 16]


@pytest.mark.parametrize("count", [1, 70])
def test_a_batch_that_announces_more_records_than_it_has_is_left_to_the_scan(count: int) -> None:
    data = bytearray(alike(count, 20))
    data[BATCH_HEADER_BYTES - 4 : BATCH_HEADER_BYTES] = (count + 1).to_bytes(4, "big")
    lying = bytes(data)

    assert read_fields(lying, bodies_of(lying)) is None
    with pytest.raises(CorruptDataError):
        list(scan(lying, 0, parse_header(lying)))


def test_layouts_that_are_kept_take_bounded_memory() -> None:
    record_fields._layout.cache_clear()
    for size in range(40):
        data = alike(70, size)
        assert read_fields(data, bodies_of(data)) is not None
    kept = record_fields._layout.cache_info()
    assert kept.currsize <= record_fields.LAYOUTS_KEPT_MAX
    many = alike(record_fields.LAYOUT_ROWS_MAX + 1, 0)
    assert read_fields(many, bodies_of(many)) is not None
    assert record_fields._layout.cache_info().misses == kept.misses
