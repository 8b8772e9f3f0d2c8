"""One cleaning of one partition as values: the task, its reports, and their lines for a pipe.

A task names closed segments and all that decides about their records; who carries it out needs
the files and nothing else of the broker.  Over a pipe each value is one line of JSON, of at most
`LINE_BYTES_MAX`.  A line that is no such value is CorruptDataError: the other end is not the
program it should be, and its process is ended.

Dialogue of a worker, after the task's line: the worker writes a report and reads an answer, `GO` or
`STOP`, until it has written `CleaningDone` or `CleaningFailed`, which are not answered.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, fields
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from ottla.model.errors import CorruptDataError
from ottla.model.limits import MIB
from ottla.model.values import frozen
from ottla.storage.transaction_index import AbortedTransaction

LINE_BYTES_MAX = 16 * MIB
"""Largest line.  A task of 10,000 producers and 100,000 segments has 6 MiB; a larger bound only
lets a broken peer take more memory."""

GO = b"go\n"
"""Answer to a report: continue.  After a `CleanedGroup` its files have been swapped in."""
STOP = b"stop\n"
"""Answer to a report: end the task, remove its files and report CleaningFailed(STOPPED)."""

Throttle = Callable[[int], Awaitable[None]]
"""Awaited with each count of bytes that were read or written."""


class CleanableSegment(NamedTuple):
    """One closed segment, its files flushed."""

    base_offset: int
    end_offset: int
    """Base offset of the next segment: every batch ends at or before it."""
    size_bytes: int
    """Bytes of its whole batches; nothing after them is read."""
    modified_ms: int
    """When the file was last written, from which tombstones of the formats v0 and v1 count."""


class LastRecord(NamedTuple):
    """What an active producer wrote last; the batch that holds it is kept, if need be empty."""

    data_offset: int
    """Offset of the last record of its last data batch, -1 if it is not known."""
    epoch: int
    """Its epoch, which a marker holds when no data batch does."""


@frozen(kw_only=True)
class CleaningTask:
    """What one cleaning is asked."""

    directory: str
    """The partition's directory."""
    segments: tuple[CleanableSegment, ...]
    """All segments from the log's first on; the last one holds `end_offset - 1`."""
    log_start_offset: int
    first_dirty_offset: int
    """All below was deduplicated by an earlier cleaning."""
    end_offset: int
    """First uncleanable offset: batches that end above it stay as they are."""
    high_watermark: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    max_message_bytes: int
    map_bytes: int
    """Memory of the offset map; 24 bytes a key."""
    map_load_factor: float
    """The part of the map's slots that is used at most."""
    io_buffer_bytes: int
    """Bytes read at once; a larger batch is read as a whole, whatever its size."""
    producers: Mapping[int, LastRecord]
    """The active producers by id."""
    aborted_beyond: tuple[AbortedTransaction, ...] = ()
    """Aborted transactions that began below `end_offset` and whose markers lie in later segments
    than these; the others are read from the segments' own indexes."""
    hash_seed: int = 0
    """Key of the map's hash, unpredictable for clients: 0 up to 2^128 - 1."""


class CleanedGroup(NamedTuple):
    """One new segment whose `.cleaned` files are durable; what it replaces is untouched.

    Its log, offset index and time index are there always, its transaction index if it has entries.
    """

    base_offset: int
    """Names the files, and is the base offset of the first source."""
    sources: tuple[int, ...]
    """Base offsets of the segments that it replaces, in order."""
    end_offset: int
    """End offset of the last source."""
    size_bytes: int
    first_timestamp_ms: int
    """Largest timestamp of the first batch, -1 if there is none."""
    max_timestamp_ms: int
    max_timestamp_offset: int


@frozen(kw_only=True)
class CleaningStats:
    """Figures of one cleaning."""

    indexed_record_count: int = 0
    indexed_bytes: int = 0
    read_record_count: int = 0
    read_bytes: int = 0
    written_record_count: int = 0
    written_bytes: int = 0
    keyless_record_count: int = 0
    """Records without key that were dropped."""
    key_count: int = 0
    """Keys in the map."""
    key_count_max: int = 0
    """Keys that the map takes."""
    index_seconds: float = 0.0
    filter_seconds: float = 0.0


class CleaningDone(NamedTuple):
    """The end of a cleaning."""

    clean_to: int
    """The new first dirty offset, below the task's `end_offset` where the map was full."""
    stats: CleaningStats


class BytesUsed(NamedTuple):
    """A worker's question whether it may continue after these bytes read and written."""

    byte_count: int


class FailureKind(Enum):
    """Whose fault a failed cleaning is."""

    CORRUPT = "corrupt"
    """The log's bytes lie: the partition is set aside."""
    DISK = "disk"
    """The disk failed or is full."""
    STOPPED = "stopped"
    """It was asked to end."""
    UNEXPECTED = "unexpected"
    """Our own."""


class CleaningFailed(NamedTuple):
    """The end of a cleaning that came to none; its unfinished files are removed."""

    kind: FailureKind
    where: str
    error_number: int = 0
    """The errno of a disk's failure."""


Report: TypeAlias = BytesUsed | CleanedGroup | CleaningDone | CleaningFailed


def task_line(task: CleaningTask) -> bytes:
    """Return a task as a line."""
    content = asdict(task)
    content["segments"] = [list(one) for one in task.segments]
    content["producers"] = [[number, *last] for number, last in task.producers.items()]
    content["aborted_beyond"] = [list(one) for one in task.aborted_beyond]
    return _line(content)


def parse_task(line: bytes) -> CleaningTask:
    """Return the task of a line.  Raises CorruptDataError if it is none."""
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
    """Return a report as a line."""
    if isinstance(report, CleaningDone):
        return _line({"done": report.clean_to, "stats": asdict(report.stats)})
    if isinstance(report, CleaningFailed):
        return _line({"failed": [report.kind.value, report.where, report.error_number]})
    return _line({"bytes" if isinstance(report, BytesUsed) else "group": list(report)})


def parse_report(line: bytes) -> Report:
    """Return the report of a line.  Raises CorruptDataError if it is none."""
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
