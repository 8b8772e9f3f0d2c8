"""Registers are short, their values unique, and librdkafka's threads write their own."""

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.load import CONFLUENT, OWN, Completion, LoadPlan
from ottla.jepsen.workloads.offsets import UNKNOWN_MAX, OffsetsLoad

KINDS = (OWN, CONFLUENT, OWN, CONFLUENT)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999), st.sampled_from([0.0, 0.2]))
def test_registers_stay_short_and_no_value_comes_twice(seed: int, unknown: float) -> None:
    rng = Random(seed)
    load = OffsetsLoad(LoadPlan(kinds=KINDS), operations_max=40)
    operations: Counter[tuple[str, str]] = Counter()
    lost: Counter[tuple[str, str]] = Counter()
    values: Counter[tuple[str, str, int]] = Counter()
    writers: dict[tuple[str, str], set[int]] = {}
    for step in range(2_000):
        thread = step % len(KINDS)
        op = load.next_op(thread, step, rng)
        assert op is not None
        group, key, value = op.value
        operations[group, key] += 1
        kind = EventKind.OK
        if op.f == "commit":
            values[group, key, value] += 1
            writers.setdefault((group, key), set()).add(thread)
            if rng.random() < unknown:
                kind = EventKind.INFO
                lost[group, key] += 1
        load.on_completion(thread, op, Completion(kind))
    assert set(values.values()) == {1}
    assert max(operations.values()) <= 40
    assert max(lost.values(), default=0) <= UNKNOWN_MAX
    for threads in writers.values():
        assert len(threads) == 1 or {KINDS[thread] for thread in threads} == {OWN}
    partitions = {int(key.rpartition("-")[2]) for _, key in operations}
    assert max(partitions) < load.topics[0].partition_count


def test_at_the_end_every_open_register_is_read_by_every_thread() -> None:
    rng = Random(0)
    load = OffsetsLoad(LoadPlan(kinds=KINDS))
    assert not load.is_caught_up
    for thread in range(len(KINDS)):
        read = set()
        while (op := load.final_op(thread, 0, rng)) is not None:
            assert op.extra == {"final": True}
            # One that fails is read again.
            is_ok = rng.random() < 0.8
            load.on_completion(thread, op, Completion(EventKind.OK if is_ok else EventKind.FAIL))
            if op.f == "fetch" and is_ok:
                read.add((op.value[0], op.value[1]))
        assert len(read) == 3 * load.topics[0].partition_count
    assert load.is_caught_up
