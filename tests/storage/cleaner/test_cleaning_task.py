"""The lines between a broker and its cleaning workers."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset
from ottla.storage.cleaner.cleaning_task import (
    LINE_BYTES_MAX,
    BytesUsed,
    CleanableSegment,
    CleanedGroup,
    CleaningDone,
    CleaningFailed,
    CleaningStats,
    CleaningTask,
    FailureKind,
    LastRecord,
    Report,
    parse_report,
    parse_task,
    report_line,
    task_line,
)
from ottla.storage.segments.transaction_index import AbortedTransaction

TASK = CleaningTask(
    directory="/data/orders-0",
    segments=(CleanableSegment(0, 100, 4_000, 1), CleanableSegment(100, 150, 3_000, 2)),
    log_start_offset=0,
    first_dirty_offset=100,
    end_offset=140,
    high_watermark=160,
    now_ms=1_000,
    delete_retention_ms=500,
    segment_bytes=1 << 20,
    segment_index_bytes=1 << 16,
    index_interval_bytes=4_096,
    max_message_bytes=1 << 20,
    map_bytes=24_000,
    map_load_factor=0.9,
    io_buffer_bytes=1 << 18,
    producers={7: LastRecord(130, 2), 8: LastRecord(-1, 0)},
    aborted_beyond=(AbortedTransaction(7, Offset(120), Offset(155), Offset(156)),),
    hash_seed=(1 << 128) - 1,
)


def test_a_task_is_read_as_it_was_written() -> None:
    line = task_line(TASK)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert parse_task(line) == TASK


@pytest.mark.parametrize(
    "report",
    [
        BytesUsed(65_536),
        CleanedGroup(0, (0, 100), 150, 5_000, 10, 20, 99),
        CleaningDone(140, CleaningStats(key_count=5, index_seconds=0.25)),
        CleaningFailed(FailureKind.CORRUPT, "00.log: position 61", 0),
        CleaningFailed(FailureKind.DISK, "no space left", 28),
    ],
    ids=lambda report: type(report).__name__,
)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    assert parse_report(report_line(report)) == report


@given(st.binary(max_size=60) | st.sampled_from([task_line(TASK), report_line(BytesUsed(1))]))
def test_any_other_line_is_corrupt(line: bytes) -> None:
    if line != task_line(TASK):
        with pytest.raises(CorruptDataError):
            parse_task(line)
    if line != report_line(BytesUsed(1)):
        with pytest.raises(CorruptDataError):
            parse_report(line)


@pytest.mark.parametrize("name", list(json.loads(task_line(TASK))))
def test_a_task_with_a_field_of_another_kind_is_corrupt(name: str) -> None:
    content = json.loads(task_line(TASK))
    for value in (None, True, "5" if name != "directory" else 5, [[1]]):
        with pytest.raises(CorruptDataError):
            parse_task(json.dumps({**content, name: value}).encode())
    del content[name]
    with pytest.raises(CorruptDataError):
        parse_task(json.dumps(content).encode())


@pytest.mark.parametrize(
    "content",
    [
        {"bytes": [True]},
        {"bytes": [1, 2]},
        {"group": [1, 2, 3]},
        {"group": []},
        {"done": 5, "stats": {"unknown": 1}},
        {"done": 5, "stats": {"key_count": "many"}},
        {"done": 5},
        {"failed": ["tired", "", 0]},
        {"other": []},
        {},
    ],
)
def test_a_report_with_a_field_of_another_kind_is_corrupt(content: object) -> None:
    with pytest.raises(CorruptDataError):
        parse_report(json.dumps(content).encode())


def test_a_line_that_is_too_long_is_neither_read_nor_written() -> None:
    with pytest.raises(CorruptDataError, match="too long"):
        parse_report(b" " * (LINE_BYTES_MAX + 1))
    with pytest.raises(CorruptDataError, match="too long"):
        report_line(CleaningFailed(FailureKind.UNEXPECTED, "x" * LINE_BYTES_MAX))
