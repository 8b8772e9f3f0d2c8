"""The task of compacting one partition once, its reports, and their encoding as lines of a pipe.

A task names closed segments, and contains everything on which the selection of their records
depends. To perform it, a worker needs only the log files and no state of the broker. On a pipe each
value is one line of JSON of at most `LINE_BYTES_MAX`. Any other line raises CorruptDataError: the
other end is not the expected program, and its process is ended.

After the task's line, the worker writes a report and reads an answer, `GO` or `STOP`. It repeats
this until it has written `CleaningDone` or `CleaningFailed`, which are not answered.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, fields
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from ottla.model.errors import CorruptDataError
from ottla.model.limits import MIB
from ottla.model.values import frozen
from ottla.storage.segments.transaction_index import AbortedTransaction

LINE_BYTES_MAX = 16 * MIB
"""Maximum length in bytes of a line between the broker and a worker. A task with 10,000 producers
and 100,000 segments has 6 MiB. A smaller limit refuses such tasks; a larger one only lets a broken
peer use more memory."""

GO = b"go\n"
"""Answer to a worker's report: continue. As the answer to a `CleanedGroup`, it means that the new
files have been swapped in."""
STOP = b"stop\n"
"""Answer to a worker's report: end the task, remove its files and report CleaningFailed(STOPPED).
"""

Throttle = Callable[[int], Awaitable[None]]
"""Async function that is awaited with each number of bytes that were read or written."""


class CleanableSegment(NamedTuple):
    """One closed and flushed segment that a compaction reads."""

    base_offset: int
    end_offset: int
    """Base offset of the next segment. Every batch ends at or before it."""
    size_bytes: int
    """Size in bytes of the complete batches; the bytes after them are not read."""
    modified_ms: int
    """Time of the file's last write in ms, from which the age of tombstones in the formats v0 and
    v1 is counted."""


class LastRecord(NamedTuple):
    """The last record of an active producer. Its batch is kept, even if it becomes empty."""

    data_offset: int
    """Offset of the producer's last data record, or -1 if it is unknown."""
    epoch: int
    """The producer's epoch. If no data batch with this epoch is left, a marker preserves it."""


@frozen(kw_only=True)
class CleaningTask:
    """All inputs for compacting a partition's log once, besides the log files."""

    directory: str
    """Path of the partition's directory."""
    segments: tuple[CleanableSegment, ...]
    """All segments to read, from the first one of the log to the one that contains `end_offset -
    1`."""
    log_start_offset: int
    first_dirty_offset: int
    """Offset below which an earlier compaction has processed all records."""
    end_offset: int
    """First offset that must not be compacted. Batches that end above it are kept unchanged."""
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    map_bytes: int
    """Memory of the offset map in bytes, at 24 bytes a slot."""
    map_load_factor: float
    """Largest fraction of the map's slots that may be used."""
    io_buffer_bytes: int
    """Number of bytes per read. A larger batch is read as a whole, whatever its size."""
    producers: Mapping[int, LastRecord]
    """The active producers by producer id."""
    aborted_beyond: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that began below `end_offset` and whose markers are in later segments.
    All other aborted transactions are read from the transaction indexes of the segments."""
    hash_seed: int = 0
    """Key of the offset map's hash function, unpredictable for clients, from 0 to 2^128 - 1."""


class CleanedGroup(NamedTuple):
    """One new segment whose `.cleaned` files are durable. The segments that it replaces are
    unchanged.

    The log, offset index and time index always exist; the transaction index exists if it has
    entries.
    """

    base_offset: int
    """Base offset of the first replaced segment. The new files are named after it."""
    sources: tuple[int, ...]
    """Base offsets of the replaced segments, in ascending order."""
    end_offset: int
    """End offset of the last replaced segment."""
    size_bytes: int
    first_timestamp_ms: int
    """Largest timestamp of the first batch in ms, or -1 if no record of the batch has a timestamp.
    """
    max_timestamp_ms: int
    max_timestamp_offset: int


@frozen(kw_only=True)
class CleaningStats:
    """Statistics of one log compaction."""

    indexed_record_count: int = 0
    indexed_bytes: int = 0
    read_record_count: int = 0
    read_bytes: int = 0
    written_record_count: int = 0
    written_bytes: int = 0
    keyless_record_count: int = 0
    """Number of records that were dropped because they have no key."""
    key_count: int = 0
    """Number of keys in the offset map."""
    key_count_max: int = 0
    """Capacity of the offset map in keys."""
    index_seconds: float = 0.0
    filter_seconds: float = 0.0


class CleaningDone(NamedTuple):
    """Result of a successful log compaction."""

    clean_to: int
    """The new first dirty offset. It is below the task's `end_offset` if the offset map was full.
    """
    stats: CleaningStats


class BytesUsed(NamedTuple):
    """A worker's request for permission to continue. It contains the number of bytes read and
    written since its previous request."""

    byte_count: int


class FailureKind(Enum):
    """Cause of a failed log compaction."""

    CORRUPT = "corrupt"
    """Failure because the log is corrupt: the partition is excluded from compaction."""
    DISK = "disk"
    """Failure because the disk failed or is full."""
    STOPPED = "stopped"
    """Failure because the broker ended the task."""
    UNEXPECTED = "unexpected"
    """Failure because of an unexpected exception: a bug in Ottla."""


class CleaningFailed(NamedTuple):
    """Result of a failed log compaction. Its unfinished files have been removed."""

    kind: FailureKind
    where: str
    error_number: int = 0
    """The errno of the OSError if the disk failed."""


Report: TypeAlias = BytesUsed | CleanedGroup | CleaningDone | CleaningFailed


def task_line(task: CleaningTask) -> bytes:
    """Return a task encoded as one line of JSON."""
    content = asdict(task)
    content["segments"] = [list(one) for one in task.segments]
    content["producers"] = [[number, *last] for number, last in task.producers.items()]
    content["aborted_beyond"] = [list(one) for one in task.aborted_beyond]
    return _line(content)


def parse_task(line: bytes) -> CleaningTask:
    """Decode a task from one line of JSON. Raises CorruptDataError if the line is not a task."""
    content = _content(line)
    try:
        given = {field.name: content.pop(field.name) for field in fields(CleaningTask)}
        given["segments"] = tuple(CleanableSegment(*_ints(one)) for one in given["segments"])
        given["producers"] = {
            number: LastRecord(*rest) for number, *rest in map(_ints, given["producers"])
        }
        given["aborted_beyond"] = tuple(
            AbortedTransaction._make(_ints(one)) for one in given["aborted_beyond"]
        )
        task = CleaningTask(**given)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"cleaning task: {error!r}") from None
    for field in fields(CleaningTask):
        if field.type is int and type(getattr(task, field.name)) is not int:
            raise CorruptDataError(f"cleaning task: {field.name} is no whole number")
    if content or type(task.directory) is not str or type(task.map_load_factor) is not float:
        raise CorruptDataError("cleaning task: fields of other types, or unknown ones")
    return task


def report_line(report: Report) -> bytes:
    """Return a report encoded as one line of JSON."""
    if isinstance(report, CleaningDone):
        return _line({"done": report.clean_to, "stats": asdict(report.stats)})
    if isinstance(report, CleaningFailed):
        return _line({"failed": [report.kind.value, report.where, report.error_number]})
    return _line({"bytes" if isinstance(report, BytesUsed) else "group": list(report)})


def parse_report(line: bytes) -> Report:
    """Decode a report from one line of JSON. Raises CorruptDataError if the line is not a
    report."""
    content = _content(line)
    try:
        if "done" in content:
            stats = CleaningStats(**content["stats"])
            if not all(type(number) in (int, float) for number in content["stats"].values()):
                raise TypeError("figures of other types")
            return CleaningDone(_ints([content["done"]])[0], stats)
        if "failed" in content:
            kind, where, error_number = content["failed"]
            return CleaningFailed(FailureKind(kind), str(where), _ints([error_number])[0])
        ((name, values),) = content.items()
        if name == "group":
            values[1] = _ints(values[1])
            _ints(values[:1] + values[2:])
            return CleanedGroup._make(values)
        if name == "bytes":
            return BytesUsed(*_ints(values))
        raise KeyError(name)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CorruptDataError(f"report of a cleaning: {error!r}") from None


def _line(content: dict[str, Any]) -> bytes:
    line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
    if len(line) > LINE_BYTES_MAX:
        raise CorruptDataError(f"a line of {len(line)} bytes is too long for a cleaning's pipe")
    return line


def _content(line: bytes) -> dict[str, Any]:
    if len(line) > LINE_BYTES_MAX:
        raise CorruptDataError(f"a line of {len(line)} bytes is too long for a cleaning's pipe")
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        raise CorruptDataError("a line of a cleaning's pipe is no JSON") from None
    if not isinstance(content, dict):
        raise CorruptDataError("a line of a cleaning's pipe is no JSON object")
    return content


def _ints(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise TypeError("not a list of whole numbers")
    return tuple(values)
