"""Engine D on raft: every short course of every case, and bugs found on a shortest way."""

from typing import Any

import pytest

from ottla.jepsen.world.bugs import bank
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.exhaustive.raft_cases import CASES, DEPTH_MAX, QuorumState, RaftCases

BUDGET = 6_000


@pytest.mark.parametrize("case", range(len(CASES)))
def test_no_course_breaks_an_invariant(explored: Any, case: int) -> None:
    outcome = RaftCases().run(Chance(case), budget=BUDGET)
    explored("D raft", outcome)

    assert outcome.violation is None
    depths = range(4, DEPTH_MAX + 1)
    assert any(outcome.figures.get(f"cases seen whole to depth {depth}") for depth in depths)
    assert outcome.figures["states"] > 500


def test_a_search_goes_the_same_way_every_time() -> None:
    first, second = (RaftCases().run(Chance(1), budget=2_000) for _ in range(2))

    assert first.trace_hash == second.trace_hash
    assert first.figures == second.figures


@pytest.mark.parametrize("name", ["raft-majority", "raft-any-ack"])
def test_a_bug_is_found_and_its_way_replayed(name: str) -> None:
    engine = RaftCases()

    with bank.mutant(name).apply():
        found = engine.run(Chance(2), budget=BUDGET)
        again = engine.run(Chance(2, replay=found.decisions), budget=BUDGET)

    assert found.violation is not None
    assert again.violation is not None
    assert again.violation.invariant == found.violation.invariant


def test_taking_an_action_leaves_the_state_before_it_alone() -> None:
    state = QuorumState(CASES[1])
    before = (state.key(), state.actions())
    for action in state.actions():
        following = state.take(action)
        if following is not None:
            for deeper in following.actions():
                following.take(deeper)
        state._key = None
        state._member_keys = [None] * 3

        assert (state.key(), state.actions()) == before


def test_two_orders_of_what_does_not_meet_lead_to_one_state() -> None:
    start = QuorumState(CASES[1])

    def after(*actions: str) -> object:
        state: QuorumState | None = start
        for action in actions:
            assert state is not None
            state = state.take(action)
        assert state is not None
        return state.key()

    assert after("sleep 1", "sleep 2") == after("sleep 2", "sleep 1")
    assert after("sleep 1") != after("sleep 2")
