"""Whole clusters in virtual time keep their promises."""

from functools import cache
from typing import Any

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, make_engine
from ottla.jepsen.world.whole.encryption import encryption_chance
from ottla.jepsen.world.whole.whole_cluster import EncryptedCluster, LossesOfCluster
from tests.jepsen.search_length import IS_FULL

BUDGET = 6_000
SEEDS = (1, 2, 3) if IS_FULL else (1, 3)
CALM_SEED = 4


@cache
def run(seed: int, budget: int = BUDGET, subject: str | None = None) -> RunOutcome:
    return make_engine("whole", subject).run(Chance(seed), budget=budget)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_under_fire_keeps_its_promises(explored: Any, seed: int) -> None:
    outcome = run(seed)
    explored("C cluster", outcome)
    assert outcome.violation is None
    assert outcome.figures["acknowledged"] > 0
    assert outcome.event_count > 1_000


def test_a_cluster_whose_logs_are_compacted_all_the_time_keeps_its_promises(explored: Any) -> None:
    outcome = run(6, subject="compacted")
    explored("C compacted", outcome)
    assert outcome.violation is None
    assert outcome.rare["a consumer skips compacted records"] > 0


def test_controllers_whose_files_are_damaged_one_at_a_time_lose_nothing(explored: Any) -> None:
    outcome = run(1, subject="damaged-quorum")
    explored("C damaged quorum", outcome)
    assert outcome.violation is None
    assert outcome.figures["damaged controllers"] > 0


def test_replicas_that_move_under_a_throttle_lose_nothing(explored: Any) -> None:
    outcomes = [run(seed, subject="throttled") for seed in (8, 12)]
    for outcome in outcomes:
        explored("C throttled", outcome)
        assert outcome.violation is None
    assert sum(outcome.figures["reassignments"] for outcome in outcomes) > 0
    waits = (
        "a leader waits for its replication quota",
        "a follower waits for its replication quota",
    )
    assert sum(outcome.rare.get(wait, 0) for outcome in outcomes for wait in waits) > 0


@pytest.mark.parametrize("seed", (0, 10) if IS_FULL else (0,))
def test_replicas_whose_files_are_taken_are_found_and_filled_again(
    explored: Any, seed: int
) -> None:
    outcome = run(seed, LossesOfCluster.budget, "losses")
    explored("whole losses", outcome)

    assert outcome.violation is None
    assert outcome.figures["losses"]


def test_acknowledged_entries_stay_whatever_goes_wrong(explored: Any) -> None:
    outcome = run(12, subject="acls")
    explored("C acls", outcome)
    assert outcome.violation is None
    assert outcome.rare["a broker authorizes by ACLs"] > 0


def test_controllers_keep_what_they_acknowledge_to_kafkas_clients(explored: Any) -> None:
    outcome = run(8, subject="controller-clients")
    explored("C controller clients", outcome)
    assert outcome.violation is None
    for state in (
        "the active controller answers a client",
        "a controller that is not active refuses a client",
        "a controller describes its quorum",
        "another controller is active",
    ):
        assert outcome.rare[state] > 0


def test_encrypted_listeners_bear_what_plain_ones_bear_and_refuse_strangers(explored: Any) -> None:
    outcomes = [run(seed, 4_000, "encrypted") for seed in (1, 5)]
    for outcome in outcomes:
        explored("C encrypted", outcome)
        assert outcome.violation is None
        assert outcome.figures["acknowledged"] > 0
    assert sum(outcome.rare.get("a stranger is refused", 0) for outcome in outcomes) > 0
    assert sum(outcome.rare.get("a message comes in pieces", 0) for outcome in outcomes) > 0
    assert sum(outcome.rare.get("a new certificate is shown", 0) for outcome in outcomes) > 0


def test_no_connection_ends_when_certificates_change_under_load() -> None:
    counts = []
    for only in (("none",), ("new certificate",) * 2):
        engine = EncryptedCluster()
        engine.only = only
        outcome = engine.run(Chance(CALM_SEED), budget=4_000)
        assert outcome.violation is None
        counts.append(outcome.figures)
    before, after = counts
    assert "certificates changed" not in before
    assert after["certificates changed"] > 1
    assert after["handshakes under load"] == before["handshakes under load"]


def test_some_runs_of_every_subject_have_encrypted_listeners() -> None:
    drawn = [encryption_chance(Chance(seed), is_demanded=False) for seed in range(400)]
    assert 50 < sum(chance is not None for chance in drawn) < 150
    # The one of them among the runs above is 1.
    assert [seed for seed in SEEDS if drawn[seed] is not None] == [1]


def test_a_run_played_again_from_its_decisions_is_the_same() -> None:
    first = run(SEEDS[-1])
    again = make_engine("whole").run(Chance(SEEDS[-1], replay=first.decisions), budget=BUDGET)
    assert again.trace_hash == first.trace_hash
