"""How far the ranges of a task are read: what is asked next, what answers mean.

Pure.  Ranges are given out one after the other, each in the order of its offsets, whoever answers
first: a task that is repeated meets its records in the same order.  What a fetch brought of a later
range is held until its turn; no more is asked of that range meanwhile, so what is held is bounded
by one answer a leader.  Invariants: InOrder, EachOnce (a position moves by what is given out, or
by what is said to be lost), BoundedAhead.
"""

from collections.abc import Iterator, Sequence

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.ranges import OffsetRange

RANGES_PER_FETCH_MAX = 64
"""Ranges of one leader that one fetch asks: it fills its answer from the first on, so more are only
of use where most are nearly empty."""


class RangeCourse:
    """One range, and how far it is read."""

    __slots__ = ("at", "held", "is_out_of_range", "lookback", "position", "range", "topic_id")

    def __init__(self, wanted: OffsetRange, lookback: int = 0) -> None:
        self.range = wanted
        self.at = TopicPartition(wanted.topic, wanted.partition)
        self.lookback = max(0, wanted.start - lookback)
        """Where reading begins; what lies before the range is read but not wanted."""
        self.position = self.lookback
        """Where the next fetch begins."""
        self.held: FetchedBatches | None = None
        """What was fetched and is not given out yet; it ends at `position`."""
        self.is_out_of_range = False
        """Whether the leader said that it has nothing at `position`."""
        self.topic_id = wanted.topic_id
        """The id that the topic had when the range was planned, or at first; empty before that."""

    @property
    def is_fetched(self) -> bool:
        """Whether nothing more is to be asked."""
        return self.position >= self.range.end

    @property
    def is_done(self) -> bool:
        """Whether everything was given out."""
        return self.is_fetched and self.held is None

    def take(self, fetched: FetchedBatches) -> None:
        """Hold what was fetched from `position` on."""
        assert self.held is None
        if fetched.next_offset > self.position:
            self.held = fetched
            self.position = fetched.next_offset

    def give(self) -> FetchedBatches:
        """Return what is held, once."""
        held, self.held = self.held, None
        assert held is not None
        return held

    def on_log_bounds(self, earliest: int, latest: int) -> str | None:
        """Move to where the log has records again; return which records are lost, if any are.

        A log that begins behind the position was shortened by retention; one that ends before it
        was cut, or is another topic's of the same name, and has nothing of the range any more.
        """
        self.is_out_of_range = False
        start, end = max(self.position, self.range.start), self.range.end
        if self.position < earliest:
            self.position = min(earliest, end)
            if start < self.position:
                return f"{self._lost(start, self.position)}: its log begins at {earliest} now"
        elif self.position > latest:
            self.position = end
            return f"{self._lost(start, end)}: its log ends at {latest} now"
        return None

    def lose_rest(self, why: str) -> str:
        """Ask no more of a partition that is not there any more; return what is lost."""
        start = max(self.position, self.range.start)
        self.position = self.range.end
        return f"{self._lost(start, self.range.end)}: {why}"

    def _lost(self, start: int, end: int) -> str:
        return f"{self.at} has lost its records from offset {start} to {end - 1}"


class Courses:
    """The ranges of one task, in the order in which they are given out."""

    def __init__(self, ranges: Sequence[OffsetRange], lookback: int = 0) -> None:
        self._courses = [RangeCourse(one, lookback) for one in ranges if one.end > one.start]
        self._first = 0

    def __iter__(self) -> Iterator[RangeCourse]:
        return iter(self._courses)

    def current(self) -> RangeCourse | None:
        """Return the range whose records come next; None when all are given out."""
        while self._first < len(self._courses) and self._courses[self._first].is_done:
            self._first += 1
        return self._courses[self._first] if self._first < len(self._courses) else None

    def hungry(self) -> Iterator[RangeCourse]:
        """Yield the ranges of which more may be asked now, in order."""
        for course in self._courses[self._first :]:
            if course.held is None and not course.is_fetched and not course.is_out_of_range:
                yield course


def data_loss(sentence: str) -> RefusedError:
    """Return the error for lost records, with what a user may do about it."""
    return RefusedError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{sentence}; set failOnDataLoss to false to go on without them",
    )
