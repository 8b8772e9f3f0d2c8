"""Delivery window of a share partition: delivery state of each record from the start offset (SPSO)
to the end offset (SPEO, KIP-932).

Pure. The window is a sorted list of spans of records with equal state, without gaps and overlaps. A
span is split only if the state of some of its records changes.
"""

from bisect import bisect_right
from collections.abc import Iterator
from enum import IntEnum
from operator import attrgetter


class DeliveryState(IntEnum):
    """Delivery state of a record in a share partition, with its number in the protocol and in the
    durable state."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """State of a record whose dead letter is being written. The record is archived afterwards
    (KIP-1191)."""
    ARCHIVED = 4


TERMINAL = frozenset((DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED))
"""Delivery states of records that never change again."""

NO_MEMBER = ""
NO_DEADLINE_MS = -1


class Span:
    """Range of records in a delivery window, from `first` to `last`, both inclusive, with equal
    delivery state."""

    __slots__ = ("count", "deadline_ms", "first", "last", "member_id", "state", "transition")

    def __init__(
        self,
        first: int,
        last: int,
        state: DeliveryState,
        count: int,
        member_id: str = NO_MEMBER,
        deadline_ms: int = NO_DEADLINE_MS,
        transition: object | None = None,
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """Number of times that each record of the span was delivered."""
        self.member_id = member_id
        """Id of the member that acquired the records of the span. The id remains set until the end
        of the acquisition is durable."""
        self.deadline_ms = deadline_ms
        """Monotonic time in milliseconds at which the member's acquisition lock on the records
        ends."""
        self.transition = transition
        """Change that has set the `state` of the span but is not durable yet, or None if the state
        is durable."""

    @property
    def size(self) -> int:
        """Number of offsets in the span of records."""
        return self.last - self.first + 1

    @property
    def is_available(self) -> bool:
        """True if a member can acquire the records of the span now."""
        return self.state == DeliveryState.AVAILABLE and self.transition is None

    @property
    def is_acquired(self) -> bool:
        """True if a member has acquired the records of the span and no change of their state is
        being written."""
        return self.state == DeliveryState.ACQUIRED and self.transition is None

    @property
    def is_settled(self) -> bool:
        """True if the records of the span are acknowledged or archived and no write of that state
        is pending."""
        return self.state in TERMINAL and self.transition is None

    def is_like(self, other: "Span") -> bool:
        """Return whether the records of another span have the same delivery state as the records of
        this span."""
        return (
            self.state == other.state
            and self.count == other.count
            and self.transition is other.transition
            and self.member_id == other.member_id
            and self.deadline_ms == other.deadline_ms
        )


_first_of = attrgetter("first")


class DeliveryWindow:
    """Spans (ranges of records with equal delivery state) of one share partition, ordered by
    offset. Invariant: WholeWindow (each offset from the start offset to the end offset is in
    exactly one span)."""

    __slots__ = (
        "batch_count",
        "batch_record_count",
        "boundary",
        "end_offset",
        "spans",
        "start_offset",
    )

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        """Lowest offset of the share partition whose record is neither acknowledged nor archived
        (SPSO)."""
        self.end_offset = start_offset
        """Offset after the last record of the delivery window (SPEO + 1)."""
        self.boundary = start_offset
        """Offset at which spans of equal delivery state are not joined: the log start offset."""
        self.spans: list[Span] = []
        self.batch_count = 0
        """Number of ranges of deliverable records that were added to the delivery window so far."""
        self.batch_record_count = 0
        """Number of records in the ranges that `batch_count` counts."""

    @property
    def size(self) -> int:
        """Number of offsets in the delivery window."""
        return self.end_offset - self.start_offset

    def append(self, span: Span, *, is_gap: bool = False) -> None:
        """Add a span of records at the end of the delivery window. A gap is a range of offsets that
        no member has acquired yet, or that has no records; a gap is not counted as a batch."""
        assert span.first == self.end_offset
        assert span.first <= span.last
        self.end_offset = span.last + 1
        if not is_gap:
            self.batch_count += 1
            self.batch_record_count += span.size
        last = self.spans[-1] if self.spans else None
        if last is not None and last.is_like(span) and span.first != self.boundary:
            last.last = span.last
        else:
            self.spans.append(span)

    def index_of(self, offset: int) -> int:
        """Return the index of the span that contains an offset of the delivery window."""
        return bisect_right(self.spans, offset, key=_first_of) - 1

    def within(self, first: int, last: int) -> Iterator[Span]:
        """Yield the spans of the delivery window that overlap a range of offsets. No span may be
        split during the iteration."""
        if not self.spans or last < self.start_offset or first >= self.end_offset:
            return
        for at in range(max(0, self.index_of(first)), len(self.spans)):
            span = self.spans[at]
            if span.first > last:
                return
            yield span

    def cut(self, first: int, last: int) -> list[Span]:
        """Return spans that cover exactly a range of offsets, after splitting the spans that extend
        beyond the range. The range is limited to the window."""
        first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
        if first > last:
            return []
        span = self.spans[self.index_of(first)]
        if span.first == first and span.last == last:
            return [span]
        begin = self.split(first)
        end = self.split(last + 1)
        return self.spans[begin:end]

    def split(self, offset: int) -> int:
        """Split the span that contains an offset, so that a span begins at the offset. Returns the
        index of that span, or the number of spans if the window ends at the offset."""
        if offset >= self.end_offset:
            return len(self.spans)
        at = self.index_of(offset)
        span = self.spans[at]
        if span.first == offset:
            return at
        rest = Span(
            offset,
            span.last,
            span.state,
            span.count,
            span.member_id,
            span.deadline_ms,
            span.transition,
        )
        span.last = offset - 1
        self.spans.insert(at + 1, rest)
        return at + 1

    def join(self, first: int, last: int) -> None:
        """Join neighbouring spans of equal delivery state in a range of offsets and at its ends."""
        spans = self.spans
        if len(spans) < 2:
            return
        begin = max(0, self.index_of(first) - 1)
        end = min(len(spans), max(0, self.index_of(last)) + 2)
        before = spans[begin]
        for at in range(begin + 1, end):
            span = spans[at]
            if span.is_like(before) and span.first != self.boundary:
                break
            before = span
        else:
            return
        joined: list[Span] = []
        for span in spans[begin:end]:
            if joined and joined[-1].is_like(span) and span.first != self.boundary:
                joined[-1].last = span.last
            else:
                joined.append(span)
        spans[begin:end] = joined

    def advance(self) -> bool:
        """Move the start offset past the acknowledged and archived records at the start of the
        delivery window. Returns whether the start offset moved."""
        count = 0
        for span in self.spans:
            if not span.is_settled:
                break
            count += 1
        if not count:
            return False
        self.start_offset = self.spans[count - 1].last + 1
        del self.spans[:count]
        return True
