"""Arrow batches have the same records as the exact, slow scanner, and refuse the same bytes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import BATCH_HEADER_BYTES, INT64_MAX
from ottla.pipeline.read import arrow_decode
from ottla.pipeline.read.arrow_decode import ROWS_MAX, ArrowDecoder
from ottla.pipeline.read.arrow_schema import arrow_schema, column_names
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.wire.batch import BatchHeader, parse_header
from ottla.wire.batch_builder import BatchBuilder, varint
from ottla.wire.compression import Codec
from ottla.wire.record_fields import HEADERS_MAX, RUN_COUNT_MIN, read_fields
from ottla.wire.records import Body, scan_body

AT = TopicPartition("t", 3)
ALL = column_names(None, True)
Row = tuple[Any, ...]

contents = st.one_of(st.none(), st.binary(max_size=80), st.integers(0, 9_000).map(bytes))
header_lists = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3)
records = st.tuples(
    st.integers(-1, 1 << 45),
    contents,
    contents,
    st.one_of(st.just([]), st.just([]), header_lists),
    st.integers(1, 300),
)
"""Timestamp, key, value, headers, and how many offsets follow on this one's predecessor."""
repeated = st.tuples(records, st.integers(1, 3 * RUN_COUNT_MIN))
SMALL: list[tuple[Any, int]] = [((0, None, None, [], 1), 1)]
LARGE: list[tuple[Any, int]] = [((0, None, bytes(100), [], 1), 1)]
batch_contents = st.lists(repeated, min_size=1, max_size=6)


def build(
    rows: list[tuple[Any, int]],
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    append_time_ms: int | None = None,
) -> bytes:
    """Return a batch of these records, each repeated in a row."""
    builder, delta = BatchBuilder(), -1
    for (timestamp_ms, key, value, headers, step), count in rows:
        for _ in range(count):
            delta += step
            builder.append(timestamp_ms, key, value, headers, offset_delta=delta)
    return builder.build(
        codec=codec, base_offset=Offset(base_offset), log_append_time_ms=append_time_ms
    )


def decoded(
    data: bytes, *, first: int = 0, end: int = INT64_MAX, names: tuple[str, ...] = ALL
) -> list[Row]:
    """Return the rows of all batches."""
    found: list[Row] = []
    fetched = FetchedBatches(data, first, end)
    for batch in ArrowDecoder(AT, names).decode(fetched.bodies(), first, end):
        batch.validate(full=True)
        assert batch.schema.equals(arrow_schema(names))
        assert 0 < batch.num_rows <= ROWS_MAX
        found += rows_of(batch)
    return found


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """Return the rows; times in microseconds, headers as pairs."""
    columns = []
    for name in batch.schema.names:
        column = batch.column(name)
        if name == "timestamp":
            column = column.view(pa.int64())
        values = column.to_pylist()
        if name == "headers":
            values = [v and tuple((one["key"], one["value"]) for one in v) for v in values]
        columns.append(values)
    return list(zip(*columns, strict=True))


def expected(body: bytes, header: BatchHeader, first: int = 0, end: int = INT64_MAX) -> list[Row]:
    """Return the same rows as the slow scanner finds them."""
    return [
        (
            one.key,
            one.value,
            AT.topic,
            AT.partition,
            one.offset,
            one.timestamp_ms * 1_000,
            int(header.timestamp_type),
            one.headers or None,
        )
        for one in scan_body(body, header)
        if first <= one.offset < end
    ]


@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.tuples(batch_contents, st.sampled_from(Codec)), min_size=1, max_size=4),
    append_time_ms=st.one_of(st.none(), st.integers(0, 1 << 41)),
    cut=st.tuples(st.integers(0, 500), st.integers(0, 500)),
)
def test_every_batch_that_can_be_built_decodes_to_its_records(
    batches: list[tuple[list[tuple[Any, int]], Codec]],
    append_time_ms: int | None,
    cut: tuple[int, int],
) -> None:
    base, data, wanted = 10, b"", []
    bodies = []
    for rows, codec in batches:
        plain = build(rows, base_offset=base, append_time_ms=append_time_ms)
        data += build(rows, base_offset=base, codec=codec, append_time_ms=append_time_ms)
        bodies.append((plain[BATCH_HEADER_BYTES:], parse_header(plain)))
        base = parse_header(plain).end_offset + 5
    first, end = 10 + cut[0], base - cut[1]
    for body, header in bodies:
        wanted += expected(body, header, first, end)
    assert decoded(data, first=first, end=end) == wanted


@settings(max_examples=150, deadline=None)
@given(
    rows=batch_contents,
    damages=st.lists(
        st.tuples(st.integers(0, 20_000), st.integers(0, 255)), min_size=1, max_size=3
    ),
    count_change=st.sampled_from([0, 0, 0, 0, 1, -1, 1_000]),
    cut=st.sampled_from([0, 0, 0, 1, 7]),
)
@example(rows=SMALL, damages=[(0, 13)], count_change=0, cut=0).via("a negative length in one byte")
@example(rows=LARGE, damages=[(0, 0xD7)], count_change=0, cut=0).via("and in two")
def test_damaged_records_fail_or_not_as_they_do_for_the_slow_scanner(
    rows: list[tuple[Any, int]], damages: list[tuple[int, int]], count_change: int, cut: int
) -> None:
    batch = build(rows)
    body = bytearray(batch[BATCH_HEADER_BYTES:])
    for at, byte in damages:
        body[at % min(len(body), 400)] = byte
    if cut:
        del body[-cut:]
    header = parse_header(batch)
    header = header._replace(record_count=header.record_count + count_change)
    same_as_slow(bytes(body), header)


def same_as_slow(body: bytes, header: BatchHeader) -> None:
    """Assert that both decoders give the same rows, or refuse with the same message."""
    decoder = ArrowDecoder(AT, ALL)
    try:
        wanted = expected(body, header)
    except CorruptDataError as error:
        with pytest.raises(CorruptDataError) as caught:
            list(decoder.decode([Body(header, body, 0, len(body))], 0, INT64_MAX))
        assert caught.value.where == f"batch at offset {header.base_offset}: {error.where}"
        return
    if any(abs(row[5]) > INT64_MAX for row in wanted):
        with pytest.raises(CorruptDataError, match="beyond Spark's times"):
            list(decoder.decode([Body(header, body, 0, len(body))], 0, INT64_MAX))
        return
    found: list[Row] = []
    for batch in decoder.decode([Body(header, body, 0, len(body))], 0, INT64_MAX):
        batch.validate(full=True)
        found += rows_of(batch)
    assert found == wanted


def overlong(number: int, byte_count: int) -> bytes:
    """Return the varint of a number in more bytes than it needs."""
    rest = number << 1
    encoded = bytearray()
    for _ in range(byte_count - 1):
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


@settings(max_examples=100, deadline=None)
@given(
    widths=st.tuples(*[st.integers(1, 11)] * 6),
    count=st.integers(1, RUN_COUNT_MIN + 8),
    value_bytes=st.sampled_from([0, 1, 63, 64, 200]),
)
@example(widths=(1, 1, 1, 1, 1, 1), count=40, value_bytes=50)
def test_numbers_written_in_too_many_bytes_read_as_they_do_for_the_slow_scanner(
    widths: tuple[int, ...], count: int, value_bytes: int
) -> None:
    length_width, stamp, delta, key, value, headers = widths
    body = b""
    for index in range(count):
        record = b"\x00" + overlong(0, stamp) + overlong(index % 64, max(delta, 2))
        record += overlong(1, key) + b"k" + overlong(value_bytes, max(value, 2))
        record += bytes(value_bytes) + overlong(0, headers)
        body += overlong(len(record), max(length_width, 2)) + record
    header = parse_header(build([((5, None, None, [], 1), count)]))
    same_as_slow(body, header)


def test_ordinary_batches_are_read_the_fast_way() -> None:
    rows = [
        ((1_700_000_000_000 + index, b"k" * (index % 3), bytes(index % 130), [("h", b"1")], 1), 2)
        for index in range(200)
    ]
    data = build(rows)
    (body,) = FetchedBatches(data, 0, INT64_MAX).bodies()
    assert read_fields(data, [body]) is not None


def test_what_the_fast_way_does_not_vouch_for_is_read_all_the_same() -> None:
    many = [("h", b"%d" % index) for index in range(HEADERS_MAX + 1)]
    data = build([((5, b"k", b"v", many, 1), 2)]) + build(
        [((5, b"k", b"w", [], 1), 2)], base_offset=2
    )
    bodies = list(FetchedBatches(data, 0, INT64_MAX).bodies())
    assert read_fields(data, bodies) is None
    found = decoded(data)
    assert [row[1] for row in found] == [b"v", b"v", b"w", b"w"]
    assert found[0][7] == tuple(many)


def test_a_large_batch_comes_in_several_and_large_ones_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = build([((5, None, b"", [], 1), 2 * ROWS_MAX + 1)])
    few = build([((5, None, b"", [], 1), 3)], base_offset=1 << 20)
    offsets = [*range(2 * ROWS_MAX + 1), *range(1 << 20, (1 << 20) + 3)]
    assert decoded(many + few, names=("offset",)) == [(offset,) for offset in offsets]
    monkeypatch.setattr(arrow_decode, "BYTES_MAX", 1)
    assert decoded(many + few, names=("offset",)) == [(offset,) for offset in offsets]


def test_only_the_columns_asked_for_are_made() -> None:
    data = build([((5, b"k", b"v", [], 1), 3)])
    assert decoded(data, names=("key", "offset")) == [(b"k", 0), (b"k", 1), (b"k", 2)]


def test_a_record_without_headers_has_null_as_the_connector_gives_it() -> None:
    data = build([((5, b"k", b"v", [], 1), 1), ((5, b"k", b"v", [("h", None)], 1), 1)])
    assert [row[0] for row in decoded(data, names=("headers",))] == [None, (("h", None),)]


def test_a_timestamp_beyond_sparks_says_which_record_has_it() -> None:
    data = build([((5, None, b"v", [], 1), 3), ((INT64_MAX // 999, None, b"v", [], 1), 1)])
    with pytest.raises(CorruptDataError, match="offset 3: its timestamp of 9232604641496272 ms"):
        decoded(data)
    assert len(decoded(data, names=("value",))) == 4


def test_a_name_that_is_no_text_is_refused() -> None:
    data = build([((5, b"k", b"v", [("name", None)], 1), 1)])
    body = data[BATCH_HEADER_BYTES:].replace(b"name", b"n\xff\xfee")
    decoder = ArrowDecoder(AT, ALL)
    with pytest.raises(CorruptDataError, match="not UTF-8"):
        list(decoder.decode([Body(parse_header(data), body, 0, len(body))], 0, INT64_MAX))


def test_varints_of_every_width_are_their_numbers() -> None:
    sizes = [0, 63, 64, 8_191, 8_192, 100_000, 1 << 20]
    times = [1 << shift for shift in range(5, 54, 7)]
    pairs = list(zip(times, sizes, strict=True))
    data = build([((time_ms, None, bytes(size), [], 1), 1) for time_ms, size in pairs])
    assert [len(varint(size)) for size in sizes] == [1, 1, 2, 2, 3, 3, 4]
    found = decoded(data, names=("value", "timestamp"))
    assert found == [(bytes(size), 1_000 * time_ms) for time_ms, size in pairs]
