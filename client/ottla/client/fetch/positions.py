"""The assigned partitions of a consumer, their positions, and the records fetched ahead.

Pure. A position is the offset of the next record for the application. The consumer fetches about
one response ahead of the position. If a position changes other than by reading, the records fetched
ahead are dropped, and responses to earlier requests are ignored. Invariants:
- NothingIsSkipped: a position moves only past returned records, or by a seek, a reset or a reported
  log divergence.
- EachOnce: each record is returned once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ottla.client.fetch.fetched import FetchedRecords
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.client.telemetry.measures import FetchMeasures
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, Epoch, NodeId, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.settings.offset_reset import OffsetReset
from ottla.wire.offset_timestamps import EARLIEST, LATEST

RESET_PAUSE_MS_MAX = 1_000
"""Maximum delay, in ms, before the position of a partition is looked up again after repeated
out-of-range errors. It is Kafka's default of `retry.backoff.max.ms`."""

RESETS = {"earliest": EARLIEST, "latest": LATEST, "none": None}


class PartitionPlace:
    """State of one assigned partition: the position of the application, and the position up to
    which the consumer has fetched records."""

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
        "move_count",
        "preferred_node",
        "preferred_until_ms",
        "reset_count",
    )

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self._position: OffsetAndEpoch | None = None
        self.given: FetchedRecords | None = None
        """Fetched records from which the consumer is returning single records, or None. If it is
        set, the offset of these FetchedRecords is the position of the partition."""
        self.fetch = OffsetAndEpoch(Offset(0), NO_EPOCH)
        self.fetched: deque[FetchedRecords] = deque()
        self.is_paused = False
        self.preferred_node: NodeId | None = None
        """Follower that the leader has named as the replica nearest to the consumer (KIP-392), or
        None if the consumer fetches from the leader."""
        self.preferred_until_ms = 0
        """Time in ms at which fetches return from the preferred replica to the leader, which may
        then name a preferred replica again."""
        self.high_watermark = Offset(-1)
        """High watermark in the latest fetch response for the partition. -1 before the first
        response."""
        self.is_refused = False
        """True if the leader refused the offset after the fetched records as out of range. The
        position is reset after the application has read these records."""
        self.lookup: int | None = None
        """Timestamp at which the position is to be looked up, possibly EARLIEST or LATEST. None
        selects the committed offset or, without a committed offset, `auto.offset.reset`."""
        self.reset_count = 0
        """Number of resets because of an out-of-range offset, since the last seek or the last
        fetched record."""
        self.look_up_from_ms = 0
        """Earliest time at which the position may be looked up, in ms of the monotonic clock."""
        self.move_count = 0
        """Number of times that a seek, a reset or a log divergence has moved the position. Moves by
        reading are not counted."""

    @property
    def position(self) -> OffsetAndEpoch | None:
        """Offset of the next record for the application, and leader epoch of the record before it.
        None until the position is known."""
        given = self.given
        return self._position if given is None else OffsetAndEpoch(given.offset, given.epoch)

    def source_of(self, leader: NodeId, now_ms: int) -> NodeId:
        """Return the broker to fetch from: the preferred replica while it is valid, otherwise the
        leader."""
        if self.preferred_node is None:
            return leader
        if now_ms >= self.preferred_until_ms:
            self.preferred_node = None
            return leader
        return self.preferred_node

    def move_to(self, position: OffsetAndEpoch | None) -> None:
        """Replace the position of the application. If `position` is None, the position must be
        looked up before the next fetch."""
        self._position, self.given = position, None

    @property
    def buffered_bytes(self) -> int:
        """Size of the records fetched ahead, in bytes."""
        return sum(one.size_bytes for one in self.fetched)


class Positions:
    """The partitions that are assigned to a consumer, with their positions."""

    def __init__(
        self,
        auto_offset_reset: OffsetReset,
        ahead_bytes: int,
        *,
        retry_backoff_ms: int = 100,
        wall_ms: Callable[[], int] = int,
    ) -> None:
        """Initialise without assigned partitions.

        A partition with `ahead_bytes` of unread records is not fetched further. `wall_ms` is the
        clock for resets by duration (KIP-1106).
        """
        self._auto_offset_reset = auto_offset_reset
        self._wall_ms = wall_ms
        self._ahead_bytes = ahead_bytes
        self._retry_backoff_ms = retry_backoff_ms
        self._places: dict[TopicPartition, PartitionPlace] = {}
        self._ready: dict[TopicPartition, PartitionPlace] = {}
        """Partitions that have fetched records, least recently read first."""
        self._is_hungry = False
        self.decoder = RecordDecoder()
        """Decoder of this consumer's fetched records."""
        self.measures = FetchMeasures()

    def __contains__(self, at: object) -> bool:
        return at in self._places

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._places)

    def lags(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield the lag of each partition, in records, from its position to the high watermark.

        Partitions without a known position or high watermark are skipped.
        """
        for at, place in self._places.items():
            position = place.position
            if position is not None and place.high_watermark >= 0:
                yield at, max(0, place.high_watermark - position.offset)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Replace the assigned partitions. Partitions that remain assigned keep their positions."""
        self._places = {at: self._places.get(at) or PartitionPlace(at) for at in partitions}
        self._ready = {at: place for at, place in self._ready.items() if at in self._places}

    def find(self, at: TopicPartition) -> PartitionPlace | None:
        """Return the state of a partition, or None if it is not assigned."""
        return self._places.get(at)

    def place(self, at: TopicPartition) -> PartitionPlace:
        """Return the state of a partition.  Raises RefusedError if it is not assigned."""
        found = self._places.get(at)
        if found is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{at} is not assigned to this consumer")
        return found

    def seek(self, at: TopicPartition, offset: Offset, epoch: Epoch = NO_EPOCH) -> None:
        """Move the position of a partition to an offset. `epoch` is the leader epoch of the record
        before the offset, if it is known."""
        place = self.place(at)
        place.reset_count = 0
        self._move(place, OffsetAndEpoch(offset, epoch))

    def look_up(self, at: TopicPartition, timestamp_ms: int | None) -> None:
        """Mark the position of a partition for a look-up. The position then moves to the result.

        `timestamp_ms` is a time, EARLIEST or LATEST. None selects the committed offset or, without
        a committed offset, `auto.offset.reset`.
        """
        place = self.place(at)
        place.reset_count = 0
        self._move(place, None)
        place.lookup = timestamp_ms

    def unplaced(self) -> list[PartitionPlace]:
        """Return the partitions whose positions have to be looked up."""
        return [place for place in self._places.values() if place.position is None]

    def reset_of(self, place: PartitionPlace) -> int:
        """Return the timestamp at which the position of a partition has to be looked up.

        Raises RefusedError if the look-up depends on `auto.offset.reset` and its value is `none`.
        """
        timestamp = self._reset_timestamp() if place.lookup is None else place.lookup
        if timestamp is None:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{place.at} has no position, and auto.offset.reset is none",
            )
        return timestamp

    def fetchable(self) -> list[PartitionPlace]:
        """Return the partitions that may be fetched now.

        These partitions have a position, are not paused, and have less than `ahead_bytes` of unread
        records.
        """
        return [
            place
            for place in self._places.values()
            if place.position is not None
            and not place.is_paused
            and not (place.is_refused and place.fetched)
            and place.buffered_bytes < self._ahead_bytes
        ]

    def has_hunger(self) -> bool:
        """Return True if more records should be fetched, because the application has read enough
        records since the previous call."""
        hungry, self._is_hungry = self._is_hungry, False
        return hungry

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return up to `count` of the fetched records, and move the positions past them.

        Partitions take turns. In each turn, a partition returns the records of one fetch response.
        """
        taken: list[ConsumerRecord] = []
        while len(taken) < count and (place := self._first_ready()) is not None:
            first = place.fetched[0]
            try:
                taken += first.take(count - len(taken))
            except CorruptDataError:
                if taken:
                    return taken  # the valid records first: the next call finds the error again
                raise
            self._on_given_out(place, first)
        return taken

    def take_one(self) -> ConsumerRecord | None:
        """Return the next record if its Python object already exists, otherwise None. This is a
        fast alternative to `take`."""
        for place in self._ready.values():
            if not place.is_paused:
                first = place.fetched[0]
                record = first.take_made()
                if record is not None:
                    place.given = first
                return record
        return None

    def take_batches(self, count: int, size_bytes: int | None) -> list[RecordBatch]:
        """Return fetched records as batches. All batches together have up to `count` records and
        about `size_bytes` bytes.

        Returns at least one record if any record is available.
        """
        taken: list[RecordBatch] = []
        while (
            count > 0
            and (size_bytes is None or size_bytes > 0)
            and (place := self._first_ready()) is not None
        ):
            first = place.fetched[0]
            try:
                # A response that ends with control batches has no records after the last data
                # batch.
                batch = first.take_batch(count, size_bytes)
            except CorruptDataError:
                if taken:
                    return taken  # the valid batches first: the next call finds the error again
                raise
            self._on_given_out(place, first)
            if batch is not None:
                taken.append(batch)
                count -= len(batch)
                if size_bytes is not None:
                    size_bytes -= batch.size_bytes
        return taken

    def _on_given_out(self, place: PartitionPlace, first: FetchedRecords) -> None:
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

    def on_fetched(self, place: PartitionPlace, move_count: int, fetched: FetchedRecords) -> bool:
        """Store the records of a fetch response for one partition. Returns True if the consumer
        accepted any of them."""
        if self._is_stale(place, move_count) or place.fetch.offset != fetched.offset:
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
        self, place: PartitionPlace, move_count: int, offset: Offset, now_ms: int
    ) -> None:
        """Reset the position of a partition by `auto.offset.reset`, because the leader refused
        `offset` as out of range.

        Raises RefusedError if the setting is `none`. If `offset` is not the current fetch position,
        the response is late, for example from a former leader, and is ignored. The first reset is
        looked up at once. Repeated resets without fetched records in between are delayed by up to a
        second, because a leader may repeatedly refuse offsets that it returned itself.
        """
        if self._is_stale(place, move_count) or place.fetch.offset != offset:
            return
        if place.fetch.epoch != NO_EPOCH:
            # The leader may lack only that epoch: fetch once more by the offset alone.
            place.fetch = OffsetAndEpoch(place.fetch.offset, NO_EPOCH)
            return
        if place.fetched:
            place.is_refused = True  # the fetched records are read first; then fetch again
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

    def on_diverged(self, place: PartitionPlace, move_count: int, end: OffsetAndEpoch) -> None:
        """Move the position of a partition to `end` if the leader's log diverges there from the
        records that were read (KIP-320).

        A position that is not beyond `end` is kept. Raises RefusedError if records that were
        returned are missing from the leader's log and `auto.offset.reset` is none.
        """
        if self._is_stale(place, move_count):
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

    def on_placed(self, place: PartitionPlace, move_count: int, found: OffsetAndEpoch) -> None:
        """Move the position of a partition to the result of a look-up. The result is ignored if the
        position was moved after the look-up was requested."""
        if not self._is_stale(place, move_count) and place.position is None:
            self._move(place, found)

    def _reset_timestamp(self) -> int | None:
        """Return the timestamp that `auto.offset.reset` selects now, or None if the setting is
        `none`."""
        reset = self._auto_offset_reset
        if reset.duration_ms is None:
            return RESETS[reset.strategy]
        return max(0, self._wall_ms() - reset.duration_ms)

    def _is_stale(self, place: PartitionPlace, move_count: int) -> bool:
        return self._places.get(place.at) is not place or place.move_count != move_count

    def _move(self, place: PartitionPlace, position: OffsetAndEpoch | None) -> None:
        place.move_count += 1
        place.fetched.clear()
        place.is_refused = False
        place.look_up_from_ms = 0
        self._ready.pop(place.at, None)
        place.move_to(position)
        place.lookup = None
        if position is not None:
            place.fetch = position
