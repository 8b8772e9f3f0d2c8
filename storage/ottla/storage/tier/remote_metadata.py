"""The copied segments of one partition, computed from the records of the metadata topic. Pure.

Records may contradict each other: several leaders may have written them, and nothing stops a former
leader that does not know of its successor yet. A record that repeats or contradicts an earlier one
is refused with its reason and changes nothing.

Two segments may contain the same records, because a new leader closes its segments at other
offsets. A finished segment is *displaced* in a leader epoch if another segment contains all its
records of that epoch. A displaced segment stays listed until it is deleted, but look-ups return the
other segment. If two segments have equal offsets, look-ups return the later finished one. Kafka
never returns a displaced segment again, and loses some displaced segments from its lists. Here, a
displaced segment is returned again if the other segment is deleted.

A segment begins with one whole record in the state COPY_STARTED; the others are changes of its
state. The topic may be compacted if records of different states have different keys: the result is
then the same (`remote_records`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from ottla.model.ids import Epoch, Offset
from ottla.storage.tier.remote_segment import (
    NEXT_STATES,
    RemoteRecord,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentRemoval,
    RemoteSegmentState,
    RemoteSegmentUpdate,
    fault_of,
)

FINISHED = RemoteSegmentState.COPY_FINISHED
DELETED = RemoteSegmentState.DELETE_FINISHED


class _EpochSegments:
    """Copied segments that have records of one leader epoch.

    Readable segments are ordered by their first record of the epoch. No readable segment contains
    all of another one's records of the epoch, so the order of their last records is the same.
    """

    __slots__ = ("epoch", "finished", "readable", "starts")

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch
        self.finished: dict[RemoteSegmentId, RemoteSegment] = {}
        """All finished segments with records of the epoch, including displaced ones (whose records
        another segment contains), in the order in which they were finished."""
        self.starts: list[int] = []
        """For each readable segment, the offset of its first record of the epoch."""
        self.readable: list[RemoteSegment] = []

    def range_of(self, segment: RemoteSegment) -> tuple[int, int]:
        """Return the offsets of a segment's first and last record of the epoch."""
        return segment.start_offset_of(self.epoch), segment.end_offset_of(self.epoch)

    def add(self, segment: RemoteSegment) -> None:
        """Add a segment whose copy was just finished. Another segment becomes displaced, that is,
        no longer readable, if the added segment contains all its records of the epoch."""
        start, end = self.range_of(segment)
        if end < start:
            return  # the epoch has no records in this segment
        self.finished[segment.id] = segment
        self._insert(segment, start, end)

    def remove(self, segment: RemoteSegment) -> None:
        """Remove a segment before its deletion. Other segments that were displaced only because of
        this segment become readable again."""
        if self.finished.pop(segment.id, None) is None:
            return
        has_displaced = len(self.readable) <= len(self.finished)
        if has_displaced:
            self.starts, self.readable = [], []
            for each in self.finished.values():
                self._insert(each, *self.range_of(each))
            return
        at = bisect_left(self.starts, self.range_of(segment)[0])
        del self.starts[at], self.readable[at]

    def floor(self, offset: int) -> RemoteSegment | None:
        """Return the readable segment that contains the epoch's record at an offset, or None if no
        segment contains it."""
        at = bisect_right(self.starts, offset) - 1
        if at < 0 or self.range_of(self.readable[at])[1] < offset:
            return None
        return self.readable[at]

    def _insert(self, segment: RemoteSegment, start: int, end: int) -> None:
        low = bisect_left(self.starts, start)
        before = bisect_right(self.starts, start) - 1
        if before >= 0:
            other_start, other_end = self.range_of(self.readable[before])
            if other_end > end or (other_end == end and other_start < start):
                return  # covered by a segment that is larger
        high = low
        while high < len(self.readable) and self.range_of(self.readable[high])[1] <= end:
            high += 1
        self.starts[low:high] = [start]
        self.readable[low:high] = [segment]


class RemoteMetadata:
    """The copied segments of one partition, by id and by leader epoch."""

    def __init__(self) -> None:
        self._segments: dict[RemoteSegmentId, RemoteSegment] = {}
        self._epochs: dict[Epoch, _EpochSegments] = {}

    def apply(self, record: RemoteRecord) -> str | None:
        """Apply the next record of the metadata topic. Returns the reason if the record is refused,
        or None if it was applied."""
        known = self._segments.get(record.id)
        match record:
            case RemoteSegment():
                if known is not None:
                    return f"segment {record.id.segment_id} is already {known.state.name}"
                if record.state is not RemoteSegmentState.COPY_STARTED:
                    return f"segment {record.id.segment_id} begins as {record.state.name}"
                fault = fault_of(record)
                if fault is not None:
                    return f"segment {record.id.segment_id} is impossible: {fault}"
                self._segments[record.id] = record
                return None
            case RemoteSegmentUpdate() | RemoteSegmentRemoval():
                if known is None:
                    return f"segment {record.id.segment_id} is unknown"
                if record.state not in NEXT_STATES[known.state]:
                    return (
                        f"segment {record.id.segment_id} cannot change from {known.state.name} to "
                        f"{record.state.name}"
                    )
                self._change(known, record)
                return None

    def get(self, segment_id: RemoteSegmentId) -> RemoteSegment | None:
        """Return the segment with this id, or None if the segment is unknown or deleted."""
        return self._segments.get(segment_id)

    def all_segments(self) -> Iterator[RemoteSegment]:
        """Yield all copied segments that are not deleted, in the order in which their copies were
        started."""
        yield from self._segments.values()

    def segments_of(self, epoch: Epoch) -> list[RemoteSegment]:
        """Return all copied segments whose leader epochs include `epoch`, in any state, ordered by
        start offset."""
        listed = [
            segment
            for segment in self._segments.values()
            if any(entry.epoch == epoch for entry in segment.leader_epochs)
        ]
        return sorted(listed, key=lambda segment: (segment.start_offset, segment.end_offset))

    def readable_segments(self, epoch: Epoch) -> Sequence[RemoteSegment]:
        """Return the segments from which records of a leader epoch are read, ordered by offset.

        Unfinished segments are omitted. Displaced segments are also omitted, because all their
        records are in another segment.
        """
        segments = self._epochs.get(epoch)
        return () if segments is None else tuple(segments.readable)

    def find(self, epoch: Epoch, offset: Offset) -> RemoteSegment | None:
        """Return the readable segment that contains the record with this offset and leader epoch.
        Returns None if no segment contains it."""
        segments = self._epochs.get(epoch)
        return None if segments is None else segments.floor(offset)

    def next_with_transaction_index(self, epoch: Epoch, offset: Offset) -> RemoteSegment | None:
        """Return the first readable segment that has a transaction index. The search begins with
        the segment that contains the record with this offset and leader epoch. It ends at the end
        of the epoch, or at the first record that is not copied. Returns None if no segment is
        found."""
        segment = self.find(epoch, offset)
        while segment is not None and segment.has_empty_transaction_index:
            segment = self.find(epoch, Offset(segment.end_offset_of(epoch) + 1))
        return segment

    def highest_offset(self, epoch: Epoch) -> Offset | None:
        """Return the highest offset of a leader epoch whose record is readable in a copied segment,
        or None if no record is. Deleted segments do not count (in Kafka they do until the metadata
        is loaded again)."""
        segments = self._epochs.get(epoch)
        if segments is None or not segments.readable:
            return None
        return segments.readable[-1].end_offset_of(epoch)

    def _change(
        self, known: RemoteSegment, record: RemoteSegmentUpdate | RemoteSegmentRemoval
    ) -> None:
        for entry in known.leader_epochs:
            if known.state is FINISHED:
                self._withdraw(known, entry.epoch)
        if isinstance(record, RemoteSegmentRemoval) or record.state is DELETED:
            del self._segments[known.id]
            return
        changed = record.applied_to(known)
        self._segments[known.id] = changed
        if changed.state is FINISHED:
            for entry in changed.leader_epochs:
                self._epochs.setdefault(entry.epoch, _EpochSegments(entry.epoch)).add(changed)

    def _withdraw(self, segment: RemoteSegment, epoch: Epoch) -> None:
        """Exclude a finished segment from searches for records of a leader epoch."""
        segments = self._epochs[epoch]
        segments.remove(segment)
        if not segments.finished:
            del self._epochs[epoch]
