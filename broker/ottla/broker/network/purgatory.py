"""Requests that wait: watched by key, woken by the event itself, ended by a deadline.

Pure: it never reads a clock; whoever drives it calls `expire(now_ms)` when `next_deadline_ms` has
come.  Nothing is polled: an append or a high watermark that moves wakes exactly the entries under
its partition's key.  Very many of them are woken, or ended by one deadline, some in each turn:
`expire`, which is due at once then, continues where the turn before ended.  Invariant
CompletedOnce: an entry ends once, by `try_complete` returning true, by `on_expire`, or by `cancel`.
"""

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from typing import ClassVar, Protocol

from ottla.model.compiled import mypyc_attr
from ottla.model.unexpected_errors import UnexpectedErrors

DEAD_TIMERS_KEPT = 256
"""Timers of finished entries left in the heap before it is rebuilt.  Lower rebuilds often, higher
keeps more finished requests in memory."""

COST_PER_TURN = 500
"""Costs of the entries that one event lets try to complete, or that deadlines end, in one turn of
the loop: some ten milliseconds.  Lower answers many waiting requests of one partition or of one
deadline later, higher holds the loop for longer."""

SETTLED_PER_COST = 8
"""Partitions whose high watermark is looked at in the time in which a fetch reads one, the unit of
an entry's cost."""

ENTRIES_NOT_COUNTED = 10
"""So few entries are woken in one turn whatever they cost: few partitions have more waiting."""

AT_ONCE_MS = 0
"""A deadline that has always come."""


@mypyc_attr(allow_interpreted_subclasses=True)
class WaitingEntry(ABC):
    """One waiting request; subclass it and say when it is complete."""

    __slots__ = ("_has_waited", "_is_waiting", "_keys", "woken_by")
    kind: ClassVar[str]
    """The operation that waits, as metrics name it."""

    def __init__(self) -> None:
        self._is_waiting = False
        self._has_waited = False
        self._keys: tuple[Hashable, ...] = ()
        self.woken_by: Hashable = None
        """The key that lets it try to complete."""

    @property
    def is_waiting(self) -> bool:
        """Whether a purgatory still holds the entry."""
        return self._is_waiting

    @property
    def cost(self) -> int:
        """About how many partitions a try, or the end, of the entry reads; at least 1."""
        return 1

    @abstractmethod
    def try_complete(self) -> bool:
        """Answer the request if it can be answered now, and return whether it was."""

    @abstractmethod
    def on_expire(self) -> None:
        """Answer the request with what there is: its deadline has come."""

    @abstractmethod
    def on_fault(self, fault: Exception) -> None:
        """Let whoever waits for the answer go: one of the other two met a bug of ours."""


class WakeListener(Protocol):
    """What hears of every wake of a key, for longer than one request lasts."""

    def on_wake(self, key: Hashable) -> None:
        """Take note; it may wake other keys."""
        ...


class OneEvent:
    """A `with` block whose wakes are one event: each key is woken once, when the block ends.

    An entry that waits for several of the keys then finds all that the block changed.
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
            keys, purgatory._held_back = purgatory._held_back, {}
            for key in keys:
                purgatory.wake(key)


class Purgatory:
    """Holds waiting entries under their keys, and one heap of their deadlines.

    `on_earlier_deadline` is called when an entry is due before every other, so that the driver
    can set its alarm again.  An entry or a listener that meets a bug of ours ends alone.
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
        self.one_event = OneEvent(self)
        self._event_depth = 0
        self._held_back: dict[Hashable, None] = {}
        """The keys that the event under way wakes at its end."""
        self.watched: set[Hashable] = set()
        """The keys that have entries or listeners: the wake of another one does nothing."""
        self._watchers: dict[Hashable, dict[WaitingEntry, None]] = {}
        self._listeners: dict[Hashable, dict[WakeListener, None]] = {}
        self._unwoken: dict[Hashable, dict[WaitingEntry, None]] = {}
        """By key what the next turns have to wake, those that wait for it the longest first."""
        self._timers: list[tuple[int, int, WaitingEntry]] = []
        self._sequence = 0
        self._dead_timer_count = 0
        self.on_earlier_deadline: Callable[[], None] | None = None

    def watch(self, keys: Iterable[Hashable], entry: WaitingEntry, deadline_ms: int) -> None:
        """Hold an entry that is not complete yet until a key wakes it or its deadline comes."""
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
        """Tell a listener of every wake of `key` until `unlisten`."""
        self._listeners.setdefault(key, {})[listener] = None
        self.watched.add(key)

    def unlisten(self, key: Hashable, listener: WakeListener) -> None:
        """Tell a listener no longer; one that does not listen is fine."""
        listeners = self._listeners.get(key)
        if listeners is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._listeners[key]
                if key not in self._watchers:
                    self.watched.discard(key)

    def wake(self, key: Hashable) -> int:
        """Tell the listeners of `key`, then let every entry under it try to complete.

        The oldest comes first; the number of those that completed is returned.  Those that are too
        many for a turn are woken by `expire`, those of a block of `one_event` at its end.
        """
        listeners = self._listeners.get(key)
        entries = self._watchers.get(key)
        if listeners is None and entries is None:
            return 0
        if self._event_depth:
            self._held_back[key] = None
            return 0
        if listeners is not None:
            for listener in tuple(listeners):
                try:
                    listener.on_wake(key)
                except Exception as fault:
                    self.errors.note("listener", key, fault)
            entries = self._watchers.get(key)
        if entries is None:
            return 0
        woken = tuple(entries)
        if len(woken) > ENTRIES_NOT_COUNTED:
            count = _count_of_turn(woken)
            if count < len(woken):
                woken = self._put_off(key, woken, count)
        return self._try_each(key, woken)

    def _put_off(
        self, key: Hashable, entries: tuple[WaitingEntry, ...], count: int
    ) -> tuple[WaitingEntry, ...]:
        """Leave all but the first `count` to the next turns; return what this one has to wake."""
        unwoken = self._unwoken.get(key)
        if unwoken is not None:
            # This turn, or the one before, has woken its part already.
            unwoken.update(dict.fromkeys(entries))
            return ()
        self._unwoken[key] = dict.fromkeys(entries[count:])
        if self.on_earlier_deadline is not None:
            self.on_earlier_deadline()
        return entries[:count]

    def _wake_more(self) -> int:
        """Wake the next part of what was put off for one key; return how many completed."""
        key, unwoken = next(iter(self._unwoken.items()))
        del self._unwoken[key]
        entries = tuple(unwoken)
        count = _count_of_turn(entries)
        if count < len(entries):
            # Behind the other keys: each has its turn.
            self._unwoken[key] = dict.fromkeys(entries[count:])
        return self._try_each(key, entries[:count])

    def _try_each(self, key: Hashable, entries: tuple[WaitingEntry, ...]) -> int:
        completed_count = 0
        for entry in entries:
            # An entry completed earlier in this round may have woken and ended this one.
            if not entry._is_waiting:
                continue
            # It counts as ended while it tries: what it wakes in turn must not try it again.
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
        """Drop an entry whose answer nobody wants any more; one that has ended is left alone."""
        if entry._is_waiting:
            entry._is_waiting = False
            self._forget(entry)

    def expire(self, now_ms: int) -> int:
        """End entries whose deadline has come, earliest first; return how many.

        A client chooses how many share a deadline: those too many for a turn stay due, and the next
        call ends them.  Entries that were too many to wake in one turn are woken first.
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
        """The earliest instant at which `expire` may have work, or None with nothing waiting."""
        if self._unwoken:
            return AT_ONCE_MS
        return self._timers[0][0] if self._timers else None

    @property
    def waiting_count(self) -> int:
        """How many entries wait."""
        return len(self._timers) - self._dead_timer_count

    def waiting_by_kind(self) -> dict[str, int]:
        """Return how many entries of each kind wait; looks at every one."""
        counts: dict[str, int] = {}
        for _, _, entry in self._timers:
            if entry._is_waiting:
                counts[entry.kind] = counts.get(entry.kind, 0) + 1
        return counts

    def _forget(self, entry: WaitingEntry) -> None:
        """Drop an ended entry from its keys; its timer stays behind as dead."""
        self._unwatch(entry)
        self._dead_timer_count += 1
        if self._dead_timer_count > DEAD_TIMERS_KEPT and 2 * self._dead_timer_count > len(
            self._timers
        ):
            # In place: `expire` may be walking this very list.
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
    """Return how many entries, from the first on, one turn may let try."""
    left = COST_PER_TURN
    for count, entry in enumerate(entries):
        if left <= 0:
            return count
        left -= entry.cost
    return len(entries)
