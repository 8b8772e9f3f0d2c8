"""Fields of many records as arrays: results that are marked as valid equal those of the scan."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire import record_fields, record_layouts
from ottla.wire.batch import batches, parse_header, patch_in_place
from ottla.wire.batch_builder import build_batch
from ottla.wire.record_fields import Fields, read_fields
from ottla.wire.records import Body, Record, scan


def alike(count: int, value_bytes: int, key: bytes | None = None) -> bytes:
    """Return a batch of records that differ in their offsets alone."""
    return build_batch([(5, key, b"v" * value_bytes)] * count)


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


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 200, 4_096])
@pytest.mark.parametrize("value_bytes", [2, 50, 51, 52, 53, 54, 55, 56, 57, 58, 100, 1_000, 8_178])
@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 63])
def test_fields_of_records_that_are_alike_are_those_that_are_found_one_by_one(
    count: int, value_bytes: int, key: bytes | None
) -> None:
    if value_bytes > 100:
        count = min(count, 130)
    stamps = [5 + place % 64 for place in range(count)]
    first = bytearray(build_batch([(stamp, key, b"v" * value_bytes) for stamp in stamps]))
    patch_in_place(first, 0, base_offset=Offset(7), leader_epoch=Epoch(2))
    data = bytes(first) + alike(3, value_bytes, key)

    found = record_layouts.find_alike(np.frombuffer(data, dtype=np.uint8), bodies_of(data))
    fields = read_fields(data, bodies_of(data))

    assert fields is not None
    # A length of three bytes is left to the others.
    assert found is not None or value_bytes > 1_000
    expected = [record for at, header in batches(data) for record in scan(data, at, header)]
    assert rows_of(data, fields) == expected
    ends = [body.end for body in bodies_of(data)]
    assert set(ends) <= set(fields.record_end.tolist())
    assert fields.record_at[1:].tolist() == [
        end if end not in ends else end + BATCH_HEADER_BYTES
        for end in fields.record_end[:-1].tolist()
    ]


@pytest.mark.parametrize(
    "odd",
    [
        (5, None, None),
        (5, None, b""),
        (5, b"k", b"v" * 19),
        (5, None, b"v" * 21),
        (900_000, None, b"v" * 20),
    ],
)
@pytest.mark.parametrize("place", [0, 40, 69])
def test_one_record_that_differs_is_found(
    odd: tuple[int, bytes | None, bytes | None], place: int
) -> None:
    records: list[tuple[int, bytes | None, bytes | None]] = [(5, None, b"v" * 20)] * 70
    records[place] = odd
    data = build_batch(records)

    fields = read_fields(data, bodies_of(data))

    assert fields is not None
    assert rows_of(data, fields) == list(scan(data, 0, parse_header(data)))


def test_offsets_beyond_what_the_header_says_are_not_vouched_for() -> None:
    data = bytearray(alike(70, 20))
    data[23:27] = (68).to_bytes(4, "big")  # last_offset_delta
    lying = bytes(data)

    assert read_fields(lying, bodies_of(lying)) is None


@given(
    sizes=st.lists(st.tuples(st.integers(1, 140), st.integers(0, 70)), min_size=1, max_size=4),
    key=st.sampled_from((None, b"", b"key")),
    is_one_size=st.booleans(),
    at=st.integers(0, 1 << 20),
    byte=st.integers(0, 255),
)
def test_one_wrong_byte_gives_what_the_scan_gives_or_nothing(
    sizes: list[tuple[int, int]], key: bytes | None, is_one_size: bool, at: int, byte: int
) -> None:
    if is_one_size:
        sizes = [(count, sizes[0][1]) for count, _ in sizes]
    data = bytearray(b"".join(alike(count, value_bytes, key) for count, value_bytes in sizes))
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


def test_a_struct_for_values_is_made_when_a_layout_occurs_again() -> None:
    record_layouts.record_layout.cache_clear()
    data = alike(70, 20)

    first, second = (read_fields(data, bodies_of(data)) for _ in range(2))

    assert first is not None and first.value_runs is None
    assert second is not None and second.value_runs is not None
    (run,) = second.value_runs
    assert (run.first_row, run.end_row) == (0, 70)
    assert run.reader.unpack_from(data, run.value_at) == (b"v" * 20,) * 70


def test_no_struct_reads_more_than_a_mebibyte_of_values() -> None:
    data = alike(record_layouts.VALUES_TOGETHER_BYTES_MAX // 8_000 + 1, 8_000)
    for _ in range(3):
        fields = read_fields(data, bodies_of(data))
        assert fields is not None and fields.value_runs is None


def test_layouts_that_are_kept_take_bounded_memory() -> None:
    record_layouts.layout_of.cache_clear()
    for size in range(40):
        data = alike(70, size)
        assert read_fields(data, bodies_of(data)) is not None
    assert record_layouts.record_layout.cache_info().currsize <= record_layouts.LAYOUTS_KEPT_MAX
    kept = record_layouts.layout_of.cache_info()
    assert kept.currsize <= record_layouts.LAYOUTS_KEPT_MAX
    many = alike(record_layouts.LAYOUT_ROWS_MAX + 1, 0)
    assert read_fields(many, bodies_of(many)) is not None
    assert record_layouts.layout_of.cache_info().misses == kept.misses
