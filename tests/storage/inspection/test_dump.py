"""A dump shows a file's content and its positions, and never ends at damage with a traceback."""

from struct import pack
from uuid import UUID
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.storage.directories.checkpoint_file import parse_checkpoint
from ottla.storage.directories.checkpoint_topics import format_topic_ids
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.inspection.batch_walk import BatchRow, Problem
from ottla.storage.inspection.dump import (
    AbortedTransactionRow,
    FieldRow,
    OffsetIndexRow,
    ProducerBatchRow,
    RecordRow,
    Row,
    TimeIndexRow,
    dump_batches,
    dump_checkpoint_topics,
    dump_offset_index,
    dump_producer_batches,
    dump_time_index,
    dump_transaction_index,
    rows_or_problem,
)
from ottla.storage.producers.producer_batches import encode_batches
from ottla.storage.producers.producer_snapshot import encode_snapshot
from ottla.storage.producers.producer_state import ProducerEntry, ProducerStates, SequencedBatch
from ottla.wire.batch_builder import (
    ControlType,
    build_batch,
    build_control_batch,
    build_end_transaction_marker,
)
from ottla.wire.codec import encode
from ottla.wire.compression import Codec
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord

BATCH = build_batch(
    [(5, b"k", b"v"), (6, None, b"w")],
    codec=Codec.LZ4,
    base_offset=Offset(7),
    leader_epoch=Epoch(3),
)
MARKER = build_end_transaction_marker(
    ControlType.COMMIT,
    timestamp_ms=9,
    producer_id=ProducerId(1),
    producer_epoch=0,
    coordinator_epoch=Epoch(4),
    base_offset=Offset(9),
)


def only(rows: list[Row], kind: type[Row]) -> list[Row]:
    return [row for row in rows if isinstance(row, kind)]


def test_batches_are_shown_with_their_places() -> None:
    first, second = list(dump_batches(BATCH + MARKER))
    assert isinstance(first, BatchRow)
    assert isinstance(second, BatchRow)
    assert (first.position, first.base_offset, first.last_offset) == (0, 7, 8)
    assert (first.codec, first.leader_epoch, first.is_crc_valid) == ("lz4", 3, True)
    assert (second.position, second.is_control, second.is_transactional) == (len(BATCH), True, True)


def test_records_follow_their_batch() -> None:
    rows = list(dump_batches(BATCH + MARKER, is_with_records=True))
    assert [type(row) for row in rows] == [BatchRow, RecordRow, RecordRow, BatchRow, RecordRow]
    assert rows[1] == RecordRow(7, 5, b"k", b"v", (), None)
    marker = rows[4]
    assert isinstance(marker, RecordRow)
    assert marker.control == "COMMIT coordinator_epoch=4"


def test_rafts_own_control_records_are_read() -> None:
    message = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=77)
    batch = build_control_batch(
        [(ControlType.SNAPSHOT_HEADER, encode(message, 0)), (ControlType.KRAFT_VERSION, b"")],
        timestamp_ms=1,
    )
    _, header, version = dump_batches(batch, is_with_records=True)
    assert isinstance(header, RecordRow)
    assert isinstance(version, RecordRow)
    assert header.control is not None
    assert "last_contained_log_timestamp=77" in header.control
    assert version.control is not None
    assert version.control.startswith("KRAFT_VERSION unreadable")


def test_a_wrong_crc_is_shown_and_the_rest_goes_on() -> None:
    damaged = bytearray(BATCH + MARKER)
    damaged[len(BATCH) - 1] ^= 1
    first, second = dump_batches(damaged)
    assert isinstance(first, BatchRow)
    assert isinstance(second, BatchRow)
    assert not first.is_crc_valid
    assert second.is_crc_valid


def test_a_cut_batch_is_a_problem_at_its_place() -> None:
    _, problem = dump_batches(BATCH + MARKER[:-1])
    assert isinstance(problem, Problem)
    assert problem.position == len(BATCH)
    assert problem.is_damage


def test_the_hole_of_a_preallocated_file_is_no_damage() -> None:
    _, hole = dump_batches(BATCH + bytes(1000))
    assert isinstance(hole, Problem)
    assert not hole.is_damage


def test_old_message_sets_are_shown() -> None:
    message = pack(">bbqi1si1s", 1, 0, 123, 1, b"k", 1, b"v")
    data = pack(">qiI", 40, len(message) + 4, crc32(message)) + message
    batch, record = dump_batches(data, is_with_records=True)
    assert isinstance(batch, BatchRow)
    assert (batch.base_offset, batch.last_offset, batch.record_count) == (40, 40, 1)
    assert (batch.magic, batch.codec, batch.size_bytes) == (1, "none", len(data))
    assert (batch.max_timestamp, batch.is_crc_valid) == (123, True)
    assert record == RecordRow(40, 123, b"k", b"v", (), None)


@given(st.binary(max_size=300), st.integers(0, 200))
def test_no_bytes_stop_a_dump_of_batches(data: bytes, kept: int) -> None:
    for _ in dump_batches(BATCH[:kept] + data, is_with_records=True):
        pass


def test_index_entries_are_absolute() -> None:
    data = pack(">iiii", 5, 100, 9, 4000)
    assert list(dump_offset_index(data, Offset(50))) == [
        OffsetIndexRow(55, 100),
        OffsetIndexRow(59, 4000),
    ]
    data = pack(">qiqi", 1000, 5, 1001, 9)
    assert list(dump_time_index(data, Offset(50))) == [
        TimeIndexRow(1000, 55),
        TimeIndexRow(1001, 59),
    ]


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (pack(">iiii", 9, 100, 5, 4000), [8]),
        (pack(">iiii", 9, 100, 0, 0), []),
        (pack(">iiiiii", 9, 100, 0, 0, 10, 200), [8]),
        (pack(">ii", 9, 100) + b"abc", [8]),
    ],
    ids=["goes back", "preallocated", "hole between", "half an entry"],
)
def test_an_index_that_lies_is_a_problem_at_its_place(data: bytes, places: list[int]) -> None:
    rows = dump_offset_index(data, Offset(0))
    assert [row.position for row in rows if isinstance(row, Problem)] == places


def test_aborted_transactions_are_shown() -> None:
    data = pack(">hqqqq", 0, 1, 2, 3, 4) + pack(">hqqqq", 1, 1, 2, 3, 4)
    row, problem = dump_transaction_index(data)
    assert row == AbortedTransactionRow(1, 2, 3, 4)
    assert isinstance(problem, Problem)


def test_what_lies_beside_checkpoints_and_snapshots_is_shown() -> None:
    topic_id = UUID(int=7)
    text = format_topic_ids({TopicPartition("a", 0): topic_id})
    assert list(dump_checkpoint_topics(text)) == [FieldRow("a-0", uuid_to_text(topic_id))]
    states = ProducerStates(Offset(9))
    producer = ProducerEntry()
    producer.last_seen_ms = 3
    producer.batches = [SequencedBatch(0, 1, Offset(5), Offset(6), 2)]
    states.restore(8, producer)
    data = encode_batches(states, encode_snapshot(states))
    assert list(dump_producer_batches(data)) == [ProducerBatchRow(8, 3, 0, 1, 5, 6, 2)]


def test_a_small_file_that_lies_is_one_problem() -> None:
    def rows() -> list[Row]:
        parse_checkpoint(b"nonsense")
        return []

    (problem,) = rows_or_problem(lambda: iter(rows()))
    assert isinstance(problem, Problem)
