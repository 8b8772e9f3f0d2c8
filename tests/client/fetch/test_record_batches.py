"""A consumer's batches have the same records as the scan of `wire.records`, for any bytes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.fetch import record_decoder
from ottla.client.fetch.array_columns import SAME_BYTES_MAX, ArrayColumns
from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.batch import batches, patched_header
from ottla.wire.batch_builder import BatchBuilder, ControlType, build_end_transaction_marker
from ottla.wire.compression import Codec
from ottla.wire.records import scan

AT = TopicPartition("t", 3)
NAMES = ("a", "ä", "name")
Making = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]], int]

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1 << 20),
        st.one_of(st.none(), st.binary(max_size=3)),
        st.one_of(st.none(), st.binary(max_size=70)),
        st.lists(
            st.tuples(st.sampled_from(NAMES), st.one_of(st.none(), st.binary(max_size=2))),
            max_size=2,
        ),
        st.sampled_from((0, 0, 0, 1, 5)),
    ),
    min_size=1,
    max_size=8,
)


def batch(
    base: int,
    records: list[Making],
    *,
    codec: Codec = Codec.NONE,
    producer: int = -1,
    epoch: int = 4,
    append_time_ms: int | None = None,
) -> tuple[bytes, int]:
    """Return a batch and the offset after it; a record skips as many offsets as it ends with."""
    builder = BatchBuilder()
    delta = 0
    for timestamp_ms, key, value, headers, gap in records:
        delta += gap
        builder.append(timestamp_ms, key, value, headers, offset_delta=delta)
        delta += 1
    made = builder.build(
        codec=codec,
        base_offset=Offset(base),
        leader_epoch=Epoch(epoch),
        producer_id=ProducerId(producer),
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=producer >= 0,
    )
    if append_time_ms is not None:
        stamped = patched_header(
            made,
            0,
            base_offset=Offset(base),
            leader_epoch=Epoch(epoch),
            log_append_time_ms=append_time_ms,
        )
        made = stamped + made[len(stamped) :]
    return made, base + delta


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, int]]]:
    """Return an answer with all there is, and its aborted transactions with their ends."""
    data, aborted, base = b"", [], draw(st.integers(0, 3))
    for _ in range(draw(st.integers(1, 5))):
        producer = draw(st.sampled_from((-1, -1, 1, 2)))
        base += draw(st.sampled_from((0, 0, 7)))
        made, end = batch(
            base,
            draw(RECORDS) * draw(st.sampled_from((1, 1, 12))),
            codec=draw(st.sampled_from(Codec)),
            producer=producer,
            epoch=draw(st.sampled_from((4, 4, 5))),
            append_time_ms=draw(st.sampled_from((None, None, 77))),
        )
        data += made
        if producer >= 0:
            is_aborted = draw(st.booleans())
            if is_aborted:
                aborted.append((producer, base, end))
            data += marker(end, producer, ControlType.ABORT if is_aborted else ControlType.COMMIT)
            end += 1
        base = end
    return data, aborted


def marker(offset: int, producer: int, control_type: ControlType) -> bytes:
    return build_end_transaction_marker(
        control_type,
        timestamp_ms=1,
        producer_id=ProducerId(producer),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
        base_offset=Offset(offset),
        leader_epoch=Epoch(4),
    )


def scanned(
    data: bytes, first: int, aborted: list[tuple[int, int]] | None
) -> Iterator[ConsumerRecord]:
    """Yield the expected records in the obvious way: each batch has its own transaction."""
    for at, header in batches(data):
        is_aborted = (header.producer_id, header.base_offset) in (aborted or ())
        if header.is_control or (header.is_transactional and is_aborted):
            continue
        for record in scan(data, at, header):
            if record.offset >= first:
                epoch, stamp = header.partition_leader_epoch, header.timestamp_type
                yield ConsumerRecord._make((*AT, *record, epoch, stamp))


def opened(
    data: bytes,
    *,
    first: int = 0,
    aborted: list[tuple[int, int]] | None = None,
    has_arrays: bool = True,
) -> FetchedRecords:
    return FetchedRecords(
        AT,
        Offset(first),
        Epoch(-1),
        memoryview(data),
        aborted=None if aborted is None else [(one, Offset(at)) for one, at in aborted],
        decoder=RecordDecoder(0 if has_arrays else 1 << 40, array_rows_min=4),
    )


def columns_of(found: RecordBatch) -> list[ConsumerRecord]:
    """Return the records as the columns have them."""
    assert [bytes(one) if one is not None else None for one in found.value_views] == found.values
    return [
        ConsumerRecord._make((*found.at, *row, found.leader_epoch, found.timestamp_type))
        for row in zip(
            found.offsets,
            found.timestamps_ms,
            found.keys,
            found.values,
            found.headers,
            strict=True,
        )
    ]


@given(
    log=logs(),
    first=st.integers(0, 30),
    is_committed=st.booleans(),
    has_arrays=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from("rb1"), st.integers(1, 40)), max_size=12),
)
def test_batches_records_and_their_mixture_give_what_the_scan_gives(
    log: tuple[bytes, list[tuple[int, int, int]]],
    first: int,
    is_committed: bool,
    has_arrays: bool,
    steps: list[tuple[str, int]],
) -> None:
    data, all_aborted = log
    # A broker names no transaction that ended before what is fetched.
    named = [(producer, start) for producer, start, end in all_aborted if end >= first]
    aborted = named if is_committed else None
    held = opened(data, first=first, aborted=aborted, has_arrays=has_arrays)
    taken: list[ConsumerRecord] = []
    for how, count in [*steps, *[("b", 1_000)] * 20]:
        if how == "b":
            found = held.take_batch(count)
            if found is not None:
                assert len(found) <= count
                assert columns_of(found) == list(found)
                assert (found.base_offset, found.end_offset) == (
                    found[0].offset,
                    found[-1].offset + 1,
                )
                taken += found
        elif how == "1" and (one := held.take_made()) is not None:
            taken.append(one)
        else:
            taken += held.take(count)
        if taken:
            assert held.offset > taken[-1].offset

    assert taken == list(scanned(data, first, aborted))
    assert held.is_drained
    assert held.offset == max(first, held.end_offset)


@pytest.mark.parametrize("size", [1, 100, SAME_BYTES_MAX, SAME_BYTES_MAX + 1])
def test_values_of_one_size_are_bytes_of_their_own(size: int) -> None:
    # Zeros at the end of a value belong to it.
    values = [bytes([place % 256]).ljust(size, b"\0") for place in range(70)]
    data, _ = batch(0, [(5, None, value, [], 0) for value in values])
    more, _ = batch(70, [(900 * place, b"k", b"w" * size, [], 0) for place in range(70)])
    data += more

    found = opened(data, first=3).take_batch(1_000)

    assert found is not None
    assert found.values == [*values[3:], *[b"w" * size] * 70]
    assert {type(value) for value in found.values} == {bytes}
    assert opened(data, first=3).take(1_000) == list(scanned(data, 3, None))


@pytest.mark.parametrize("count", [1, 15, 16, 50, 64, 100, 1_000])
@pytest.mark.parametrize("first", [0, 3, 100])
def test_values_of_a_known_layout_are_the_same_in_parts_of_any_size(count: int, first: int) -> None:
    data = b"".join(
        batch(base, [(5, None, bytes([base + place]) * 20, [], 0) for place in range(rows)])[0]
        for base, rows in ((0, 70), (70, 30), (100, 70))
    )
    expected = list(scanned(data, first, None))
    for _ in range(3):
        held = opened(data, first=first)
        found: list[ConsumerRecord] = []
        while some := held.take(count):
            found += some
        assert found == expected

        held = opened(data, first=first)
        values: list[bytes | None] = []
        while (some_batch := held.take_batch(count)) is not None:
            values += some_batch.values
        assert values == [record.value for record in expected]

    columns = taken(opened(data, first=first))._columns
    assert isinstance(columns, ArrayColumns)
    assert columns._fields.value_runs is not None


def test_values_are_not_kept_after_the_last_of_their_batch_was_read() -> None:
    data = batch(0, [(5, None, b"v" * 20, [], 0)] * 70)[0] * 2
    for _ in range(2):
        columns = taken(opened(data, first=0))._columns
    assert isinstance(columns, ArrayColumns)

    assert columns.values(0, 50) == [b"v" * 20] * 50
    assert len(columns._run_values) == 70
    assert columns.values(50, 70) == [b"v" * 20] * 20
    assert columns._run_values == ()


@given(RECORDS, st.integers(1, 200), st.booleans())
def test_bytes_bound_a_batch_but_for_its_first_record(
    records: list[Making], size_bytes: int, has_arrays: bool
) -> None:
    held = opened(batch(0, records * 3)[0], has_arrays=has_arrays)
    count = 0
    while (found := held.take_batch(1_000, size_bytes)) is not None:
        assert len(found) == 1 or found.size_bytes <= size_bytes
        count += len(found)
    assert count == 3 * len(records)


def test_arrays_read_many_and_the_scan_reads_few() -> None:
    record: Making = (5, b"k", b"v", [], 0)
    many, few = opened(batch(0, [record] * 100)[0]), opened(batch(0, [record] * 2)[0])
    assert isinstance(taken(many)._columns, ArrayColumns)
    assert not isinstance(taken(few)._columns, ArrayColumns)


def test_without_numpy_the_scan_reads_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_decoder, "find_spec", lambda name: None)
    held = opened(batch(0, [(5, b"k", b"v", [], 0)] * 700)[0])
    sizes = []
    while (found := held.take_batch(1_000)) is not None:
        assert not isinstance(found._columns, ArrayColumns)
        sizes.append(len(found))
    assert sum(sizes) == 700


def test_a_consumer_that_reads_little_imports_no_numpy() -> None:
    decoder = RecordDecoder(rows_before_import=150)
    data = batch(0, [(5, b"k", b"v", [], 0)] * 100)[0]
    kinds = [
        type(
            taken(FetchedRecords(AT, Offset(0), Epoch(-1), data, decoder=decoder))._columns
        ).__name__
        for _ in range(3)
    ]
    assert kinds == ["ScannedColumns", "ScannedColumns", "ArrayColumns"]


def test_no_array_is_made_of_a_batch_with_more_records_than_are_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_decoder, "ARRAY_ROWS_MAX", 50)
    held = opened(batch(0, [(5, None, None, [], 0)] * 700)[0])
    assert not isinstance(taken(held)._columns, ArrayColumns)


@pytest.mark.parametrize("take", [lambda held: held.take(100), lambda held: held.take_batch(100)])
@pytest.mark.parametrize("has_arrays", [False, True])
def test_damage_is_reported_once_what_comes_before_it_was_given_out(
    take: Callable[[FetchedRecords], Any], has_arrays: bool
) -> None:
    record: Making = (5, b"k", b"v", [], 0)
    bad = bytearray(batch(5, [record] * 5)[0])
    bad[-1] ^= 1
    held = opened(batch(0, [record] * 5)[0] + bytes(bad), has_arrays=has_arrays)

    assert [one.offset for one in take(held)] == [0, 1, 2, 3, 4]
    for _ in range(2):
        with pytest.raises(CorruptDataError, match="t-3 at offset 5"):
            take(held)
    assert held.offset == 5


@pytest.mark.parametrize("has_arrays", [False, True])
def test_a_record_that_lies_is_reported_after_those_before_it(has_arrays: bool) -> None:
    data = bytearray(batch(0, [(5, b"k", b"v", [("n", b"x")], 0)] * 6)[0])
    place = data.rindex(b"n")
    data[place] = 0xFF  # a header's name that is no UTF-8, in the last record
    held = FetchedRecords(
        AT,
        Offset(0),
        Epoch(-1),
        bytes(data),
        check_crcs=False,
        decoder=RecordDecoder(0 if has_arrays else 1 << 40, array_rows_min=4),
    )

    assert [one.offset for one in taken(held)] == [0, 1, 2, 3, 4]
    with pytest.raises(CorruptDataError, match="its name is not UTF-8"):
        held.take_batch(100)


@pytest.mark.parametrize("has_arrays", [False, True])
def test_offsets_that_fall_move_no_position_back(has_arrays: bool) -> None:
    """Batches of a hostile producer: with falling offsets, and a control batch after the one it
    should precede."""
    falling = bytearray(batch(0, [(5, b"k", b"v", [], 0)] * 9)[0])
    width = (len(falling) - BATCH_HEADER_BYTES) // 9
    falling[BATCH_HEADER_BYTES + 5 * width + 3] = 0  # the sixth record's offset delta
    data = bytes(falling) + marker(0, 1, ControlType.COMMIT)
    held = FetchedRecords(
        AT,
        Offset(0),
        Epoch(-1),
        data,
        check_crcs=False,
        decoder=RecordDecoder(0 if has_arrays else 1 << 40, array_rows_min=4),
    )
    places = [held.offset]
    while held.take(2):
        places.append(held.offset)

    assert places == sorted(places)
    assert places[-1] == 9


def test_a_slice_is_a_batch_and_a_place_is_a_record() -> None:
    records: list[Making] = [(n, b"%d" % n, None, [], 0) for n in range(10)]
    found = taken(opened(batch(20, records)[0]))
    assert [one.offset for one in found[3:5]] == [23, 24]
    assert found[3:5].keys == [b"3", b"4"]
    assert found[-1] == list(found)[-1]
    assert found.offsets == range(20, 30)
    for place in (10, -11, slice(0, 0), slice(0, 9, 2)):
        with pytest.raises(IndexError):
            found[place]


def taken(held: FetchedRecords) -> RecordBatch:
    found = held.take_batch(1_000)
    assert found is not None
    return found


@pytest.mark.parametrize("before_bytes", [0, 1, 700, 100_000])
def test_records_are_decoded_in_place_or_copied_out_of_a_much_larger_answer(
    before_bytes: int,
) -> None:
    """A batch that is kept does not keep the records of other partitions."""
    made: list[Making] = [(n, b"%d" % n, b"v" * 50, [("n", b"x")], 0) for n in range(60)]
    data = batch(0, made)[0] + batch(60, made)[0]
    answer = b"\xff" * before_bytes + data + b"\xff" * 9
    held = FetchedRecords(
        AT,
        Offset(0),
        Epoch(-1),
        memoryview(answer)[before_bytes : before_bytes + len(data)],
        decoder=RecordDecoder(0, array_rows_min=4),
    )
    found = taken(held)

    assert list(found) == columns_of(found) == list(scanned(data, 0, None))
    columns = found._columns
    assert isinstance(columns, ArrayColumns)
    assert (columns._data is answer) == (before_bytes < 1_000)


def test_batches_are_decoded_together_where_the_first_has_too_few() -> None:
    record: Making = (5, None, b"v", [], 0)
    held = opened(batch(0, [record] * 300)[0] + batch(300, [record] * 300)[0])
    assert len(taken(held)) == 600
    held = opened(batch(0, [record] * 300)[0] + batch(300, [record] * 300)[0])
    found = held.take_batch(300)
    assert found is not None
    assert found._columns.row_count == 300
