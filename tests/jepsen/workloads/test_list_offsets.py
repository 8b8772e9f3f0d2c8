"""End offsets are requested for written keys during the run, and for all keys at its end."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.list_offsets import ListOffsetsLoad
from ottla.jepsen.workloads.load import OWN, Completion, LoadPlan


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_every_key_that_was_written_is_asked_for_at_the_end(seed: int) -> None:
    rng = Random(seed)
    load = ListOffsetsLoad(LoadPlan(kinds=(OWN, OWN)))
    ends: dict[str, int] = {}
    own = {0: 0, 1: 0}
    last: dict[int, str] = {}
    for step in range(600):
        thread = step % 2
        op = load.next_op(thread, step, rng)
        assert op is not None
        done = Completion(EventKind.OK)
        if op.f == "send":
            ((_, key, value),) = op.value
            ends[key] = ends.get(key, 0) + 1
            last[thread] = key
            done = Completion(EventKind.OK, [["send", key, [ends[key] - 1, value]]])
        elif op.f == "end-offset":
            own[thread] += op.value[0] == last.get(thread)
        load.on_completion(thread, op, done)
    # Half of the questions are about what the thread itself was acknowledged last.
    assert min(own.values()) > 50
    for thread in (0, 1):
        asked = []
        while (op := load.final_op(thread, 0, rng)) is not None:
            load.on_completion(thread, op, Completion(EventKind.OK))
            if op.f == "end-offset":
                asked.append(op.value[0])
        assert asked == sorted(ends)
    assert load.is_caught_up
