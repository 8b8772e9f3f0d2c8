"""Which partitions a consumer reads, where it stands in each, and what is fetched ahead.

Pure.  A position is the offset of the next record the application gets; fetching runs ahead of it,
by about one answer.  Whatever moves a position otherwise than by reading drops what was fetched
ahead, and an answer to a question asked before that is dropped too.  Invariants: NothingIsSkipped
(positions move by what was given out, else only by seek, reset or a told divergence), EachOnce.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ottla.client.fetch.fetched import Fetched
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.telemetry.measures import FetchMeasures
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.settings.offset_reset import OffsetReset
from ottla.wire.offset_timestamps import EARLIEST, LATEST

RESET_PAUSE_MS_MAX = 1_000
"""Longest pause before a position is looked up that was out of range time and again: Kafka's
default of `retry.backoff.max.ms`."""

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class PartitionPlace:
    """One partition: where the application stands, where fetching stands."""

    __slots__ = (
        "_position",
        "at",
        "fetch",
        "fetched",
        "given",
        "high_watermark",
        "is_paused",
        "is_refused",
        "look_up_from_ms",
        "lookup",
        "reset_count",
        "turn",
    )

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self._position: OffsetAndEpoch | None = None
        self.given: Fetched | None = None
        """What has the position, where records of it were given out one by one."""
        self.fetch = OffsetAndEpoch(Offset(0), NO_EPOCH)
        self.fetched: deque[Fetched] = deque()
        self.is_paused = False
        self.high_watermark = Offset(-1)
        """As the last answer with news of the partition gave it; -1 before."""
        self.is_refused = False
        """True if the offset behind what is fetched is out of range: that is read first."""
        self.lookup: int | None = None
        """The timestamp to look up instead (EARLIEST and LATEST too); None: the committed offset,
        or else what `auto.offset.reset` says."""
        self.reset_count = 0
        """Resets because of an offset out of range, since records arrived or the last seek."""
        self.look_up_from_ms = 0
        """Time before which the position is not looked up, of the clock of `on_out_of_range`."""
        self.turn = 0
        """Counts what moved the position otherwise than by reading."""

    @property
    def position(self) -> OffsetAndEpoch | None:
        """The next record to give out, and the epoch of the one before it; None until known."""
        given = self.given
        return self._position if given is None else OffsetAndEpoch(given.offset, given.epoch)

    def move_to(self, position: OffsetAndEpoch | None) -> None:
        """Give out next what is at a position."""
        self._position, self.given = position, None

    @property
    def buffered_bytes(self) -> int:
        """Return how much is fetched ahead."""
        return sum(one.size_bytes for one in self.fetched)


class Positions:
    """The partitions a consumer is assigned."""

    def __init__(
        self,
        auto_offset_reset: OffsetReset,
        ahead_bytes: int,
        *,
        retry_backoff_ms: int = 100,
        wall_ms: Callable[[], int] = int,
    ) -> None:
        """`wall_ms` is the time that a reset by duration is counted back from."""
        self._auto_offset_reset = auto_offset_reset
        self._wall_ms = wall_ms
        self._ahead_bytes = ahead_bytes
        self._retry_backoff_ms = retry_backoff_ms
        self._places: dict[TopicPartition, PartitionPlace] = {}
        self._ready: dict[TopicPartition, PartitionPlace] = {}
        """Those where something is fetched; who gave out last stands last."""
        self._is_hungry = False
        self.decoder = RecordDecoder()
        """Decodes what is fetched."""
        self.measures = FetchMeasures()

    def __contains__(self, at: object) -> bool:
        return at in self._places

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the records between position and high watermark, of partitions with both."""
        for at, place in self._places.items():
            position = place.position
            if position is not None and place.high_watermark >= 0:
                yield at, max(0, place.high_watermark - position.offset)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these and no others; who stays keeps its position."""
        self._places = {at: self._places.get(at) or PartitionPlace(at) for at in partitions}
        self._ready = {at: place for at, place in self._ready.items() if at in self._places}

    def find(self, at: TopicPartition) -> PartitionPlace | None:
        """Return a partition's place, None where it is not assigned."""
        return self._places.get(at)

    def place(self, at: TopicPartition) -> PartitionPlace:
        """Return a partition's place; refuse where it is not assigned."""
        found = self._places.get(at)
        if found is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{at} is not assigned to this consumer")
        return found

    def seek(self, at: TopicPartition, offset: Offset, epoch: Epoch = NO_EPOCH) -> None:
        """Go on at an offset; `epoch` is that of the record before it, where that is known."""
        place = self.place(at)
        place.reset_count = 0
        self._move(place, OffsetAndEpoch(offset, epoch))

    def look_up(self, at: TopicPartition, timestamp_ms: int | None) -> None:
        """Go on where a look-up says: at a time, EARLIEST, LATEST, or as `auto.offset.reset` is."""
        place = self.place(at)
        place.reset_count = 0
        self._move(place, None)
        place.lookup = timestamp_ms

    def unplaced(self) -> list[PartitionPlace]:
        """Return the partitions whose position must be looked up."""
        return [place for place in self._places.values() if place.position is None]

    def reset_of(self, place: PartitionPlace) -> int:
        """Return the timestamp to look up for a partition without a position; refuse if none is."""
        timestamp = self._reset_timestamp() if place.lookup is None else place.lookup
        if timestamp is None:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{place.at} has no position, and auto.offset.reset is none",
            )
        return timestamp

    def fetchable(self) -> list[PartitionPlace]:
        """Return the partitions to fetch now: placed, not paused, not far enough ahead."""
        return [
            place
            for place in self._places.values()
            if place.position is not None
            and not place.is_paused
            and not (place.is_refused and place.fetched)
            and place.buffered_bytes < self._ahead_bytes
        ]

    def has_hunger(self) -> bool:
        """Return whether reading made room to fetch ahead since this was asked last."""
        hungry, self._is_hungry = self._is_hungry, False
        return hungry

    def take(self, count: int) -> list[ConsumerRecord]:
        """Give out records that are there, at most so many, and move the positions behind them.

        Partitions take turns, an answer's worth each.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count and (place := self._first_ready()) is not None:
            first = place.fetched[0]
            try:
                taken += first.take(count - len(taken))
            except CorruptDataError:
                if taken:
                    return taken  # first what is good: it comes again
                raise
            self._on_given_out(place, first)
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """Give out one record if it is made already: the short way through `take`."""
        for place in self._ready.values():
            if not place.is_paused:
                first = place.fetched[0]
                record = first.take_made()
                if record is not None:
                    place.given = first
                return record
        return None

    def take_batches(self, count: int, size_bytes: int | None) -> list[RecordBatch]:
        """Give out the same as batches, at most `count` and about that size, at least one."""
        taken: list[RecordBatch] = []
        while (
            count > 0
            and (size_bytes is None or size_bytes > 0)
            and (place := self._first_ready()) is not None
        ):
            first = place.fetched[0]
            try:
                # An answer that ends with markers gives none.
                batch = first.take_batch(count, size_bytes)
            except CorruptDataError:
                if taken:
                    return taken  # first what is good: it comes again
                raise
            self._on_given_out(place, first)
            if batch is not None:
                taken.append(batch)
                count -= len(batch)
                if size_bytes is not None:
                    size_bytes -= batch.size_bytes
        return taken

    def _on_given_out(self, place: PartitionPlace, first: Fetched) -> None:
        place.move_to(OffsetAndEpoch(first.offset, first.epoch))
        if first.is_drained:
            place.fetched.popleft()
            self._is_hungry = True
            del self._ready[place.at]
            if place.fetched:
                self._ready[place.at] = place

    def _first_ready(self) -> PartitionPlace | None:
        for place in self._ready.values():
            if not place.is_paused:
                return place
        return None

    def on_fetched(self, place: PartitionPlace, turn: int, fetched: Fetched) -> bool:
        """Take in an answer; return whether it has records that are still wanted."""
        if self._is_stale(place, turn) or place.fetch.offset != fetched.offset:
            return False
        place.fetch = OffsetAndEpoch(fetched.end_offset, fetched.end_epoch)
        place.is_refused = False
        if fetched.is_drained:
            return False
        place.fetched.append(fetched)
        place.reset_count = 0
        self._ready.setdefault(place.at, place)
        return True

    def on_out_of_range(
        self, place: PartitionPlace, turn: int, offset: Offset, now_ms: int
    ) -> None:
        """Continue where `auto.offset.reset` says.  Raises RefusedError if it is none.

        A response to a fetch of another `offset` is late, as of a former leader, and dropped.
        The first reset is looked up at once.  Another one without records in between has a pause,
        which grows to a second: a leader may refuse its own offsets time and again.
        """
        if self._is_stale(place, turn) or place.fetch.offset != offset:
            return
        if place.fetch.epoch != NO_EPOCH:
            # The leader may only have forgotten that epoch: the offset alone decides.
            place.fetch = OffsetAndEpoch(place.fetch.offset, NO_EPOCH)
            return
        if place.fetched:
            place.is_refused = True  # read what there is; it is asked again behind that
            return
        reset = self._reset_timestamp()
        if reset is None:
            assert place.position is not None
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{place.at} has no offset {place.position.offset} any more, and "
                "auto.offset.reset is none",
            )
        self._move(place, None)
        place.lookup = reset
        if place.reset_count:
            pause_ms = self._retry_backoff_ms << min(place.reset_count - 1, 10)
            place.look_up_from_ms = now_ms + min(pause_ms, RESET_PAUSE_MS_MAX)
        place.reset_count += 1

    def on_diverged(self, place: PartitionPlace, turn: int, end: OffsetAndEpoch) -> None:
        """Follow the leader's log, which parts from what was read at `end` (KIP-320).

        Refuse where records that were given out are not in the log any more and
        `auto.offset.reset` is none; else go on where the logs part.
        """
        if self._is_stale(place, turn):
            return
        place.reset_count += 1
        position = place.position
        assert position is not None
        if position.offset <= end.offset:
            self._move(place, position)
            return
        if self._reset_timestamp() is None:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{place.at} was truncated to offset {end.offset} after records up to "
                f"{position.offset} were read, and auto.offset.reset is none",
            )
        self._move(place, end)

    def on_placed(self, place: PartitionPlace, turn: int, found: OffsetAndEpoch) -> None:
        """Take in the answer to a look-up."""
        if not self._is_stale(place, turn) and place.position is None:
            self._move(place, found)

    def _reset_timestamp(self) -> int | None:
        """Return the timestamp that `auto.offset.reset` looks up now; None if it is none."""
        reset = self._auto_offset_reset
        if reset.duration_ms is None:
            return RESETS[reset.strategy]
        return max(0, self._wall_ms() - reset.duration_ms)

    def _is_stale(self, place: PartitionPlace, turn: int) -> bool:
        return self._places.get(place.at) is not place or place.turn != turn

    def _move(self, place: PartitionPlace, position: OffsetAndEpoch | None) -> None:
        place.turn += 1
        place.fetched.clear()
        place.is_refused = False
        place.look_up_from_ms = 0
        self._ready.pop(place.at, None)
        place.move_to(position)
        place.lookup = None
        if position is not None:
            place.fetch = position
