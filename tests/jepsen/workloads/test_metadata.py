"""Operations that are not idempotent are done to a name by one thread, while outcomes are known."""

from collections import Counter
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.load import CONFLUENT, OWN, SECOND, Completion, LoadPlan, Op
from ottla.jepsen.workloads.metadata import MetadataLoad

KINDS = (OWN, CONFLUENT, OWN, CONFLUENT)


class Topics:
    """Plays a cluster without faults: how many partitions there are of what."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def do(self, op: Op) -> EventKind:
        """Do a write; INFO where it is refused."""
        topic = op.value["topic"]
        count = self.counts.get(topic, 0)
        if op.f == "create":
            if count:
                return EventKind.INFO
            self.counts[topic] = op.value["count"]
        elif op.f == "delete":
            if not count:
                return EventKind.INFO
            del self.counts[topic]
        elif op.f == "partitions":
            if not 0 < count < op.value["count"]:
                return EventKind.INFO
            self.counts[topic] = op.value["count"]
        elif not count:
            return EventKind.FAIL
        return EventKind.OK


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.sampled_from([0.0, 0.05]))
def test_names_have_one_writer_who_leaves_them_when_in_doubt(seed: int, unknown: float) -> None:
    rng = Random(seed)
    load = MetadataLoad(LoadPlan(prefix="p-", kinds=KINDS))
    topics = Topics()
    writers: dict[str, set[int]] = {}
    lost: dict[str, int] = {}
    values: Counter[tuple[str, Any]] = Counter()
    seen: Counter[str] = Counter()
    for step in range(4_000):
        thread = step % len(KINDS)
        op = load.next_op(thread, step * SECOND // 50, rng)
        if op is None:
            assert KINDS[thread] == CONFLUENT
            continue
        seen[op.f] += 1
        done = Completion(EventKind.INFO if op.f == "crash" else EventKind.OK)
        if op.f not in ("crash", "describe"):
            topic = op.value["topic"]
            done = Completion(EventKind.INFO if rng.random() < unknown else topics.do(op))
            is_race = "race" in topic
            if is_race:
                assert op.f in ("create", "partitions")
            else:
                assert topic not in lost, "one of its operations has an unknown outcome"
                # A sole writer that knows the outcome of every operation is never refused.
                assert unknown or done.kind is EventKind.OK
                writers.setdefault(topic, set()).add(thread)
                if done.kind is EventKind.INFO:
                    lost[topic] = thread
            if op.f == "set-config":
                values[topic, op.value["config"]["retention.ms"]] += 1
        elif op.f == "describe":
            assert KINDS[thread] == OWN
        load.on_completion(thread, op, done)
    assert {len(threads) for threads in writers.values()} == {1}
    assert set(values.values()) == {1}
    # In doubt about every twentieth write one rarely lives to delete a topic.
    assert set(seen) | ({"delete"} if unknown else set()) == {
        "create",
        "delete",
        "partitions",
        "set-config",
        "describe",
        "crash",
    }


def test_at_the_end_every_topic_is_looked_at_once_more() -> None:
    rng = Random(0)
    load = MetadataLoad(LoadPlan(kinds=KINDS))
    topics = Topics()
    written = set()
    for step in range(2_000):
        thread = step % len(KINDS)
        op = load.next_op(thread, step, rng)
        if op is not None:
            done = Completion(EventKind.OK if op.f == "describe" else topics.do(op))
            if op.f != "describe":
                written.add(op.value["topic"])
            load.on_completion(thread, op, done)
    looked_at: Counter[tuple[str, str]] = Counter()
    for thread in range(len(KINDS)):
        while (op := load.final_op(thread, 0, rng)) is not None:
            load.on_completion(thread, op, Completion(EventKind.OK))
            if op.f == "describe":
                looked_at[op.value["topic"], op.value["part"]] += 1
    assert looked_at == dict.fromkeys(((t, p) for t in written for p in ("topic", "config")), 1)
    assert load.is_caught_up
