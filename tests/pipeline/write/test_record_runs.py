"""Whole columns are encoded to the same bytes as one record after the other."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.limits import INT64_MAX
from ottla.pipeline.write.provenance import Stamps, WriteId
from ottla.pipeline.write.record_runs import (
    ColumnRun,
    HeaderColumns,
    plain_headers,
    stamped_headers,
    varint_widths,
    varints,
)
from ottla.wire.batch_builder import BatchBuilder, encode_headers, varint

WRITE = WriteId("7f6a1c9e", 12, 3)
OPEN_MS = 1_700_000_000_000
"""The timestamp of the record that a batch begins with."""
Row = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]

# Lengths around those whose varints grow by a byte.
contents = (
    st.none() | st.binary(max_size=4) | st.sampled_from([62, 63, 64, 8_191, 8_192]).map(bytes)
)
headers = st.lists(st.tuples(st.text(max_size=3), contents), max_size=3).map(tuple)
rows = st.tuples(contents, contents, headers, st.sampled_from([0, 1, 7]))


def plain(given_rows: list[Row], *, is_stamped: bool, open_count: int, timestamp_ms: int) -> bytes:
    """Return one batch, record by record."""
    builder, stamps = opened(open_count), Stamps(WRITE)
    for key, value, own, chosen_among in given_rows:
        encoded = encode_headers(own)
        if is_stamped:
            encoded = stamps.stamp("t", 0, key, value, own, chosen_among=chosen_among)
        builder.append(timestamp_ms, key, value, encoded)
    return builder.build()


def opened(open_count: int) -> BatchBuilder:
    """Return a batch with some records."""
    builder = BatchBuilder()
    for _ in range(open_count):
        builder.append(OPEN_MS, None, b"before")
    return builder


def column_of(contents_of_rows: list[bytes | None], offset: int) -> pa.BinaryArray:
    """Return a column that begins somewhere in its buffers."""
    return pa.array([b"skipped"] * offset + contents_of_rows, pa.binary()).slice(offset)


def run_of(
    given_rows: list[Row], stamps: Stamps, *, is_stamped: bool, offset: int = 0
) -> ColumnRun:
    own: Any = [row[2] for row in given_rows]
    own = own if any(own) else None
    if is_stamped:
        first, checks = stamps.number(
            "t", 0, ((row[0], row[1], row[2], row[3]) for row in given_rows)
        )
        columns = stamped_headers(own, stamps, first, checks)
    else:
        columns = plain_headers(own)
    keys = [row[0] for row in given_rows]
    return ColumnRun(
        None if all(key is None for key in keys) else column_of(keys, offset),
        column_of([row[1] for row in given_rows], offset),
        columns,
    )


@given(
    st.lists(rows, min_size=1, max_size=12),
    st.booleans(),
    st.sampled_from([0, 1, 63, 64]),
    st.sampled_from([0, 1, 64, 100_000, -1, -70]),
    st.integers(0, 12),
)
def test_columns_are_encoded_as_records_are_one_by_one(
    given_rows: list[Row], is_stamped: bool, open_count: int, late_ms: int, cut: int
) -> None:
    at_ms, stamps, builder = OPEN_MS + late_ms, Stamps(WRITE), opened(open_count)
    for part in (given_rows[:cut], given_rows[cut:]):
        run = run_of(part, stamps, is_stamped=is_stamped, offset=cut) if part else None
        while run is not None and run.next_bytes:
            taken = run.take(9_000, builder.next_delta, builder.timestamp_delta(at_ms))
            assert len(taken.body) <= max(9_000, run.largest_bytes)
            builder.extend(at_ms, taken.body, taken.record_count)
    assert builder.build() == plain(
        given_rows, is_stamped=is_stamped, open_count=open_count, timestamp_ms=at_ms
    )


@given(
    st.lists(rows, min_size=1, max_size=200),
    st.lists(st.tuples(st.sampled_from([90, 150, 9_000, 20_000]), st.booleans()), min_size=1),
)
def test_batches_of_whatever_room_hold_together_all_records(
    given_rows: list[Row], turns: list[tuple[int, bool]]
) -> None:
    run = run_of(given_rows, Stamps(WRITE), is_stamped=True)
    stamps, at, number = Stamps(WRITE), 0, 0
    builder, expected = BatchBuilder(), BatchBuilder()
    while run.next_bytes:
        room_bytes, continues = turns[number % len(turns)]
        number += 1
        if not continues:
            builder, expected = BatchBuilder(), BatchBuilder()
        taken = run.take(room_bytes, builder.next_delta, 0)
        assert taken.record_count == 1 or len(taken.body) <= room_bytes
        builder.extend(OPEN_MS, taken.body, taken.record_count)
        for key, value, own, among in given_rows[at : at + taken.record_count]:
            encoded = stamps.stamp("t", 0, key, value, own, chosen_among=among)
            expected.append(OPEN_MS, key, value, encoded)
        at += taken.record_count
        assert builder.build() == expected.build()
    assert at == len(given_rows)


@pytest.mark.parametrize("is_stamped", [True, False])
def test_long_batches_and_large_values_are_encoded_as_records_are(is_stamped: bool) -> None:
    given_rows: list[Row] = [
        (b"%d" % n if n % 3 else None, bytes(n % 150), (), 0) for n in range(9_000)
    ]
    given_rows.append((None, bytes(3_000_000), (), 0))
    run = run_of(given_rows, Stamps(WRITE), is_stamped=is_stamped)
    builder = BatchBuilder()
    while run.next_bytes:
        taken = run.take(100_000_000, builder.next_delta, 0)
        builder.extend(OPEN_MS, taken.body, taken.record_count)
    assert builder.build() == plain(
        given_rows, is_stamped=is_stamped, open_count=0, timestamp_ms=OPEN_MS
    )


def test_a_batch_takes_what_fits_and_one_record_in_any_case() -> None:
    run = ColumnRun(None, pa.array([b"x" * 93] * 10, pa.binary()), plain_headers(None))
    assert run.take(1, 0, 0).record_count == 1
    assert run.take(399, 0, 0).record_count == 3
    assert run.take(400, 0, 0).record_count == 3, "each takes 101 bytes"
    assert run.take(404, 0, 0).record_count == 3


@given(st.lists(st.integers(-1, 200) | st.integers(-1, INT64_MAX // 4)))
def test_varints_are_those_of_the_wire(numbers: list[int]) -> None:
    array = np.array(numbers, dtype=np.int64)
    assert varints(array).to_pylist() == [varint(number) for number in numbers]
    known = [number for number in numbers if number >= 0]
    widths = varint_widths(np.array(known, dtype=np.int64))
    assert widths.tolist() == [len(varint(number)) for number in known]


def test_no_rows_make_no_record() -> None:
    none = pa.array([], pa.binary())
    run = ColumnRun(none, none, HeaderColumns([none], 0))
    assert (run.next_bytes, run.largest_bytes) == (0, 0)
