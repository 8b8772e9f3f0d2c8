"""A queue that orders its deliveries: legal histories are accepted, planted bugs are reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.checkers.share_order import (
    DELAYS_MS,
    RecordOrder,
    RecordPriority,
    check_share_order,
    order_of,
)
from ottla.jepsen.checkers.verdict import RunFacts, Verdict
from ottla.jepsen.history import Event, EventKind, History, Json
from tests.jepsen.checkers.share_histories import (
    GROUP,
    KEY,
    LIMIT,
    LOCK_MS,
    RECORDS_IN_TAKE,
    Queue,
    QueueHistory,
    Record,
)

SEEDS = st.integers(0, 1 << 32)
BACKOFF_MS = 1_000
FACTS = RunFacts(
    workload="share", lock_ms=LOCK_MS, delivery_count_limit=LIMIT, share_backoff_ms=BACKOFF_MS
)
PLANT_SEEDS = 10
BACKLOG = 250
PRIORITIES = HIGH, NORMAL, LOW = tuple(RecordPriority)
TURNS = (HIGH, NORMAL, HIGH, LOW, HIGH, NORMAL, HIGH)


@dataclass
class OrderedQueue(Queue):
    """The leader of one share partition, by a plain search through all records."""

    turn: int = 0
    release_ms: int = 0

    def take(self, member: str, now_ms: int) -> list[tuple[int, int]]:
        self.release_ms = now_ms
        self.end_locks(now_ms)
        found: list[tuple[int, int]] = []
        while len(found) < RECORDS_IN_TAKE:
            ready = self._ready(now_ms)
            if not ready:
                break
            offset = self._next(ready)
            record = self.records[offset]
            record.count += 1
            record.owner, record.until_ms = member, now_ms + LOCK_MS
            found.append((offset, record.count))
        return sorted(found)

    def _next(self, ready: list[int]) -> int:
        if self.bug == "low starves":
            first = min(PRIORITIES.index(self._priority(offset)) for offset in ready)
            return next(at for at in ready if PRIORITIES.index(self._priority(at)) == first)
        while True:
            wanted = TURNS[self.turn % len(TURNS)]
            self.turn += 1
            for offset in ready:
                if self._priority(offset) is wanted:
                    return offset

    def _priority(self, offset: int) -> RecordPriority:
        return order_of(self.records[offset].value).priority

    def _ready(self, now_ms: int) -> list[int]:
        blocked: set[str] = set()
        ready: list[int] = []
        for offset, record in enumerate(self.records):
            order = order_of(record.value)
            if record.is_settled:
                continue
            is_due = record.sent_ms + order.delay_ms <= now_ms or self.bug == "early"
            is_rested = record.ready_ms <= now_ms or self.bug == "no back-off"
            if is_due and is_rested and record.owner is None and order.key not in blocked:
                ready.append(offset)
            if order.key is not None and not (self.bug == "key freed" and record.count):
                blocked.add(order.key)
        return ready

    def acknowledge(self, member: str, offset: int, kind: str, now_ms: int) -> bool:
        self.release_ms = now_ms
        return super().acknowledge(member, offset, kind, now_ms)

    def release(self, record: Record) -> None:
        super().release(record)
        record.ready_ms = self.release_ms + BACKOFF_MS

    def timing(self, offset: int, now_ms: int) -> list[Json]:
        record = self.records[offset]
        return [record.sent_ms + order_of(record.value).delay_ms - now_ms]


class OrderedHistory(QueueHistory):
    """A random history of one queue that orders its deliveries."""

    queue_class = OrderedQueue
    records_max = 400
    send_share = 0.5


class CrowdedHistory(OrderedHistory):
    """A random history of a queue in which far more records are ready than its members handle, so
    that the turns of the priorities decide."""

    send_share = 0.0

    def _join(self, member: str) -> None:
        while len(self.queue.records) < BACKLOG:
            value, process = next(self._values), next(self._process)
            self._add(process, EventKind.INVOKE, "send", [["send", KEY, value]])
            self.queue.records.append(Record(value, self.now_ms))
            self._add(process, EventKind.OK, "send", [["send", KEY, [value, value]]])
        super()._join(member)


BUGS: Mapping[str, str] = {
    "early": "delivered-early",
    "no back-off": "back-off-cut",
    "key freed": "key-order",
}


def judged(history: History) -> Verdict:
    return check_share_order(history, FACTS)


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_a_legal_history_is_accepted(seed: int) -> None:
    verdict = judged(OrderedHistory(seed).history())
    assert verdict.valid is True, verdict.findings
    assert verdict.figures["share_keyed"] > 0


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_reported_by_its_anomaly(bug: str) -> None:
    found: set[str] = set()
    for seed in range(PLANT_SEEDS):
        found |= set(judged(OrderedHistory(seed, bug=bug).history()).findings_count)
    assert found == {BUGS[bug]}


@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_a_legal_history_of_a_crowded_queue_is_accepted(seed: int) -> None:
    verdict = judged(CrowdedHistory(seed).history())
    assert verdict.valid is True, verdict.findings


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_in_which_a_low_priority_has_no_turn_is_reported(seed: int) -> None:
    verdict = judged(CrowdedHistory(seed, bug="low starves").history())
    assert set(verdict.findings_count) == {"priority-starved"}


def values_of(priority: RecordPriority, size: int) -> list[int]:
    """Return values of records with a priority, and without key and delay."""
    wanted = RecordOrder(None, 0, priority)
    return list(islice((one for one in count() if order_of(one) == wanted), size))


def delivered(offsets: list[int], values: list[int]) -> History:
    """Return a history in which all records are sent, and then delivered one by one."""
    events: list[Event] = []

    def add(kind: EventKind, f: str, value: Json) -> None:
        at = len(events)
        events.append(Event(at, at * 1_000_000, at // 2, kind, f, value))

    for offset, value in enumerate(values):
        add(EventKind.INVOKE, "send", [["send", KEY, value]])
        add(EventKind.OK, "send", [["send", KEY, [offset, value]]])
    for offset in offsets:
        taken = {"group": GROUP, "member": "m", "keys": {KEY: [[offset, values[offset], 1, 0]]}}
        add(EventKind.INVOKE, "take", {"group": GROUP})
        add(EventKind.OK, "take", taken)
    return History(events)


def test_a_record_of_low_priority_that_very_many_overtake_is_starved() -> None:
    values = values_of(LOW, 1) + values_of(HIGH, 100)
    starved = judged(delivered([*range(1, 101), 0], values))
    assert set(starved.findings_count) == {"priority-starved"}
    assert judged(delivered([*range(1, 7), 0, *range(7, 101)], values)).valid is True


def test_records_of_low_priority_wait_for_each_other() -> None:
    values = [*values_of(LOW, 20), *values_of(HIGH, 120)]
    turns: list[int] = []
    for low in range(20):
        turns += [*range(20 + 6 * low, 26 + 6 * low), low]
    assert judged(delivered(turns, values)).valid is True


def test_the_order_of_a_record_follows_from_its_value() -> None:
    orders = [order_of(f"producer-0/{number}") for number in range(2_000)]
    assert order_of("x") == order_of("x")
    assert {one.key for one in orders} == {None, "k0", "k1", "k2"}
    assert {one.delay_ms for one in orders} == set(DELAYS_MS)
    assert {one.priority for one in orders} == set(RecordPriority)
    assert all(one.delay_ms == 0 for one in orders if one.key is not None)
    assert RecordOrder(None, 0, LOW) in orders
