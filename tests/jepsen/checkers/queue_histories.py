"""Valid histories of clients of logs, with calls that fail, hang and are answered too late.

A small simulation in virtual time: each operation begins, takes effect at one moment (or not, or
after its client gave up) and ends. Offsets have gaps, consumers crash, rewind and are rebalanced,
transactions abort; at the end fresh consumers read everything.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from ottla.jepsen.history import NO_EXTRA, Event, EventKind, History, Json, Recorder

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryWeather:
    """Rates of operations and of faults in one history."""

    operation_count: int = 60
    """Before the final reads."""
    thread_count: int = 4
    topic_count: int = 2
    partition_count: int = 2
    has_transactions: bool = True
    has_subscribers: bool = True
    is_idempotent: bool = True
    trouble: float = 0.15
    """The share of operations that do not simply succeed."""
    gap: float = 0.1
    """The share of records behind which an offset holds none."""
    records_max: int = 6
    """Most records of a key that one poll returns."""
    has_final_reads: bool = True


@dataclass(slots=True)
class HistoryConsumer:
    """One process's place in the logs it reads."""

    positions: dict[str, int] = field(default_factory=dict)
    """By key: how many of its records were read."""
    is_subscribed: bool = False


class Simulation:
    """The logs, the clients and the time of one history."""

    def __init__(self, rng: Random, weather: HistoryWeather) -> None:
        self.now_ns = 0
        self._rng = rng
        self._weather = weather
        self._topics = [f"q{number}" for number in range(weather.topic_count)]
        partitions = range(weather.partition_count)
        self._keys = [f"{topic}-{partition}" for topic in self._topics for partition in partitions]
        self._logs: dict[str, list[tuple[int, int]]] = {key: [] for key in self._keys}
        self._ends = dict.fromkeys(self._keys, 0)
        self._value_counts = dict.fromkeys(self._keys, 0)
        self._consumers = [HistoryConsumer() for _ in range(weather.thread_count)]
        self._recorder = Recorder(lambda: self.now_ns, concurrency=weather.thread_count)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0
        self._begun = 0

    def run(self) -> History:
        """Play it to its end."""
        for thread in range(self._weather.thread_count):
            self._plan(self._rng.randrange(NS_PER_MS), partial(self._next, thread))
        while self._agenda:
            self.now_ns, _, act = heapq.heappop(self._agenda)
            act()
        if self._weather.has_final_reads:
            for thread in range(self._weather.thread_count):
                self._read_all(thread)
        return self._recorder.history()

    # ---- one operation

    def _next(self, thread: int) -> None:
        if self._begun >= self._weather.operation_count:
            return
        self._begun += 1
        choice = self._rng.random()
        if choice < 0.04 or not self._consumers[thread].positions:
            self._assign(thread)
        elif choice < 0.06:
            self._crash(thread)
        elif choice < 0.5:
            self._poll(thread)
        elif choice < 0.85 or not self._weather.has_transactions:
            self._send(thread)
        else:
            self._transact(thread)

    def _send(self, thread: int) -> None:
        key = self._rng.choice(self._keys)
        count = 1 if self._rng.random() < 0.8 else 2
        values = [self._value(key) for _ in range(count)]
        extra: Mapping[str, Json] = NO_EXTRA
        if not self._weather.is_idempotent:
            extra = {"idempotent": False}

        def effect() -> list[Json]:
            results: list[Json] = []
            for value in values:
                offset = self._append(key, value)
                if not self._weather.is_idempotent and self._rng.random() < 0.1:
                    self._append(key, value)
                is_reported = self._rng.random() < 0.97
                results.append(["send", key, [offset if is_reported else None, value]])
            return results

        asked = [["send", key, value] for value in values]
        self._operate(thread, "send", asked, effect, extra=extra)

    def _poll(self, thread: int) -> None:
        consumer = self._consumers[thread]
        extra: dict[str, Json] = {}
        if consumer.is_subscribed and self._rng.random() < 0.2:
            self._jump(consumer)
            if self._rng.random() < 0.5:
                extra["rebalanced"] = sorted(consumer.positions)
        before = dict(consumer.positions)

        def effect() -> list[Json]:
            return [["poll", self._take(consumer)]]

        def rewind() -> None:
            consumer.positions.update(before)

        self._operate(thread, "poll", [["poll"]], effect, rewind=rewind, extra=extra)

    def _transact(self, thread: int) -> None:
        consumer = self._consumers[thread]
        before = dict(consumer.positions)
        asked: list[Json] = []
        for _ in range(self._rng.randint(1, 4)):
            if self._rng.random() < 0.4:
                asked.append(["poll"])
            else:
                key = self._rng.choice(self._keys)
                asked.append(["send", key, self._value(key)])

        def effect() -> list[Json]:
            polled = [self._take(consumer) if step[0] == "poll" else None for step in asked]
            results: list[Json] = []
            for step, found in zip(asked, polled, strict=True):
                if step[0] == "poll":
                    results.append(["poll", found])
                else:
                    results.append(["send", step[1], [self._append(step[1], step[2]), step[2]]])
            for key in {step[1] for step in asked if step[0] == "send"}:
                self._ends[key] += 1
            return results

        def rewind() -> None:
            consumer.positions.update(before)

        self._operate(thread, "txn", asked, effect, rewind=rewind)

    def _operate(
        self,
        thread: int,
        f: str,
        asked: Json,
        effect: Callable[[], Json],
        *,
        rewind: Callable[[], None] = lambda: None,
        extra: Mapping[str, Json] = NO_EXTRA,
    ) -> None:
        """Begin an operation, apply its effect or not, and end it with a random outcome."""
        rng = self._rng
        invoke = self._recorder.invoke(
            self._recorder.process(thread), f, asked, extra if f == "send" else NO_EXTRA
        )
        took_ns = rng.randrange(2, 20) * NS_PER_MS
        at_ns = rng.randrange(1, took_ns)
        trouble = rng.random() >= 1 - self._weather.trouble
        ending = (
            rng.choice(("fail", "read-and-fail", "info", "done-info", "late")) if trouble else ""
        )
        answer: list[Json] = []

        def act() -> None:
            if ending in ("", "done-info", "late") or (ending == "read-and-fail" and f == "poll"):
                answer.append(effect())

        def end() -> None:
            if ending == "":
                self._recorder.complete(invoke, EventKind.OK, answer[0], extra=extra)
            elif ending in ("fail", "read-and-fail"):
                results = answer[0] if answer and f == "poll" else None
                rewind()
                self._recorder.complete(
                    invoke, EventKind.FAIL, results, "NOT_LEADER_OR_FOLLOWER", extra
                )
            else:
                self._recorder.complete(invoke, EventKind.INFO, error="timed out", extra=extra)
                self._consumers[thread] = HistoryConsumer()
            self._plan(rng.randrange(5) * NS_PER_MS, lambda: self._next(thread))

        self._plan(took_ns * 3 if ending == "late" else at_ns, act)
        self._plan(took_ns, end)

    # ---- consumers

    def _assign(self, thread: int) -> None:
        consumer = self._consumers[thread]
        consumer.is_subscribed = self._weather.has_subscribers and self._rng.random() < 0.4
        if consumer.is_subscribed:
            f, names = "subscribe", self._some(self._topics)
            keys = [key for key in self._keys if key.rpartition("-")[0] in names]
        else:
            f, names = "assign", self._some(self._keys)
            keys = names
        consumer.positions = {key: consumer.positions.get(key, 0) for key in keys}
        invoke = self._recorder.invoke(self._recorder.process(thread), f, names)
        self._recorder.complete(invoke, EventKind.OK)
        self._plan(NS_PER_MS, lambda: self._next(thread))

    def _crash(self, thread: int) -> None:
        invoke = self._recorder.invoke(self._recorder.process(thread), "crash")
        self._recorder.complete(invoke, EventKind.INFO)
        self._consumers[thread] = HistoryConsumer()
        self._plan(NS_PER_MS, lambda: self._next(thread))

    def _jump(self, consumer: HistoryConsumer) -> None:
        for key, position in consumer.positions.items():
            consumer.positions[key] = self._rng.randint(max(position - 3, 0), position)

    def _take(self, consumer: HistoryConsumer) -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = {}
        for key, position in consumer.positions.items():
            count = self._rng.randint(0, self._weather.records_max)
            records = self._logs[key][position : position + count]
            if records:
                found[key] = [list(record) for record in records]
                consumer.positions[key] = position + len(records)
        return found

    def _read_all(self, thread: int) -> None:
        final = {"final": True}
        recorder = self._recorder
        self._tick()
        recorder.complete(recorder.invoke(recorder.process(thread), "crash"), EventKind.INFO)
        process = recorder.process(thread)
        invoke = recorder.invoke(process, "assign", self._keys, final)
        recorder.complete(invoke, EventKind.OK, extra=final)
        consumer = HistoryConsumer(dict.fromkeys(self._keys, 0))
        while any(place < len(self._logs[key]) for key, place in consumer.positions.items()):
            self._tick()
            invoke = recorder.invoke(process, "poll", [["poll"]], final)
            self._tick()
            recorder.complete(invoke, EventKind.OK, [["poll", self._take(consumer)]], extra=final)

    # ---- logs, time and chance

    def _append(self, key: str, value: int) -> int:
        offset = self._ends[key]
        self._logs[key].append((offset, value))
        self._ends[key] = offset + 1 + (self._rng.random() < self._weather.gap)
        return offset

    def _value(self, key: str) -> int:
        self._value_counts[key] += 1
        return self._value_counts[key]

    def _some(self, names: Sequence[str]) -> list[str]:
        return sorted(self._rng.sample(names, self._rng.randint(1, len(names))))

    def _tick(self) -> None:
        self.now_ns += NS_PER_MS

    def _plan(self, wait_ns: int, act: Callable[[], None]) -> None:
        self._planned += 1
        heapq.heappush(self._agenda, (self.now_ns + wait_ns, self._planned, act))


def queue_history(rng: Random, weather: HistoryWeather | None = None) -> History:
    """Return a valid history."""
    return Simulation(rng, weather or HistoryWeather()).run()


def renumbered(events: Sequence[Event]) -> History:
    """Return a history of these events, numbered and timed in the order given."""
    time_ns = 0
    made: list[Event] = []
    for index, event in enumerate(events):
        time_ns = max(time_ns, event.time_ns)
        made.append(
            Event(
                index,
                time_ns,
                event.process,
                event.kind,
                event.f,
                event.value,
                event.error,
                event.extra,
            )
        )
    return History(made)
