"""Progress of a Spark task's offset ranges: the next fetch requests, and the interpretation of
their responses.

Pure. The ranges are returned one after the other, each in the order of its offsets, regardless of
which leader responds first. A repeated task therefore reads its records in the same order. If
batches of a later range arrive early, they wait until the earlier ranges are complete. In the
meantime, no further batches of that range are requested, so at most one response per leader waits.
Invariants: InOrder, EachOnce (a position moves by returned batches, or by reported losses),
BoundedAhead.
"""

from collections.abc import Iterator, Sequence

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.ranges import OffsetRange

RANGES_PER_FETCH_MAX = 64
"""Maximum number of offset ranges of one leader in one fetch request. The broker fills the response
from the first range on, so more ranges are useful only if most of them are nearly empty."""


class RangeProgress:
    """One offset range of a Spark task, and the progress of reading it."""

    __slots__ = ("at", "held", "is_out_of_range", "lookback", "position", "range", "topic_id")

    def __init__(self, wanted: OffsetRange, lookback: int = 0) -> None:
        self.range = wanted
        self.at = TopicPartition(wanted.topic, wanted.partition)
        self.lookback = max(0, wanted.start - lookback)
        """First offset to read, at or before the start of the range. Records before the range are
        read only to detect records that were written repeatedly."""
        self.position = self.lookback
        """Offset from which the next fetch of the range starts."""
        self.held: FetchedBatches | None = None
        """Fetched record batches of the range that have not been returned yet, which end at
        `position`. None if all have been returned."""
        self.is_out_of_range = False
        """True if the leader responded that the next fetch's offset (`position`) is out of
        range."""
        self.topic_id = wanted.topic_id
        """Topic id, known from the planning of the query or else from the first fetch. Empty while
        it is unknown."""

    @property
    def is_fetched(self) -> bool:
        """True if the offset range needs no further fetch."""
        return self.position >= self.range.end

    @property
    def is_done(self) -> bool:
        """True if all batches of the offset range have been returned to the caller."""
        return self.is_fetched and self.held is None

    def take(self, fetched: FetchedBatches) -> None:
        """Store record batches of the range that were fetched from `position` on."""
        assert self.held is None
        if fetched.next_offset > self.position:
            self.held = fetched
            self.position = fetched.next_offset

    def give(self) -> FetchedBatches:
        """Remove and return the record batches that are stored for this range."""
        held, self.held = self.held, None
        assert held is not None
        return held

    def on_log_bounds(self, earliest: int, latest: int) -> str | None:
        """Move the position in the range to the next record that exists in a log from offset
        `earliest` to `latest`. Returns a message about the lost records of the range, or None if no
        record was lost.

        If the log starts after the position, retention has deleted records. If the log ends before
        the position, it was truncated, or belongs to another topic of the same name. Such a log has
        no record of the range.
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
        """Mark the rest of the offset range as lost. It is then not requested again. Returns a
        message about the lost records, with the reason `why`."""
        start = max(self.position, self.range.start)
        self.position = self.range.end
        return f"{self._lost(start, self.range.end)}: {why}"

    def _lost(self, start: int, end: int) -> str:
        return f"{self.at} has lost its records from offset {start} to {end - 1}"


class TaskRanges:
    """Offset ranges of one Spark task, in the order of their output."""

    def __init__(self, ranges: Sequence[OffsetRange], lookback: int = 0) -> None:
        self._task_ranges = [RangeProgress(one, lookback) for one in ranges if one.end > one.start]
        self._first = 0

    def __iter__(self) -> Iterator[RangeProgress]:
        return iter(self._task_ranges)

    def current(self) -> RangeProgress | None:
        """Return the offset range whose records come next in the output, or None after the last
        range."""
        while self._first < len(self._task_ranges) and self._task_ranges[self._first].is_done:
            self._first += 1
        return self._task_ranges[self._first] if self._first < len(self._task_ranges) else None

    def unfetched(self) -> Iterator[RangeProgress]:
        """Yield the offset ranges that may be requested from brokers now, in order."""
        for progress in self._task_ranges[self._first :]:
            if progress.held is None and not progress.is_fetched and not progress.is_out_of_range:
                yield progress


def data_loss(sentence: str) -> RefusedError:
    """Return the error for lost records. The message consists of `sentence` and advice on how to
    continue."""
    return RefusedError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{sentence}; set failOnDataLoss to false to go on without them",
    )
