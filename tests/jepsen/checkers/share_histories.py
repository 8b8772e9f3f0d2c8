"""Histories of a share group: a queue with members, leaders that fail over, and bugs by request.

A simulation in virtual time with a plain table of records.  Each operation begins, has its effect,
and ends at times of its own, so that operations overlap.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from ottla.jepsen.checkers.share_reading import ACCEPT, REJECT, RELEASE, RENEW
from ottla.jepsen.checkers.verdict import RunFacts
from ottla.jepsen.history import Event, EventKind, History, Json

MS = 1_000_000
LOCK_MS, LIMIT = 4_000, 50
FACTS = RunFacts(workload="share", lock_ms=LOCK_MS, delivery_count_limit=LIMIT)
GROUP, KEY = "g", "q-0"
TYPES = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW)
RECORDS_MAX, RECORDS_IN_TAKE = 24, 3
LOST_SHARE = 0.05


@dataclass(slots=True)
class Record:
    """One record, as the leader sees it."""

    value: int
    sent_ms: int = 0
    count: int = 0
    durable_count: int = 0
    owner: str | None = None
    until_ms: int = 0
    is_settled: bool = False
    ready_ms: int = 0
    """End of the back-off."""


@dataclass
class Queue:
    """The leader of one share partition. `bug` names a defect."""

    rng: Random
    bug: str = ""
    records: list[Record] = field(default_factory=list)

    def take(self, member: str, now_ms: int) -> list[tuple[int, int]]:
        self.end_locks(now_ms)
        found: list[tuple[int, int]] = []
        for offset, record in enumerate(self.records):
            is_owned = record.owner is not None and self.bug != "two owners"
            if record.is_settled or is_owned or len(found) == RECORDS_IN_TAKE:
                continue
            record.count += 1
            record.owner, record.until_ms = member, now_ms + LOCK_MS
            found.append((offset, record.count))
        return found

    def acknowledge(self, member: str, offset: int, kind: str, now_ms: int) -> bool:
        if self.bug != "late acknowledgement":
            self.end_locks(now_ms)
        record = self.records[offset]
        if offset < self.start_offset and self.bug == "":
            return True
        if record.owner != member and not (self.bug == "two owners" and record.owner):
            return False
        if kind == RENEW:
            record.until_ms = now_ms + LOCK_MS
            return True
        record.durable_count = 0 if self.bug == "count forgotten" else record.count
        if kind == RELEASE:
            self.release(record)
        elif self.bug != "settled forgotten" or self.rng.random() < 0.7:
            record.owner, record.is_settled = None, True
        else:
            record.owner = None
        return True

    def release(self, record: Record) -> None:
        record.owner, record.is_settled = None, record.count >= LIMIT

    def end_locks(self, now_ms: int) -> None:
        for record in self.records:
            is_over = record.until_ms <= now_ms
            if record.owner is not None and is_over and self.bug != "late acknowledgement":
                self.release(record)

    def timing(self, offset: int, now_ms: int) -> list[Json]:
        """Return the part of a recorded delivery that is about its due time."""
        return []

    def fail_over(self) -> None:
        for record in self.records:
            if not record.is_settled:
                record.owner = None
                record.count = self.rng.randint(record.durable_count, record.count)

    @property
    def start_offset(self) -> int:
        unsettled = [at for at, one in enumerate(self.records) if not one.is_settled]
        if self.bug == "start passes" and unsettled:
            settled = [at + 1 for at, one in enumerate(self.records) if one.is_settled]
            return max(settled, default=0)
        return unsettled[0] if unsettled else len(self.records)


class QueueHistory:
    """A random history of one queue."""

    queue_class: type[Queue] = Queue
    records_max = RECORDS_MAX
    send_share = 0.3

    def __init__(self, seed: int, *, bug: str = "", seconds: int = 40, threads: int = 4) -> None:
        self.rng = Random(seed)
        self.queue = self.queue_class(self.rng, bug)
        self.now_ms = 0
        self._events: list[Event] = []
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._tick = count()
        self._process = count()
        self._end_ms = seconds * 1_000
        self._values = count()
        self._in_hand: dict[str, dict[int, str]] = {}
        for thread in range(threads):
            self._at(self.rng.randrange(500), partial(self._join, f"m{thread}"))
        self._at(3_000, self._fail_over)
        while self._due:
            self.now_ms, _, act = heapq.heappop(self._due)
            act()

    def history(self) -> History:
        return History(self._events)

    def _at(self, delay_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (self.now_ms + delay_ms, next(self._tick), act))

    def _add(self, process: int, kind: EventKind, f: str, value: Json) -> None:
        self._events.append(Event(len(self._events), self.now_ms * MS, process, kind, f, value))

    def _does(
        self,
        f: str,
        asked: Json,
        effect: Callable[[], Json],
        then: Callable[[Json], None],
        lost: EventKind = EventKind.OK,
    ) -> None:
        """Begin an operation, and let it have its effect and its end later.

        `lost` is the outcome that some operations have although they had their effect.
        """
        process = next(self._process)
        kind = lost if self.rng.random() < LOST_SHARE else EventKind.OK
        self._add(process, EventKind.INVOKE, f, asked)

        def have_effect() -> None:
            found = effect()
            self._at(self.rng.randrange(1, 200), lambda: end(found))

        def end(found: Json) -> None:
            is_known = kind is EventKind.OK
            self._add(process, kind, f, found if is_known else None)
            then(found if is_known else None)

        self._at(self.rng.randrange(1, 200), have_effect)

    def _fail_over(self) -> None:
        self.queue.fail_over()
        if self.now_ms < self._end_ms:
            self._at(self.rng.randrange(2_000, 20_000), self._fail_over)

    def _join(self, member: str) -> None:
        value = {"group": GROUP, "member": member}
        self._does("join", value, lambda: value, lambda _: self._next(member))

    def _next(self, member: str) -> None:
        if self.now_ms >= self._end_ms:
            return
        draw = self.rng.random()
        if self._in_hand.get(member):
            delay_ms = 8_000 if draw < 0.05 else self.rng.randrange(1, 1_500)
            self._at(delay_ms, lambda: self._acknowledge(member))
        elif draw < self.send_share and len(self.queue.records) < self.records_max:
            self._send(member)
        elif draw < self.send_share + 0.1:
            self._describe(member)
        else:
            self._take(member)

    def _send(self, member: str) -> None:
        value = next(self._values)

        def effect() -> Json:
            self.queue.records.append(Record(value, self.now_ms))
            return [["send", KEY, [len(self.queue.records) - 1, value]]]

        self._does("send", [["send", KEY, value]], effect, lambda _: self._next(member))

    def _take(self, member: str) -> None:
        asked_ms = self.now_ms

        def effect() -> Json:
            found = self.queue.take(member, self.now_ms)
            age_ms = self.now_ms + 200 - asked_ms if self.rng.random() < 0.8 else None
            values = [
                [
                    at,
                    self.queue.records[at].value,
                    times,
                    age_ms,
                    *self.queue.timing(at, self.now_ms),
                ]
                for at, times in found
            ]
            return {"group": GROUP, "member": member, "keys": {KEY: values} if values else {}}

        def then(found: Json) -> None:
            records = found["keys"].get(KEY, ()) if found else ()
            self._in_hand[member] = {record[0]: self.rng.choice(TYPES) for record in records}
            self._next(member)

        self._does("take", {"group": GROUP}, effect, then, EventKind.FAIL)

    def _acknowledge(self, member: str) -> None:
        acks = sorted(self._in_hand[member].items())
        asked = {"group": GROUP, "member": member, "keys": {KEY: [[*ack] for ack in acks]}}

        def effect() -> Json:
            done = [
                [at, kind, self.queue.acknowledge(member, at, kind, self.now_ms)]
                for at, kind in acks
            ]
            return {**asked, "keys": {KEY: done}}

        def then(found: Json) -> None:
            renewed: dict[int, str] = {at: ACCEPT for at, kind in acks if kind == RENEW}
            self._in_hand[member] = renewed if found else {}
            self._next(member)

        self._does("acknowledge", asked, effect, then, EventKind.INFO)

    def _describe(self, member: str) -> None:
        def effect() -> Json:
            return {"group": GROUP, "keys": {KEY: [self.queue.start_offset, None]}}

        self._does("start-offsets", {"group": GROUP}, effect, lambda _: self._next(member))


BUGS: Mapping[str, frozenset[str]] = {
    "two owners": frozenset({"two-owners", "delivered-after-settled", "count-went-back"}),
    "late acknowledgement": frozenset({"acknowledged-after-lock"}),
    "settled forgotten": frozenset({"delivered-after-settled", "two-owners"}),
    "count forgotten": frozenset({"count-went-back"}),
    "start passes": frozenset({"start-passed-unsettled", "lost-record", "start-went-back"}),
}
"""Bugs of the queue, and the anomalies that may report each."""
