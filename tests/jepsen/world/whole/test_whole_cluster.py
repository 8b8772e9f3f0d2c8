"""Engine C: whole clusters in virtual time keep their promises, and a seed tells the whole run."""

import os
import subprocess
import sys

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import Outcome, make_engine

BUDGET = 6_000
SEEDS = (1, 2, 3)

PRINT_HASHES = f"""
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import make_engine
for seed in {SEEDS}:
    print(make_engine("C").run(Chance(seed), budget={BUDGET}).trace_hash)
"""


def run(seed: int, budget: int = BUDGET) -> Outcome:
    return make_engine("C").run(Chance(seed), budget=budget)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_under_fire_keeps_its_promises(seed: int) -> None:
    outcome = run(seed)
    assert outcome.violation is None
    assert outcome.figures["acknowledged"] > 0
    assert outcome.event_count > 1_000


def test_a_seed_tells_the_whole_run_in_every_process() -> None:
    hashes = []
    for hash_seed in ("0", "1"):
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        found = subprocess.run(
            [sys.executable, "-c", PRINT_HASHES],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        hashes.append(found.stdout.split())
    assert hashes[0] == hashes[1] == [run(seed).trace_hash for seed in SEEDS]
    assert len(set(hashes[0])) == len(SEEDS)


def test_a_run_played_again_from_its_decisions_is_the_same() -> None:
    first = run(2)
    again = make_engine("C").run(Chance(2, replay=first.decisions), budget=BUDGET)
    assert again.trace_hash == first.trace_hash
