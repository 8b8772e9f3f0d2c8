"""Unsettled records of a share partition, by the reason why each record is not delivered now.

Pure; times are parameters. An unsettled record in the log is in exactly one place:

    delayed ─▶ waiting for its key ─▶ ready ─▶ taken ─▶ in back-off ─▶ ready …

Records without key and priority are stored as ranges. Each place is a heap or a queue. The cost of
a poll is therefore proportional to the records that it moves, not to the number of delayed records.

Invariants:

- NotBeforeItsTime: no record is ready before its due time and the end of its back-off.
- OneInFlightPerKey: at most `key_concurrency` records of a key are ready, taken or in back-off.
  These records became due first, and a released record precedes all later records of its key.
- NoClassStarves: the first ready record of each priority is among the next `len(TURNS)` that are
  taken. The exception is that a record of this priority with a lower offset becomes ready before.
- OnePlace: the number of records in all places equals the number of unsettled records below
  `scanned_offset`.

This order is not stored. The next leader adds the records again as it reads the log. It computes
the due time from the record. It restarts each back-off with its full length, because the start is
not stored. A back-off can therefore become longer than configured, but not shorter.
"""

from collections import deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from ottla.broker.coordinators.effects import Instant
from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.broker.shares.ordering.record_traits import PLAIN, Priority, Traits

TURNS = (
    Priority.HIGH,
    Priority.NORMAL,
    Priority.HIGH,
    Priority.LOW,
    Priority.HIGH,
    Priority.NORMAL,
    Priority.HIGH,
)
"""Order in which priorities are served: high four times, normal twice, low once. A priority without
ready records is skipped."""

RIPENED_MAX = 2_000
"""Maximum number of offset ranges that one call of `ripen` makes ready for delivery. With a larger
value, the event loop is blocked longer if a large number of records become due at once. With a
smaller value, more calls are needed."""

TimedRange = tuple[int, int, int]
"""Range of records that waits for a time: the time in milliseconds, then the first and last
offset."""


class KeyQueue:
    """Queue of the records of one key whose due time has passed, in the order in which they may be
    delivered."""

    __slots__ = ("active_count", "waiting")

    def __init__(self) -> None:
        self.active_count = 0
        """Number of records of this key that are ready, taken for delivery or in back-off."""
        self.waiting: deque[tuple[int, int]] | None = None
        """Records that wait for earlier records of their key: the offset of each record, and the
        end of its back-off. None before the first record waits, since an empty deque takes 600
        bytes."""


class AheadRecord(NamedTuple):
    """Record of a batch that is read ahead: its offset, due time, key and priority."""

    offset: int
    due_ms: int
    traits: Traits


class PendingBatch(NamedTuple):
    """Batch of the log whose records are added to the order of deliveries over several event-loop
    iterations."""

    records: Iterator[AheadRecord]
    last_offset: int


class OrderFigures(NamedTuple):
    """Numbers of unsettled records (neither acknowledged nor archived) by the reason why they are
    not delivered."""

    delayed_count: int
    backoff_count: int
    key_count: int
    """Number of unsettled records that wait for earlier records of the same key."""
    ready_count: int
    taken_count: int
    """Number of unsettled records that a member has acquired."""
    next_due_ms: int | None
    """Wall time in milliseconds at which the first delayed record may be delivered, or None if no
    record is delayed."""
    next_backoff_ms: int | None
    """Monotonic time in milliseconds at which the first back-off of a released record ends, or None
    if no record is in back-off."""
    scanned_offset: int
    """Offset after the last record of the log that was read ahead."""


class DeliveryOrder:
    """Order of the deliveries in one share partition, if it differs from the order of the log."""

    __slots__ = (
        "_backoff",
        "_delayed",
        "_keys",
        "_ready",
        "_salt",
        "_traits",
        "_turn",
        "backoff_count",
        "delayed_count",
        "key_count",
        "log_start_offset",
        "pending",
        "ready_count",
        "rules",
        "scanned_offset",
        "taken_count",
    )

    def __init__(self, rules: OrderingRules, start_offset: int, *, salt: int = 0) -> None:
        """Create an empty order of deliveries. `salt` varies the back-off jitter between share
        partitions."""
        self.rules = rules
        self.scanned_offset = start_offset
        """Offset after the last record that was added to the order of deliveries."""
        self.delayed_count = self.backoff_count = self.key_count = 0
        self.ready_count = self.taken_count = 0
        self.log_start_offset = start_offset
        """Start offset of the log. Records below it were removed from the order of deliveries."""
        self.pending: PendingBatch | None = None
        """Batch of the log whose records are only partly added, or None if no batch is pending."""
        self._salt = salt
        self._delayed: list[TimedRange] = []
        self._backoff: list[TimedRange] = []
        self._ready: tuple[list[tuple[int, int]], ...] = ([], [], [])
        """Heaps of the offset ranges that are ready for delivery, one heap for each priority."""
        self._keys: dict[int, KeyQueue] = {}
        self._traits: dict[int, Traits] = {}
        """Key and priority of the unsettled records that have a key or a priority, by offset."""
        self._turn = 0
        """Number of records that were taken for delivery while several priorities had ready
        records."""

    @property
    def unsettled_count(self) -> int:
        """Number of records in the order of deliveries that are neither acknowledged nor
        archived."""
        return (
            self.delayed_count
            + self.backoff_count
            + self.key_count
            + self.ready_count
            + self.taken_count
        )

    @property
    def is_full(self) -> bool:
        """True if the maximum number of unsettled records is in memory. The log is not read ahead
        until some of them are acknowledged or archived."""
        return self.unsettled_count >= self.rules.look_ahead_records

    # ---- records of the log

    def add(
        self, first: int, last: int, count: int, *, traits: Traits, due_ms: int, now: Instant
    ) -> None:
        """Add the available records from offset `first` to `last`, which were delivered `count`
        times, to the order of deliveries. Records with a key or priority (`traits`) are added one
        by one.

        If the records were delivered before, their due time has passed. Their back-off begins now,
        because the time of the last delivery is not stored.
        """
        if traits is not PLAIN:
            assert first == last
            self._traits[first] = traits
        if count:
            end_ms = now.mono_ms + self.rules.longest_backoff_ms(count)
            self._ripen(first, last, end_ms if self.rules.backoff_ms_min else 0, now.mono_ms)
        elif due_ms > now.wall_ms:
            self._push_delayed(due_ms, first, last)
        else:
            self._ripen(first, last, 0, now.mono_ms)

    def _push_delayed(self, due_ms: int, first: int, last: int) -> None:
        self.delayed_count += last - first + 1
        heappush(self._delayed, (due_ms, first, last))

    def add_taken(self, first: int, last: int, traits: Traits) -> None:
        """Add records to the order of deliveries that a member acquired before the records were
        read ahead."""
        if traits is not PLAIN:
            assert first == last
            self._traits[first] = traits
            if traits.key is not None:
                self._queue_of(traits.key).active_count += 1
        self.taken_count += last - first + 1

    # ---- time

    def ripen(self, now: Instant) -> bool:
        """Make records ready for delivery if their due time or back-off is over. Records that must
        wait for other records with the same key stay in the key's queue. Returns True if a due time
        or back-off was over."""
        moved = 0
        while self._delayed and self._delayed[0][0] <= now.wall_ms and moved < RIPENED_MAX:
            _, first, last = heappop(self._delayed)
            self.delayed_count -= last - first + 1
            self._ripen(first, last, 0, now.mono_ms)
            moved += 1
        while self._backoff and self._backoff[0][0] <= now.mono_ms and moved < RIPENED_MAX:
            _, first, last = heappop(self._backoff)
            self.backoff_count -= last - first + 1
            self._push_ready(first, last)
            moved += 1
        return moved > 0

    def next_mono_ms(self, now: Instant) -> int | None:
        """Return the monotonic time in milliseconds of the next due time or end of a back-off, or
        None if no record is delayed or in back-off. The caller must call `ripen` at that time."""
        times = []
        if self._delayed:
            times.append(max(0, self._delayed[0][0] - now.wall_ms) + now.mono_ms)
        if self._backoff:
            times.append(self._backoff[0][0])
        return min(times, default=None)

    def _ripen(self, first: int, last: int, not_before_ms: int, mono_ms: int) -> None:
        """Make due records ready for delivery, or queue them behind other records with the same
        key."""
        traits = self._traits.get(first, PLAIN)
        if traits.key is not None:
            queue = self._queue_of(traits.key)
            if queue.active_count >= self.rules.key_concurrency:
                if queue.waiting is None:
                    queue.waiting = deque()
                queue.waiting.append((first, not_before_ms))
                self.key_count += 1
                return
            queue.active_count += 1
        self._push_active(first, last, not_before_ms, mono_ms)

    def _push_active(self, first: int, last: int, not_before_ms: int, mono_ms: int) -> None:
        if not_before_ms > mono_ms:
            self.backoff_count += last - first + 1
            heappush(self._backoff, (not_before_ms, first, last))
        else:
            self._push_ready(first, last)

    def _push_ready(self, first: int, last: int) -> None:
        self.ready_count += last - first + 1
        heappush(self._ready[self._traits.get(first, PLAIN).priority], (first, last))

    def _queue_of(self, key: int) -> KeyQueue:
        queue = self._keys.get(key)
        if queue is None:
            queue = self._keys[key] = KeyQueue()
        return queue

    # ---- deliveries

    def take(self, records_max: int, offset_max: int) -> list[tuple[int, int]]:
        """Take up to `records_max` ready records below `offset_max` for delivery. Priorities take
        turns; records of one priority are taken in order of their offsets. Returns the offset
        ranges of the records in this order."""
        taken: list[tuple[int, int]] = []
        left = records_max
        while left > 0:
            heaps = [heap for heap in self._ready if heap and heap[0][0] < offset_max]
            if not heaps:
                break
            if len(heaps) == 1:
                heap, size_max = heaps[0], left
            else:
                heap, size_max = self._heap_of_turn(offset_max), 1
            first, last = heappop(heap)
            size = min(last - first + 1, size_max, offset_max - first)
            if first + size <= last:
                heappush(heap, (first + size, last))
            taken.append((first, first + size - 1))
            left -= size
        count = records_max - left
        self.ready_count -= count
        self.taken_count += count
        return _joined(sorted(taken))

    def _heap_of_turn(self, offset_max: int) -> list[tuple[int, int]]:
        """Return the heap of ready offset ranges for the next priority with ready records."""
        while True:
            heap = self._ready[TURNS[self._turn % len(TURNS)]]
            self._turn += 1
            if heap and heap[0][0] < offset_max:
                return heap

    def put_back(self, first: int, last: int) -> None:
        """Return records that were taken for delivery, but not delivered, to the ready records."""
        self.taken_count -= last - first + 1
        for begin, end in self._pieces(first, last):
            self._push_ready(begin, end)

    def on_released(self, first: int, last: int, count: int, mono_ms: int) -> None:
        """Delay records that were released after `count` deliveries until their back-off is over.
        `mono_ms` is the current monotonic time in milliseconds."""
        last = min(last, self.scanned_offset - 1)
        if first > last:
            return
        self.taken_count -= last - first + 1
        end_ms = 0
        if self.rules.backoff_ms_min:
            end_ms = mono_ms + self.rules.backoff_ms(count, self._salt + first)
        for begin, end in self._pieces(first, last):
            self._push_active(begin, end, end_ms, mono_ms)

    def on_settled(self, first: int, last: int, mono_ms: int) -> None:
        """Remove acknowledged or archived records, and make the next records of their keys ready
        for delivery."""
        last = min(last, self.scanned_offset - 1)
        if first > last:
            return
        self.taken_count -= last - first + 1
        if self._traits:
            for offset in range(first, last + 1):
                self._end(offset, mono_ms)

    def _end(self, offset: int, mono_ms: int) -> None:
        """Remove the key and priority of a record that was ready, taken for delivery or in
        back-off."""
        traits = self._traits.pop(offset, PLAIN)
        if traits.key is None:
            return
        queue = self._keys[traits.key]
        queue.active_count -= 1
        while queue.waiting and queue.active_count < self.rules.key_concurrency:
            following, not_before_ms = queue.waiting.popleft()
            self.key_count -= 1
            queue.active_count += 1
            self._push_active(following, following, not_before_ms, mono_ms)
        if not queue.active_count:
            del self._keys[traits.key]

    def _pieces(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of an offset range as they are stored: the whole range, or single records
        if a record in the range has a key or priority."""
        if not self._traits:
            yield first, last
            return
        for offset in range(first, last + 1):
            yield offset, offset

    # ---- the start of the log

    def drop_before(self, offset: int, mono_ms: int) -> None:
        """Remove the records below the log start offset `offset`, except records that are taken for
        delivery. The call visits all records."""
        self.log_start_offset = offset
        self._delayed, removed = _split(self._delayed, offset)
        self.delayed_count = _size_of(self._delayed)
        for _, first, _ in removed:
            self._traits.pop(first, None)
        self._backoff, ended = _split(self._backoff, offset)
        self.backoff_count = _size_of(self._backoff)
        self.ready_count = 0
        for heap in self._ready:
            kept, removed = _split([(0, *each) for each in heap], offset)
            heap[:] = [(first, last) for _, first, last in kept]
            heapify(heap)
            self.ready_count += _size_of(kept)
            ended += removed
        for queue in self._keys.values():
            if queue.waiting:
                self._drop_waiting(queue, queue.waiting, offset)
        for _, first, _ in ended:
            if first in self._traits:
                self._end(first, mono_ms)

    def _drop_waiting(self, queue: KeyQueue, waiting: deque[tuple[int, int]], offset: int) -> None:
        ended = [each for each, _ in waiting if each < offset]
        for each in ended:
            del self._traits[each]
        self.key_count -= len(ended)
        if ended:
            queue.waiting = deque(one for one in waiting if one[0] >= offset)

    # ---- figures

    @property
    def figures(self) -> OrderFigures:
        """Numbers of unsettled records by the reason why they are not delivered now."""
        return OrderFigures(
            delayed_count=self.delayed_count,
            backoff_count=self.backoff_count,
            key_count=self.key_count,
            ready_count=self.ready_count,
            taken_count=self.taken_count,
            next_due_ms=self._delayed[0][0] if self._delayed else None,
            next_backoff_ms=self._backoff[0][0] if self._backoff else None,
            scanned_offset=self.scanned_offset,
        )


def _split(ranges: list[TimedRange], offset: int) -> tuple[list[TimedRange], list[TimedRange]]:
    """Split timed ranges at an offset. Returns a heap of the ranges (or parts of ranges) from the
    offset on, and the ranges that end below the offset."""
    kept = [(due_ms, max(first, offset), last) for due_ms, first, last in ranges if last >= offset]
    heapify(kept)
    return kept, [each for each in ranges if each[2] < offset]


def _size_of(ranges: list[TimedRange]) -> int:
    return sum(last - first + 1 for _, first, last in ranges)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return a sorted list of offset ranges in which adjacent ranges are joined."""
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] + 1 == first:
            joined[-1] = joined[-1][0], last
        else:
            joined.append((first, last))
    return joined
