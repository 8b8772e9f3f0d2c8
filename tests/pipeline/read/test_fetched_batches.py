"""The batches of a response: those that a range needs, and the records our consumer would
return."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.client.fetch.fetched import FetchedRecords
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.model.limits import INT64_MAX
from ottla.pipeline.read.arrow_decode import ArrowDecoder
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.range_progress import RangeProgress
from ottla.pipeline.read.ranges import OffsetRange
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import (
    ControlType,
    build_batch,
    build_end_transaction_marker,
)
from ottla.wire.compression import Codec
from tests.storage.cleaner.cleaning_bench import compacted_batch

AT = TopicPartition("t", 0)
Aborted = list[tuple[int, int]]


def data_batch(
    offset: int, count: int, *, producer_id: int = -1, codec: Codec = Codec.NONE
) -> bytes:
    """Return a batch of records whose values are their offsets; of a transaction with an id."""
    return build_batch(
        [(5, None, b"%d" % (offset + index)) for index in range(count)],
        base_offset=Offset(offset),
        producer_id=ProducerId(producer_id),
        is_transactional=producer_id >= 0,
        codec=codec,
    )


def marker(offset: int, producer_id: int, kind: ControlType) -> bytes:
    """Return the record that ends a transaction."""
    return build_end_transaction_marker(
        kind,
        timestamp_ms=5,
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
        base_offset=Offset(offset),
    )


def offsets_in(fetched: FetchedBatches, first: int = 0, end: int = INT64_MAX) -> list[int]:
    """Return the offsets of the records, each of which has its offset as its value."""
    found: list[int] = []
    for batch in ArrowDecoder(AT, ("value", "offset")).decode(fetched.bodies(), first, end):
        rows = batch.to_pydict()
        assert rows["value"] == [b"%d" % offset for offset in rows["offset"]]
        found += rows["offset"]
    return found


def test_a_range_gets_its_part_of_batches_that_straddle_it() -> None:
    data = data_batch(0, 10) + data_batch(10, 10, codec=Codec.ZSTD) + data_batch(20, 10)
    fetched = FetchedBatches(data, 7, 22)
    assert offsets_in(fetched, 7, 22) == list(range(7, 22))
    assert fetched.next_offset == 30


def test_behind_a_gap_the_range_ends_where_it_was_to_end() -> None:
    fetched = FetchedBatches(data_batch(0, 10) + data_batch(50, 10), 0, 40)
    assert offsets_in(fetched, 0, 40) == list(range(10))
    assert fetched.next_offset == 40


def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch() -> None:
    whole, cut = data_batch(0, 10), data_batch(10, 10)
    for size in (0, 1, 60, 61, len(cut) - 1):
        fetched = FetchedBatches(whole + cut[:size], 0, 100)
        assert offsets_in(fetched) == list(range(10))
        assert fetched.next_offset == 10


def test_records_of_aborted_transactions_are_left_out_and_later_ones_are_not() -> None:
    data = (
        data_batch(0, 3, producer_id=7)
        + data_batch(3, 3, producer_id=8)
        + data_batch(6, 2)
        + marker(8, 7, ControlType.ABORT)
        + marker(9, 8, ControlType.COMMIT)
        + data_batch(10, 2, producer_id=7)
        + marker(12, 7, ControlType.COMMIT)
    )
    committed = FetchedBatches(data, 0, 100, aborted=[(7, 0)])
    assert offsets_in(committed) == [3, 4, 5, 6, 7, 10, 11]
    assert committed.next_offset == 13
    assert offsets_in(FetchedBatches(data, 0, 100)) == [*range(8), 10, 11]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("end", range(1, 16))
def test_a_range_of_a_compacted_log_ends_where_it_was_to_end(end: int, codec: Codec) -> None:
    log = [
        compacted_batch(data_batch(0, 3)),
        compacted_batch(data_batch(3, 3, codec=codec), {4}, horizon_ms=5_000_000),
        compacted_batch(data_batch(9, 3)),
        compacted_batch(data_batch(12, 3)),
    ]
    progress = RangeProgress(OffsetRange("t", 0, 0, end))
    seen: list[int] = []
    for _ in log:
        for size in (1, 2):  # an answer holds one batch of what is there, or two
            if progress.is_fetched:
                break
            rest = [one for one in log if parse_header(one).end_offset > progress.position]
            progress.take(FetchedBatches(b"".join(rest[:size]), progress.position, end))
            seen += offsets_in(progress.give(), end=end)

    assert progress.is_done
    assert seen == [4] * (end > 4)


def test_timestamps_count_from_a_delete_horizon_where_a_batch_has_one() -> None:
    thinned = compacted_batch(data_batch(0, 30), range(3, 30), horizon_ms=5_000_000)
    (rows,) = ArrowDecoder(AT, ("timestamp",)).decode(
        FetchedBatches(thinned, 0, 30).bodies(), 0, 30
    )

    assert rows.column(0).view("int64").to_pylist() == [5_000] * 27


def test_a_wrong_checksum_is_reported_with_its_offset_once_what_comes_before_was_given() -> None:
    broken = bytearray(data_batch(10, 5))
    broken[-1] ^= 1
    reading = FetchedBatches(data_batch(0, 10) + bytes(broken), 0, 100).bodies()
    assert next(reading).header.base_offset == 0
    with pytest.raises(CorruptDataError, match="batch at offset 10: the batch fails its checksum"):
        next(reading)
    assert offsets_in(FetchedBatches(bytes(data_batch(0, 10) + broken), 0, 9)) == list(range(10))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:16] + b"\x01" + data[17:],
        lambda data: data[:8] + b"\x00\x00\x00\x05" + data[12:],
        lambda data: data + data_batch(3, 2),
    ],
    ids=["magic", "length", "offsets that come again"],
)
def test_headers_that_lie_are_refused(spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptDataError):
        FetchedBatches(spoil(data_batch(0, 10)), 0, 100)


def test_a_codec_that_does_not_exist_is_refused() -> None:
    data = bytearray(data_batch(0, 10))
    data[22] = 7
    with pytest.raises(CorruptDataError, match="offset 0: codec 7 does not exist"):
        list(FetchedBatches(bytes(data), 0, 100, check_crcs=False).bodies())


steps = st.lists(
    st.tuples(
        st.sampled_from(["data", "data", "commit", "abort", "gap"]),
        st.integers(-1, 2),
        st.integers(1, 4),
        st.sampled_from(Codec),
    ),
    min_size=1,
    max_size=14,
)


@settings(max_examples=200, deadline=None)
@given(steps=steps, first=st.integers(0, 20), is_committed=st.booleans())
def test_what_comes_out_is_what_our_consumer_gives_out(
    steps: list[tuple[str, int, int, Codec]], first: int, is_committed: bool
) -> None:
    data, aborted = log_of(steps)
    reported: Any = aborted if is_committed else None
    consumer = FetchedRecords(AT, Offset(first), Epoch(-1), data, aborted=reported)
    expected = [record.offset for record in consumer.take(1_000)]
    fetched = FetchedBatches(data, first, INT64_MAX, aborted=reported)
    assert offsets_in(fetched, first) == expected
    assert fetched.next_offset == max(first, consumer.end_offset)


def log_of(steps: list[tuple[str, int, int, Codec]]) -> tuple[bytes, Aborted]:
    """Return a log of these steps, and its aborted transactions."""
    data, offset = b"", 0
    open_since: dict[int, int] = {}
    aborted: Aborted = []
    for kind, producer_id, count, codec in steps:
        if kind == "gap":
            offset += count
        elif kind == "data" or producer_id not in open_since:
            data += data_batch(offset, count, producer_id=producer_id, codec=codec)
            if producer_id >= 0:
                open_since.setdefault(producer_id, offset)
            offset += count
        else:
            since = open_since.pop(producer_id)
            if kind == "abort":
                aborted.append((producer_id, since))
            data += marker(
                offset, producer_id, ControlType.ABORT if kind == "abort" else ControlType.COMMIT
            )
            offset += 1
    return data, aborted
