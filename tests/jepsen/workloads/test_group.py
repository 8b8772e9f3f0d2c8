"""Members join before they read, leave and come back; groups are of all protocols and clients."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.group import PROTOCOLS, GroupLoad
from ottla.jepsen.workloads.load import (
    CONFLUENT,
    NOTHING_TO_READ,
    OWN,
    SECOND,
    Completion,
    LoadPlan,
    Op,
)

KINDS = (OWN, CONFLUENT) * 6


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_a_thread_acts_as_a_member_only_while_it_is_one(seed: int) -> None:
    rng = Random(seed)
    load = GroupLoad(LoadPlan(prefix="p-", kinds=KINDS))
    is_in = [False] * len(KINDS)
    groups: dict[str, set[tuple[str, str]]] = {}
    instances: dict[str, int] = {}
    seen = set()
    for step in range(6_000):
        thread = step % len(KINDS)
        op = load.next_op(thread, step * SECOND // 50, rng)
        assert op is not None
        seen.add(op.f)
        kind = EventKind.INFO if op.f == "crash" else EventKind.OK
        if op.f == "join":
            assert not is_in[thread]
            kind = rng.choice([EventKind.OK, EventKind.OK, EventKind.FAIL])
            groups.setdefault(op.value["group"], set()).add((op.value["protocol"], KINDS[thread]))
            if op.value["instance"] is not None:
                assert instances.setdefault(op.value["instance"], thread) == thread
            is_in[thread] = kind is EventKind.OK
        elif op.f in ("leave", "poll", "commit", "fetch"):
            assert is_in[thread]
            is_in[thread] = op.f != "leave"
        elif op.f == "crash":
            is_in[thread] = False
        load.on_completion(thread, op, Completion(kind))
    assert seen == {"join", "leave", "crash", "poll", "commit", "fetch", "send"}
    assert list(groups.values()) == [
        {(next(iter(members))[0], OWN), (next(iter(members))[0], CONFLUENT)}
        for members in groups.values()
    ]
    assert {protocol for members in groups.values() for protocol, _ in members} == set(PROTOCOLS)
    assert instances


def test_at_the_end_each_group_reads_on_until_it_has_read_all() -> None:
    rng = Random(0)
    load = GroupLoad(LoadPlan(kinds=(OWN, OWN)))
    while (op := load.next_op(0, 0, rng)) is None or op.f != "send":
        load.on_completion(0, op or load._join(0), Completion(EventKind.OK))
    ((_, key, value),) = op.value
    load.on_completion(0, op, Completion(EventKind.OK, [["send", key, [7, value]]]))
    assert not load.is_caught_up
    for thread in (0, 1):
        polls = 0
        while (op := load.final_op(thread, 0, rng)) is not None:
            done = Completion(EventKind.OK)
            if op.f == "poll":
                polls += 1
                records = {key: [[polls, 0]]}
                done = Completion(EventKind.OK, {"group": op.value["group"], "keys": records})
            load.on_completion(thread, op, done)
        assert polls == 7
    assert load.is_caught_up


def test_who_is_thrown_out_joins_again_after_a_while_and_not_at_the_end() -> None:
    rng = Random(0)
    load = GroupLoad(LoadPlan(kinds=(OWN,)))
    join = load.next_op(0, 0, rng)
    assert join is None or join.f == "join"
    assert join is not None
    load.on_completion(0, join, Completion(EventKind.OK))
    poll = Op("poll", {"group": join.value["group"]})
    load.on_completion(0, poll, Completion(EventKind.FAIL, None, f"{NOTHING_TO_READ}: fenced"))
    soon = [load.next_op(0, step * SECOND // 10, rng) for step in range(20)]
    assert {op.f for op in soon if op is not None} == {"send"}
    again = load.next_op(0, 2 * SECOND, rng)
    assert again is not None
    assert again.f == "join"
    load.on_completion(0, again, Completion(EventKind.OK))
    load.on_completion(0, poll, Completion(EventKind.FAIL, None, f"{NOTHING_TO_READ}: fenced"))
    load._sent["group-0-0"] = 3
    assert load.final_op(0, 3 * SECOND, rng) is None


def test_a_group_that_stands_still_is_given_up() -> None:
    rng = Random(0)
    load = GroupLoad(LoadPlan(kinds=(OWN,)))
    load._sent["group-0-0"] = 3
    now_ns = 0
    while (op := load.final_op(0, now_ns, rng)) is not None:
        load.on_completion(0, op, Completion(EventKind.OK))
        now_ns += SECOND
    assert now_ns == 60 * SECOND
    assert not load.is_caught_up
