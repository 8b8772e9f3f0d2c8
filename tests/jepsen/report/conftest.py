"""Made-up runs, so that pages can be tested without a cluster: seeded, of any length.

A log answers sends and polls in a few milliseconds; during a fault answers are slow, fail, or are
missing.
"""

import heapq
from collections.abc import Callable
from random import Random

import pytest

from ottla.jepsen.history import EventKind, History, Json, Recorder

FAULT_NAMES = ("kill", "pause", "partition-majorities-ring", "power-cut", "clock")
NODES = ("b1", "b2", "b3", "c1", "c2", "c3")


@pytest.fixture
def queue_run() -> Callable[..., History]:
    """Return the function that makes a run of sends and polls."""
    return _queue_run


@pytest.fixture(scope="session")
def queue_history() -> History:
    """Return one short run of sends and polls under faults."""
    return _queue_run(2_000, seconds=120.0)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        return self.now_ns


def _queue_run(
    operations_count: int,
    *,
    seconds: float = 120.0,
    concurrency: int = 10,
    keys_count: int = 8,
    fault_every_s: float = 20.0,
    seed: int = 1,
) -> History:
    """Return a history of sends and polls under faults, with final reads at its end."""
    rng, clock = Random(seed), Clock()
    recorder = Recorder(clock, concurrency=concurrency)
    keys = [f"q{i // 2}-{i % 2}" for i in range(keys_count)]
    logs: dict[str, list[int]] = {key: [] for key in keys}
    positions: dict[int, dict[str, int]] = {}
    pace_ns = int(seconds * 1e9 * concurrency / operations_count)
    # (time, tie, what): "turn" of a thread, or the beginning or end of a fault.
    queue: list[tuple[int, int, str, int]] = []
    tie = 0
    for thread in range(concurrency):
        heapq.heappush(queue, (thread * pace_ns // concurrency, tie := tie + 1, "turn", thread))
    fault_ns, number = int(fault_every_s * 1e9), 0
    while fault_ns and fault_ns < seconds * 0.85e9:
        heapq.heappush(queue, (fault_ns, tie := tie + 1, "start", number))
        heapq.heappush(queue, (fault_ns + int(7e9), tie := tie + 1, "end", number))
        fault_ns, number = fault_ns + int(fault_every_s * 1e9), number + 1
    ended: dict[int, tuple[Json, EventKind, Json, str | None]] = {}
    is_faulty, next_value = False, 0
    while queue:
        now, _, what, which = heapq.heappop(queue)
        clock.now_ns = now
        if what in ("start", "end"):
            is_faulty = what == "start"
            name = FAULT_NAMES[which % len(FAULT_NAMES)]
            value: dict[str, Json] = {"phase": what, "id": which}
            if is_faulty:
                value["nodes"] = [NODES[which % 3]]
            if name == "clock":
                value["clock_offsets_ms"] = {NODES[which % 3]: 4200 if is_faulty else 0}
            recorder.nemesis(name, value)
        elif what == "done":
            invoke, kind, result, error = ended.pop(which)
            recorder.complete(invoke, kind, result, error, {"node": NODES[which % 3]})
            if now < seconds * 1e9:
                wait = int(pace_ns * rng.uniform(0.1, 0.5))
                heapq.heappush(queue, (now + wait, tie := tie + 1, "turn", which))
        else:
            process, key = recorder.process(which), rng.choice(keys)
            took = int(min(pace_ns * 0.6, 4e6) * rng.lognormvariate(0, 0.5))
            kind, error = EventKind.OK, None
            if is_faulty and rng.random() < 0.3:
                took = int(rng.uniform(0.2e9, 3e9))
                kind = rng.choice((EventKind.OK, EventKind.OK, EventKind.INFO, EventKind.FAIL))
                error = {EventKind.INFO: "timed out", EventKind.FAIL: "NOT_LEADER_OR_FOLLOWER"}.get(
                    kind
                )
            extra = {"client": "ottla" if which % 2 else "confluent"}
            if rng.random() < 0.55:
                next_value += 1
                invoke = recorder.invoke(process, "send", [["send", key, next_value]], extra)
                result = None
                if kind is not EventKind.FAIL:
                    logs[key].append(next_value)
                if kind is EventKind.OK:
                    result = [["send", key, [len(logs[key]) - 1, next_value]]]
            else:
                mine = positions.setdefault(process, {})
                invoke = recorder.invoke(process, "poll", [["poll"]], extra)
                at = mine.get(key, max(0, len(logs[key]) - 20))
                got = [[at + i, v] for i, v in enumerate(logs[key][at : at + 50])]
                result = [["poll", {key: got} if got else {}]] if kind is EventKind.OK else None
                if kind is EventKind.OK:
                    mine[key] = at + len(got)
            ended[which] = (invoke, kind, result, error)
            heapq.heappush(queue, (now + took, tie := tie + 1, "done", which))
    _final_reads(recorder, clock, logs, concurrency)
    return recorder.history()


def _final_reads(
    recorder: Recorder, clock: Clock, logs: dict[str, list[int]], concurrency: int
) -> None:
    extra = {"final": True, "client": "ottla"}
    for thread in range(concurrency):
        process = recorder.process(thread)
        clock.now_ns += 1_000_000
        invoke = recorder.invoke(process, "assign", list(logs), extra)
        recorder.complete(invoke, EventKind.OK, None, None, extra)
        for key, values in logs.items():
            for start in range(0, len(values), 500):
                clock.now_ns += 2_000_000
                invoke = recorder.invoke(process, "poll", [["poll"]], extra)
                clock.now_ns += 3_000_000
                got = [[start + i, v] for i, v in enumerate(values[start : start + 500])]
                recorder.complete(invoke, EventKind.OK, [["poll", {key: got}]], None, extra)
