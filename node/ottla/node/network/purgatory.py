"""Purgatory: requests that wait for an event or a deadline. Each request is stored under the keys
of its events.

Pure: no clock is read. The driver of the purgatory calls `expire(now_ms)` at `next_deadline_ms`.
Nothing is polled: an append or an advance of the high watermark wakes exactly the entries under the
key of its partition. If one event wakes too many entries, or one deadline ends too many, each
event-loop iteration handles some of them. `expire` is then due at once and continues with the
remaining entries.

Invariant CompletedOnce: an entry ends once, by `try_complete` returning True, by `on_expire`, or by
`cancel`.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar, Protocol

from ottla.model.compiled import mypyc_attr
from ottla.model.unexpected_errors import UnexpectedErrors

DEAD_TIMERS_KEPT = 256
"""Maximum number of timers of ended requests that stay in the purgatory's heap before it is
rebuilt. With a smaller number, the heap is rebuilt more often. With a larger one, more finished
requests stay in memory."""

COST_PER_TURN = 500
"""Maximum total cost of the waiting requests that one event or deadline handles per event-loop
iteration. The unit is the cost of reading one partition. The maximum takes some ten milliseconds.
With a smaller value, requests are answered later if many wait. A larger one blocks the loop
longer."""

SETTLED_PER_COST = 8
"""Number of partitions whose high watermark can be checked in the time that reading one partition
takes. The cost of a waiting request is measured in reads of one partition."""

ENTRIES_NOT_COUNTED = 10
"""Number of waiting requests that one event-loop iteration wakes regardless of their cost. Few
partitions have more waiting requests."""

AT_ONCE_MS = 0
"""Monotonic time in milliseconds that is always in the past. A waiting request with this deadline
expires at once."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingEntry(ABC):
    """Request that waits in a purgatory for an event or a deadline. Subclasses define when it is
    complete."""

    __slots__ = ("_has_waited", "_is_waiting", "_keys", "woken_by")
    kind: ClassVar[str]
    """Kind of waiting request, as named in metrics."""

    def __init__(self) -> None:
        self._is_waiting = False
        self._has_waited = False
        self._keys: tuple[Hashable, ...] = ()
        self.woken_by: Hashable = None
        """Key whose wake-up caused the waiting request's current attempt to complete; None if there
        was no wake-up."""

    @property
    def is_waiting(self) -> bool:
        """True if the request waits in a purgatory."""
        return self._is_waiting

    @property
    def cost(self) -> int:
        """Approximate number of partitions that are read when the waiting request tries to
        complete, or expires. At least 1."""
        return 1

    @abstractmethod
    def try_complete(self) -> bool:
        """Answer the waiting request if its condition is now met. Returns True if the request was
        answered."""

    @abstractmethod
    def on_expire(self) -> None:
        """Answer the waiting request with the result so far, because its deadline has passed."""

    @abstractmethod
    def on_fault(self, fault: Exception) -> None:
        """End the request's wait after `try_complete` or `on_expire` raised an unexpected error."""


class WakeListener(Protocol):
    """Listener that is called whenever its key in a purgatory is woken. Unlike waiting requests, it
    stays registered until it is removed."""

    def on_wake(self, key: Hashable) -> None:
        """Handle a wake-up of a purgatory's `key`. This method may wake other keys."""
        ...


class WakeUpBatch:
    """Context manager in whose block several wake-ups of a purgatory's keys count as one event:
    each key is woken once, at the end of the block.

    A request that waits for several of these keys then sees all changes of the block. So does a
    fetch session, which listens to the keys of its partitions: its fetch is tried once.
    """

    __slots__ = ("_purgatory",)

    def __init__(self, purgatory: "Purgatory") -> None:
        self._purgatory = purgatory

    def __enter__(self) -> None:
        self._purgatory._event_depth += 1

    def __exit__(self, _kind: object, _fault: object, _trace: object) -> None:
        purgatory = self._purgatory
        purgatory._event_depth -= 1
        if purgatory._held_back and not purgatory._event_depth:
            purgatory._wake_held_back()


class Purgatory:
    """Requests that wait, indexed by the keys of the events that they wait for, and one heap of the
    requests' deadlines.

    `on_earlier_deadline` is called when a new request is due before all others, so that the driver
    can reset its alarm. An unexpected error in one request or listener affects no other.
    """

    __slots__ = (
        "_dead_timer_count",
        "_event_depth",
        "_held_back",
        "_listeners",
        "_sequence",
        "_timers",
        "_unwoken",
        "_watchers",
        "errors",
        "on_earlier_deadline",
        "one_event",
        "watched",
    )

    def __init__(self, errors: UnexpectedErrors | None = None) -> None:
        self.errors = errors or UnexpectedErrors()
        self.one_event = WakeUpBatch(self)
        self._event_depth = 0
        self._held_back: dict[Hashable, None] = {}
        """Keys that were woken within the current block of `one_event`. The wake-ups take effect at
        the end of the block."""
        self.watched: set[Hashable] = set()
        """Keys with waiting requests or listeners. Waking any other key has no effect."""
        self._watchers: dict[Hashable, dict[WaitingEntry, None]] = {}
        self._listeners: dict[Hashable, dict[WakeListener, None]] = {}
        self._unwoken: dict[Hashable, dict[WaitingEntry, None]] = {}
        """Waiting requests to wake in the next event-loop iterations, by key. Under each key the
        request that has waited longest is first."""
        self._timers: list[tuple[int, int, WaitingEntry]] = []
        self._sequence = 0
        self._dead_timer_count = 0
        self.on_earlier_deadline: Callable[[], None] | None = None

    def watch(self, keys: Iterable[Hashable], entry: WaitingEntry, deadline_ms: int) -> None:
        """Add a request to the purgatory. The request waits until one of its keys is woken or its
        deadline is reached."""
        assert not entry._has_waited, "an entry waits once: its timer may still lie in the heap"
        entry._is_waiting = entry._has_waited = True
        entry._keys = tuple(keys)
        assert entry._keys
        watchers = self._watchers
        for key in entry._keys:
            entries = watchers.get(key)
            if entries is None:
                watchers[key] = {entry: None}
                self.watched.add(key)
            else:
                entries[entry] = None
        self._sequence += 1
        timer = (deadline_ms, self._sequence, entry)
        heapq.heappush(self._timers, timer)
        if self._timers[0][1] == self._sequence and self.on_earlier_deadline is not None:
            self.on_earlier_deadline()

    def listen(self, key: Hashable, listener: WakeListener) -> None:
        """Register a listener that is called at every wake-up of `key`, until `unlisten` is
        called."""
        self._listeners.setdefault(key, {})[listener] = None
        self.watched.add(key)

    def unlisten(self, key: Hashable, listener: WakeListener) -> None:
        """Remove a listener from a key, if it is registered for that key. Wake-ups of the key no
        longer call the listener."""
        listeners = self._listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listeners[key]
                if key not in self._watchers:
                    self.watched.discard(key)

    def wake(self, key: Hashable) -> int:
        """Call the listeners of `key`, then try to complete each request that waits under it.

        Returns the number of completed requests; the oldest is tried first. If they are too many
        for one event-loop iteration, `expire` wakes the rest. Within a block of `one_event`, the
        keys are woken when the block ends.
        """
        listeners = self._listeners.get(key)
        entries = self._watchers.get(key)
        if listeners is None and entries is None:
            return 0
        if self._event_depth:
            self._held_back[key] = None
            return 0
        if listeners is not None:
            self._call_listeners(key, listeners)
            entries = self._watchers.get(key)
        return 0 if entries is None else self._wake_entries(key, entries)

    def _wake_held_back(self) -> None:
        """Wake the keys of a block of `one_event`. Keys that their listeners wake are woken
        afterwards, each once."""
        while self._held_back:
            keys, self._held_back = self._held_back, {}
            self._event_depth += 1
            for key in keys:
                listeners = self._listeners.get(key)
                if listeners is not None:
                    self._call_listeners(key, listeners)
            self._event_depth -= 1
            for key in keys:
                entries = self._watchers.get(key)
                if entries is not None:
                    self._wake_entries(key, entries)

    def _call_listeners(self, key: Hashable, listeners: dict[WakeListener, None]) -> None:
        for listener in tuple(listeners):
            try:
                listener.on_wake(key)
            except Exception as fault:
                self.errors.note("listener", key, fault)

    def _wake_entries(self, key: Hashable, entries: dict[WaitingEntry, None]) -> int:
        woken = tuple(entries)
        if len(woken) > ENTRIES_NOT_COUNTED:
            count = _count_of_turn(woken)
            if count < len(woken):
                woken = self._defer_entries(key, woken, count)
        return self._try_each(key, woken)

    def _defer_entries(
        self, key: Hashable, entries: tuple[WaitingEntry, ...], count: int
    ) -> tuple[WaitingEntry, ...]:
        """Defer the wake-up of all but the first `count` requests under a key to later event-loop
        iterations. Returns the requests to wake now. Returns no request if requests under the key
        are deferred already."""
        unwoken = self._unwoken.get(key)
        if unwoken is not None:
            # The entries that one iteration may wake for this key are already woken.
            unwoken.update(dict.fromkeys(entries))
            return ()
        self._unwoken[key] = dict.fromkeys(entries[count:])
        if self.on_earlier_deadline is not None:
            self.on_earlier_deadline()
        return entries[:count]

    def _wake_more(self) -> int:
        """Wake some of the remaining deferred requests under one key. Returns the number of
        completed requests."""
        key, unwoken = next(iter(self._unwoken.items()))
        del self._unwoken[key]
        entries = tuple(unwoken)
        count = _count_of_turn(entries)
        if count < len(entries):
            # Behind the other keys, so that each has its turn.
            self._unwoken[key] = dict.fromkeys(entries[count:])
        return self._try_each(key, entries[:count])

    def _try_each(self, key: Hashable, entries: tuple[WaitingEntry, ...]) -> int:
        completed_count = 0
        for entry in entries:
            # An entry completed earlier in this round may have woken and ended this one.
            if not entry._is_waiting:
                continue
            # It counts as ended during the attempt, so that its own wake-ups do not try it again.
            entry._is_waiting = False
            entry.woken_by = key
            try:
                is_complete = entry.try_complete()
            except Exception as fault:
                self._forget(entry)
                self._on_fault(entry, fault)
                continue
            if is_complete:
                self._forget(entry)
                completed_count += 1
            else:
                entry._is_waiting = True
        return completed_count

    def cancel(self, entry: WaitingEntry) -> None:
        """Remove a waiting request whose response is no longer needed. Does nothing if the request
        has ended."""
        if entry._is_waiting:
            entry._is_waiting = False
            self._forget(entry)

    def expire(self, now_ms: int) -> int:
        """End the waiting requests whose deadline was reached, the earliest first. Returns the
        number of ended requests.

        Clients can send any number of requests with the same deadline. If too many are due for one
        event-loop iteration, the remaining requests stay due for the next call. Requests whose
        wake-up was deferred are woken first.
        """
        if self._unwoken:
            self._wake_more()
        timers = self._timers
        expired_count = 0
        left = COST_PER_TURN
        while left > 0 and timers and timers[0][0] <= now_ms:
            entry = heapq.heappop(timers)[2]
            if not entry._is_waiting:
                self._dead_timer_count -= 1
                left -= 1
                continue
            left -= entry.cost
            entry._is_waiting = False
            self._unwatch(entry)
            try:
                entry.on_expire()
            except Exception as fault:
                self._on_fault(entry, fault)
            expired_count += 1
        return expired_count

    def _on_fault(self, entry: WaitingEntry, fault: Exception) -> None:
        self.errors.note("request", type(entry).__name__, fault)
        try:
            entry.on_fault(fault)
        except Exception as again:
            self.errors.note("request", type(entry).__name__, again)

    @property
    def next_deadline_ms(self) -> int | None:
        """Earliest time, in milliseconds, at which `expire` may have work. None if no request
        waits.

        Timers of ended requests before that time are dropped, because they would only wake the
        driver without work.
        """
        if self._unwoken:
            return AT_ONCE_MS
        timers = self._timers
        while timers and not timers[0][2]._keys:
            heapq.heappop(timers)
            self._dead_timer_count -= 1
        return timers[0][0] if timers else None

    @property
    def waiting_count(self) -> int:
        """Number of requests that wait in this purgatory."""
        return len(self._timers) - self._dead_timer_count

    def waiting_by_kind(self) -> dict[str, int]:
        """Return the number of waiting requests of each kind. Visits every waiting request."""
        counts: dict[str, int] = {}
        for _, _, entry in self._timers:
            if entry._is_waiting:
                counts[entry.kind] = counts.get(entry.kind, 0) + 1
        return counts

    def _forget(self, entry: WaitingEntry) -> None:
        """Remove a request that has ended from its keys. Its timer stays in the heap, without
        effect."""
        self._unwatch(entry)
        self._dead_timer_count += 1
        if self._dead_timer_count > DEAD_TIMERS_KEPT and 2 * self._dead_timer_count > len(
            self._timers
        ):
            # In place, since `expire` may be iterating over this list.
            self._timers[:] = [timer for timer in self._timers if timer[2]._keys]
            heapq.heapify(self._timers)
            self._dead_timer_count = 0

    def _unwatch(self, entry: WaitingEntry) -> None:
        watchers = self._watchers
        for key in entry._keys:
            entries = watchers[key]
            entries.pop(entry, None)
            if not entries:
                del watchers[key]
                if key not in self._listeners:
                    self.watched.discard(key)
        entry._keys = ()


def _count_of_turn(entries: tuple[WaitingEntry, ...]) -> int:
    """Return the number of waiting requests, from the first on, that one event-loop iteration may
    try to complete."""
    left = COST_PER_TURN
    for count, entry in enumerate(entries):
        if left <= 0:
            return count
        left -= entry.cost
    return len(entries)
