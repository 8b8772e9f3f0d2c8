"""Members acknowledge all that they took before they take more; Java's only consume."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import (
    CONFLUENT,
    JAVA,
    NOTHING_TO_READ,
    OWN,
    SECOND,
    Completion,
    LoadPlan,
    Op,
)
from ottla.jepsen.workloads.share import LATE_NS, LATE_ONE_IN, ShareLoad

KINDS = (OWN, CONFLUENT, JAVA) * 3
KEY = "p-share-0-1"


def taken(*offsets: int) -> Json:
    return {"group": "p-share", "member": "m", "keys": {KEY: [[at, at, 1, 0] for at in offsets]}}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 999))
def test_a_member_acknowledges_what_it_took_before_it_takes_more(seed: int) -> None:
    rng = Random(seed)
    load = ShareLoad(LoadPlan(prefix="p-", kinds=KINDS))
    held: list[set[int]] = [set() for _ in KINDS]
    is_in = [False] * len(KINDS)
    offset, seen = 0, set()
    for step in range(6_000):
        thread = step % len(KINDS)
        op = load.next_op(thread, step * SECOND // 50, rng)
        if op is None:
            assert KINDS[thread] == JAVA
            continue
        seen.add(op.f)
        kind, value = EventKind.OK, None
        if op.f == "join":
            assert not is_in[thread]
            kind = rng.choice([EventKind.OK, EventKind.OK, EventKind.FAIL])
            value = {**op.value, "member": f"m{step}"}
            is_in[thread] = kind is EventKind.OK
        elif op.f == "take":
            assert is_in[thread] and not held[thread]
            offset += 1
            value = taken(offset)
            held[thread] = {offset}
        elif op.f == "acknowledge":
            (rows,) = op.value["keys"].values()
            assert {at for at, _ in rows} == held[thread]
            assert KINDS[thread] == OWN or all(kind != "renew" for _, kind in rows)
            kind = rng.choice([EventKind.OK, EventKind.OK, EventKind.INFO])
            value = {**op.value, "keys": {KEY: [[*row, True] for row in rows]}}
            is_kept = kind is EventKind.OK
            held[thread] = {at for at, each in rows if is_kept and each == "renew"}
        elif op.f in ("leave", "crash"):
            kind = EventKind.INFO if op.f == "crash" else EventKind.OK
            is_in[thread] = False
            held[thread] = set()
        elif op.f == "start-offsets":
            value = {**op.value, "keys": {}}
        elif op.f == "send":
            assert KINDS[thread] != JAVA
        load.on_completion(thread, op, Completion(kind, value))
    assert {"join", "leave", "crash", "take", "acknowledge", "send"} <= seen


def joined(load: ShareLoad) -> None:
    value = {"group": "p-share", "member": "m"}
    load.on_completion(0, Op("join", value), Completion(EventKind.OK, value))


def test_some_records_are_acknowledged_only_after_their_locks() -> None:
    load = ShareLoad(LoadPlan(prefix="p-"))
    rng, now_ns, late_count, take_count = Random(1), 0, 0, 20 * LATE_ONE_IN
    for _ in range(take_count):
        joined(load)
        while (op := load.next_op(0, now_ns, rng)) is None or op.f != "take":
            assert op is not None
            value = {**op.value, "member": "m"} if op.f == "join" else None
            load.on_completion(0, op, Completion(EventKind.OK, value or {"keys": {}}))
            now_ns += SECOND // 100
        load.on_completion(0, op, Completion(EventKind.OK, taken(3)))
        begun_ns = now_ns
        while True:
            op = load.next_op(0, now_ns, rng)
            assert op is not None and op.f in ("acknowledge", "send", "crash", "leave", "join")
            if op.f != "send":
                break
            now_ns += SECOND // 10
        late_count += now_ns - begun_ns >= LATE_NS
        load.on_completion(0, op, Completion(EventKind.INFO))
    assert 0 < late_count < take_count / 4


def test_a_member_without_a_consumer_joins_again() -> None:
    load = ShareLoad(LoadPlan(prefix="p-"))
    joined(load)
    failure = Completion(EventKind.FAIL, None, f"{NOTHING_TO_READ}: None")
    load.on_completion(0, Op("take", {"group": "p-share"}), failure)
    rng = Random(0)
    fs = set()
    for step in range(1_000):
        op = load.next_op(0, step * SECOND // 100, rng)
        assert op is not None
        fs.add(op.f)
        if op.f == "join":
            break
    assert fs <= {"send", "join"} and "join" in fs


def test_the_end_is_reached_when_the_group_has_no_lag() -> None:
    load = ShareLoad(LoadPlan(prefix="p-"))
    rng = Random(0)
    assert load.is_caught_up
    sent = [["send", KEY, [4, 9]]]
    load.on_completion(0, Op("send", sent), Completion(EventKind.OK, sent))
    assert not load.is_caught_up
    op = load.final_op(0, 0, rng)
    assert op is not None and op.f == "join"
    joined(load)
    load.on_completion(0, Op("take"), Completion(EventKind.OK, taken(4)))
    op = load.final_op(0, 0, rng)
    assert op is not None and op.f == "acknowledge"
    assert op.value["keys"] == {KEY: [[4, "accept"]]}
    load.on_completion(0, op, Completion(EventKind.INFO))
    for row, is_over in (([2, 3], False), ([None, None], False), ([2, 0], True), ([5, 0], True)):
        described = Completion(EventKind.OK, {"group": "p-share", "keys": {KEY: row}})
        load.on_completion(0, Op("start-offsets"), described)
        assert load.is_caught_up is is_over
    assert load.final_op(0, 0, rng) is None
