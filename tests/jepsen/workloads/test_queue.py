"""The queue's generator keeps the rules a history is judged by, whatever its operations come to."""

from collections import Counter
from random import Random
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import OWN, SECOND, Completion, LoadPlan, Op
from ottla.jepsen.workloads.queue import QueueLoad

THREADS = 3
STEP_NS = SECOND // 4


class Logs:
    """Plays a cluster: logs, and each thread's place in them."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.logs: dict[str, list[int]] = {}
        self.at: dict[int, dict[str, int]] = {thread: {} for thread in range(THREADS)}

    def do(self, thread: int, op: Op, troubles: float) -> Completion:
        if op.f == "crash":
            self.at[thread] = {}
            return Completion(EventKind.INFO)
        if self.rng.random() < troubles:
            return Completion(self.rng.choice([EventKind.FAIL, EventKind.INFO]))
        if op.f == "send":
            ((_, key, value),) = op.value
            log = self.logs.setdefault(key, [])
            log.append(value)
            return Completion(EventKind.OK, [["send", key, [len(log) - 1, value]]])
        if op.f == "poll":
            return Completion(EventKind.OK, [["poll", self.read(thread)]])
        if op.f == "assign":
            self.at[thread] = {key: self.at[thread].get(key, 0) for key in op.value}
        elif op.f == "subscribe":
            self.at[thread] = {f"{topic}-{index}": 0 for topic in op.value for index in (0, 1)}
        return Completion(EventKind.OK)

    def read(self, thread: int) -> dict[str, Any]:
        read = {}
        for key, at in self.at[thread].items():
            records = self.logs.get(key, [])[at : at + 3]
            if records:
                read[key] = [[at + index, value] for index, value in enumerate(records)]
                self.at[thread][key] = at + len(records)
        return read


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9_999), st.sampled_from([0.0, 0.3]))
@example(seed=1769, troubles=0.0)
def test_values_are_unique_and_each_thread_reads_only_what_it_asked_for(
    seed: int, troubles: float
) -> None:
    rng = Random(seed)
    load = QueueLoad(LoadPlan(prefix="p-", kinds=(OWN,) * THREADS), values_max=20)
    logs = Logs(rng)
    made = {topic.name for topic in load.topics}
    sent: Counter[tuple[str, int]] = Counter()
    has_keys = [False] * THREADS
    seen: set[str] = set()
    for step in range(600):
        thread = step % THREADS
        op = load.next_op(thread, step * STEP_NS // THREADS, rng)
        assert op is not None
        seen.add(op.f)
        if op.f == "poll":
            assert has_keys[thread], "a poll without an assignment"
        if op.f == "send":
            ((_, key, value),) = op.value
            sent[key, value] += 1
            assert partition_of(key)[0] in made
        done = logs.do(thread, op, troubles)
        if op.f == "create-topic" and done.kind is EventKind.OK:
            made.add(op.value)
        if op.f in ("assign", "subscribe", "crash"):
            has_keys[thread] = done.kind is EventKind.OK
        load.on_completion(thread, op, done)
    assert set(sent.values()) == {1}
    # A few seeds in ten thousand draw only one of the two ways to get partitions.
    assert seen & {"assign", "subscribe"}
    assert seen - {"assign", "subscribe"} == {"send", "poll", "crash", "create-topic"}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9_999))
def test_the_final_reads_see_all_that_was_sent(seed: int) -> None:
    rng = Random(seed)
    load = QueueLoad(LoadPlan(kinds=(OWN,) * THREADS), values_max=20)
    logs = Logs(rng)
    for step in range(300):
        op = load.next_op(step % THREADS, step, rng)
        assert op is not None
        load.on_completion(step % THREADS, op, logs.do(step % THREADS, op, 0.1))
    read: dict[str, int] = {}
    for thread in range(THREADS):
        now_ns = 0
        while (op := load.final_op(thread, now_ns, rng)) is not None:
            now_ns += SECOND // 10
            done = logs.do(thread, op, 0.05)
            load.on_completion(thread, op, done)
            if op.f == "poll" and done.value is not None:
                read.update((key, records[-1][0]) for key, records in done.value[0][1].items())
    assert load.is_caught_up
    assert read == {key: len(log) - 1 for key, log in logs.logs.items()}


def test_a_thread_whose_logs_are_full_and_read_turns_to_others() -> None:
    rng = Random(1)
    load = QueueLoad(LoadPlan(kinds=(OWN,)), values_max=3)
    logs = Logs(rng)
    changes = 0
    for step in range(400):
        op = load.next_op(0, step, rng)
        assert op is not None
        changes += op.f in ("assign", "subscribe")
        load.on_completion(0, op, logs.do(0, op, 0.0))
    # By chance alone it would be about three times.
    assert changes > 10
