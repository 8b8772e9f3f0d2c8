"""The task of compacting one partition once, its reports, and their encoding as lines of a pipe.

A task names closed segments, and contains all data on which the selection of their records depends.
To perform it, a worker needs only the log files and no state of the broker. On a pipe, each value
is one line of JSON of at most `LINE_BYTES_MAX`. Any other line raises CorruptDataError: the peer is
not the expected program, and its process is ended.

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
"""Maximum length in bytes of a line between the broker and a worker process of the cleaner. A task
with 10,000 producers and 100,000 segments has 6 MiB. A smaller limit refuses such tasks. With a
larger one, a broken peer can use more memory."""

GO = b"go\n"
"""Line by which the broker permits a worker to continue after a report. After a `CleanedGroup`, it
means that the new files have been swapped in."""
STOP = b"stop\n"
"""Line by which the broker stops a worker after a report. The worker then removes its files and
reports CleaningFailed(STOPPED)."""

Throttle = Callable[[int], Awaitable[None]]
"""Async function that a compaction awaits after each read or write, with the number of bytes. It
returns when the compaction may continue."""


class CleanableSegment(NamedTuple):
    """One closed and flushed segment that a compaction reads."""

    base_offset: int
    end_offset: int
    """Base offset of the next segment. The last offset of every batch in this segment is below the
    base offset of the next segment."""
    size_bytes: int
    """Size in bytes of the segment's complete batches. Further bytes are not read."""
    modified_ms: int
    """Time of the last write to the segment's file, in ms since 1970. The age of tombstones in the
    formats v0 and v1 is measured from this time."""


class LastRecord(NamedTuple):
    """The last record of an active producer. Compaction retains the record's batch, even if the
    batch becomes empty."""

    data_offset: int
    """Offset of the producer's last data record, or -1 if the offset is unknown."""
    epoch: int
    """The producer's epoch. Compaction keeps a transaction marker with this epoch if no data batch
    with this epoch is left."""


@frozen(kw_only=True)
class CleaningTask:
    """Inputs of one compaction of a partition's log, apart from the log files."""

    directory: str
    """Path of the partition's directory, whose log is compacted."""
    segments: tuple[CleanableSegment, ...]
    """Segments that the compaction reads: from the first segment of the log to the segment that
    contains `end_offset - 1`."""
    log_start_offset: int
    first_dirty_offset: int
    """Offset below which an earlier compaction has processed all records of the log."""
    end_offset: int
    """First offset that the compaction must not change. Batches that end above it are kept
    unchanged."""
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    map_bytes: int
    """Memory in bytes for the offset map of the compaction, which uses 24 bytes per slot."""
    map_load_factor: float
    """Largest fraction of the offset map's slots that may be used, from 0 to 1."""
    io_buffer_bytes: int
    """Number of bytes of a log file that the compaction reads at once. A larger batch is always
    read completely."""
    producers: Mapping[int, LastRecord]
    """Last record of each active producer of the log, by producer id."""
    aborted_beyond: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that began below `end_offset` and whose markers are in later segments.
    All other aborted transactions are read from the transaction indexes of the segments."""
    hash_seed: int = 0
    """Key of the offset map's hash function, unpredictable for clients, from 0 to 2^128 - 1."""


class CleanedGroup(NamedTuple):
    """One new segment whose `.cleaned` files are durable. The old segments have not been changed.

    The log, offset index and time index always exist; the transaction index exists if it has
    entries.
    """

    base_offset: int
    """Base offset of the first replaced segment. It is also the offset in the names of the new
    files."""
    sources: tuple[int, ...]
    """Base offsets of the segments that the new segment replaces, in ascending order."""
    end_offset: int
    """End offset of the last segment that the new segment replaces."""
    size_bytes: int
    first_timestamp_ms: int
    """Largest timestamp, in ms since 1970, in the first batch of the new segment. -1 if no record
    of that batch has a timestamp."""
    max_timestamp_ms: int
    max_timestamp_offset: int


@frozen(kw_only=True)
class CleaningStats:
    """Statistics of one log compaction: numbers of records, bytes and keys, and durations in
    seconds."""

    indexed_record_count: int = 0
    indexed_bytes: int = 0
    read_record_count: int = 0
    read_bytes: int = 0
    written_record_count: int = 0
    written_bytes: int = 0
    keyless_record_count: int = 0
    """Number of records that the compaction dropped because they have no key."""
    key_count: int = 0
    """Number of keys in the compaction's offset map."""
    key_count_max: int = 0
    """Maximum number of keys in the compaction's offset map."""
    index_seconds: float = 0.0
    filter_seconds: float = 0.0


class CleaningDone(NamedTuple):
    """Result of a successful log compaction, with its statistics."""

    clean_to: int
    """First dirty offset after the compaction. It is below the task's `end_offset` if the offset
    map was full."""
    stats: CleaningStats


class BytesUsed(NamedTuple):
    """Report of a cleaner's worker process that requests permission to continue. It contains the
    number of bytes read and written since the previous request."""

    byte_count: int


class FailureKind(Enum):
    """Cause of a failed log compaction: a corrupt log, the disk, a stop by the broker, or a bug."""

    CORRUPT = "corrupt"
    """Failure of a compaction because the log is corrupt. The partition is then excluded from
    compaction."""
    DISK = "disk"
    """Failure of a compaction because the disk failed or is full."""
    STOPPED = "stopped"
    """Failure of a compaction because the broker stopped the compaction."""
    UNEXPECTED = "unexpected"
    """Failure of a compaction because of an unexpected exception: a bug in Ottla."""


class CleaningFailed(NamedTuple):
    """Result of a failed log compaction. Its unfinished files have been removed."""

    kind: FailureKind
    where: str
    error_number: int = 0
    """The errno of the OSError with which the compaction failed. 0 if the disk was not the
    cause."""


Report: TypeAlias = BytesUsed | CleanedGroup | CleaningDone | CleaningFailed


def task_line(task: CleaningTask) -> bytes:
    """Return a cleaning task encoded as one line of JSON, for the worker process."""
    content = asdict(task)
    content["segments"] = [list(one) for one in task.segments]
    content["producers"] = [[number, *last] for number, last in task.producers.items()]
    content["aborted_beyond"] = [list(one) for one in task.aborted_beyond]
    return _line(content)


def parse_task(line: bytes) -> CleaningTask:
    """Decode a cleaning task from one line of JSON. Raises CorruptDataError if the line is not a
    task."""
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
    """Return the report of a worker process encoded as one line of JSON."""
    if isinstance(report, CleaningDone):
        return _line({"done": report.clean_to, "stats": asdict(report.stats)})
    if isinstance(report, CleaningFailed):
        return _line({"failed": [report.kind.value, report.where, report.error_number]})
    return _line({"bytes" if isinstance(report, BytesUsed) else "group": list(report)})


def parse_report(line: bytes) -> Report:
    """Decode the report of a worker process from one line of JSON. Raises CorruptDataError if the
    line is not a report."""
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
