"""Positions of an exported table in its topic: the next offset of each partition, and the detection
of gaps.

A table stores its position in the same atomic change as the rows up to it, so that rows and
position never disagree. Pure. Invariants: EveryRecordOnce (ranges of successive commits join
without gap or overlap), GapsAreErrors (no position moves past records that the log has lost).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.pipeline.read.ranges import OffsetRange

VERSION = 1
POSITION_KEY = "ottla.export"
"""Key under which an export's position is stored in a Parquet footer, a snapshot's summary or a
table's properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogBounds:
    """Bounds of a topic's logs: the topic's id, and the offsets [start, end) of each partition's
    log."""

    topic: str
    topic_id: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """Position of an export in its topic after a commit: the next offset of each partition."""

    topic: str
    topic_id: str
    """Topic id in Kafka's text form; empty if the cluster has no topic ids."""
    next_offsets: Mapping[int, int]
    """Offset of the first record that is not in the exported table, by partition."""
    commit_number: int = 0
    """Number of commits to the exported table so far."""
    commit_id: str = ""
    """Random text that identifies the commit. An export recognises its own commit by this text
    after a lost response."""
    ranges: Mapping[int, tuple[int, int]] | None = None
    """Offsets [start, end) of the records that the last commit added to the table, by partition.
    None if there was no commit."""

    def to_text(self) -> str:
        """Return the position of the export as a JSON text."""
        return json.dumps(
            {
                "version": VERSION,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "commit_number": self.commit_number,
                "commit_id": self.commit_id,
                "next_offsets": _with_text_keys(self.next_offsets),
                "ranges": _with_text_keys(self.ranges or {}),
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_text(cls, text: str, where: str) -> "TablePosition":
        """Parse the JSON text that `to_text` has returned, and return the position. Raises
        CorruptDataError if the text is malformed; `where` names the file or table in the error."""
        try:
            found = json.loads(text)
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}")
            return cls(
                topic=_text(found["topic"]),
                topic_id=_text(found["topic_id"]),
                commit_number=_offset(found["commit_number"]),
                commit_id=_text(found["commit_id"]),
                next_offsets={
                    int(number): _offset(offset) for number, offset in found["next_offsets"].items()
                },
                ranges={
                    int(number): (_offset(start), _offset(end))
                    for number, (start, end) in found["ranges"].items()
                },
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptDataError(f"{where}: the position of the export: {error!r}") from None


def first_position(bounds: LogBounds) -> TablePosition:
    """Return the position of a new exported table, which is the start of each partition's log."""
    return TablePosition(
        topic=bounds.topic, topic_id=bounds.topic_id, next_offsets=dict(bounds.starts)
    )


def pending_ranges(position: TablePosition, bounds: LogBounds) -> list[OffsetRange]:
    """Return the ranges of the topic's offsets that the exported table lacks, by partition, without
    empty ranges.

    A partition that was added to the topic begins at 0. Raises RefusedError if records between the
    table's end and the log's start are lost. Also raises RefusedError if a log was truncated, a
    partition was deleted, or the topic was created again.
    """
    _check_topic(position, bounds)
    found = []
    for partition in sorted(bounds.ends):
        start, end = bounds.starts[partition], bounds.ends[partition]
        next_offset = position.next_offsets.get(partition, 0)
        name = f"{bounds.topic}-{partition}"
        if next_offset < start:
            raise gap(
                f"{name} has lost its records from offset {next_offset}, where the table ends, to "
                f"{start - 1}: its log begins at {start} now"
            )
        if end < next_offset:
            raise gap(
                f"{name} ends at offset {end}, and the table has its records up to "
                f"{next_offset - 1}: the log was truncated"
            )
        if next_offset < end:
            found.append(OffsetRange(bounds.topic, partition, next_offset, end, bounds.topic_id))
    gone = sorted(position.next_offsets.keys() - bounds.ends.keys())
    if gone:
        raise gap(f"{bounds.topic}-{gone[0]} is gone, which the table has records of")
    return found


def gap(sentence: str) -> RefusedError:
    """Return the error for records that the log has lost before they were exported to the table.
    The message consists of `sentence` and the remedy."""
    return RefusedError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{sentence}; export into another place, which begins at the present start of the log",
    )


def _check_topic(position: TablePosition, bounds: LogBounds) -> None:
    if position.topic != bounds.topic:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            f"the table has records of topic {position.topic!r}, not of {bounds.topic!r}; export "
            "into another place",
        )
    if position.topic_id == bounds.topic_id:
        return
    table_ends = ", ".join(f"{one}: {end}" for one, end in sorted(position.next_offsets.items()))
    log_ends = ", ".join(
        f"{one}: {bounds.starts[one]} to {end}" for one, end in sorted(bounds.ends.items())
    )
    raise gap(
        f"topic {bounds.topic!r} was deleted and created again: the table ends at offsets "
        f"{{{table_ends}}} of topic id {position.topic_id}, the logs of topic id "
        f"{bounds.topic_id} have {{{log_ends}}}"
    )


class ExportProgress:
    """Progress of an export between two commits: the position after the rows that were read."""

    def __init__(self, position: TablePosition) -> None:
        self.committed = position
        """Position of the export's last commit."""
        self._next = dict(position.next_offsets)
        self._ranges: Sequence[OffsetRange] = ()
        self._at = 0
        self.row_count = 0
        """Number of rows that were read since the export's last commit."""

    def begin(self, ranges: Sequence[OffsetRange]) -> None:
        """Start reading ranges of offsets. Their records must then be added in the order of the
        ranges."""
        self._ranges, self._at = ranges, 0

    def add(self, partition: int, first: int, last: int, count: int) -> None:
        """Count `count` rows of one partition as read, with offsets from `first` to `last`
        inclusive."""
        while self._ranges[self._at].partition != partition:
            self._finish()
        wanted = self._ranges[self._at]
        assert self._next.get(partition, 0) <= first
        assert first <= last < wanted.end
        self._next[partition] = last + 1
        self.row_count += count

    def end(self) -> None:
        """Finish all ranges of offsets: those without records, such as markers, count as read."""
        while self._at < len(self._ranges):
            self._finish()

    def position(self, commit_id: str) -> TablePosition:
        """Return the position to commit to the table with the rows since the last commit."""
        before = self.committed.next_offsets
        return TablePosition(
            topic=self.committed.topic,
            topic_id=self.committed.topic_id,
            next_offsets=dict(self._next),
            commit_number=self.committed.commit_number + 1,
            commit_id=commit_id,
            ranges={
                partition: (before.get(partition, 0), end)
                for partition, end in sorted(self._next.items())
                if end > before.get(partition, 0)
            },
        )

    def on_committed(self, position: TablePosition) -> None:
        """Record that the rows read so far and their position were committed to the table."""
        self.committed = position
        self.row_count = 0

    def present(self) -> TablePosition:
        """Return the position after all rows that were read, committed or not. The next ranges of
        offsets start at this position."""
        return self.position(self.committed.commit_id)

    def _finish(self) -> None:
        done = self._ranges[self._at]
        self._next[done.partition] = done.end
        self._at += 1


def _with_text_keys(found: Mapping[int, Any]) -> dict[str, Any]:
    return {str(key): found[key] for key in sorted(found)}


def _text(found: object) -> str:
    if not isinstance(found, str):
        raise TypeError(repr(found))
    return found


def _offset(found: object) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(repr(found))
    return found
