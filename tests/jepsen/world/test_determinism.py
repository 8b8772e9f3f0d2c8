"""The determinism gate: a seed's trace depends on the seed alone, whatever process runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

GATED = (
    ("walk", "raft", 4, 2_000),
    ("walk", "raft-forged", 4, 2_000),
    ("walk", "raft-disk", 4, 2_000),
    ("walk", "replication", 4, 2_000),
    ("walk", "replication-forged", 4, 2_000),
    ("walk", "controller", 4, 2_000),
    ("walk", "log", 4, 2_000),
    ("walk", "log-failing", 4, 2_000),
    ("walk", "group", 4, 2_000),
    ("whole", "cluster", 1, 500),
    ("whole", "disks", 1, 500),
)
"""Engines and subjects whose every run must be the same everywhere; how many seeds of each, and
of how many events at most: all rows together cost some thirty seconds of one core."""

PROGRAM = """
import json, sys
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import run_seed
engine = make_engine(sys.argv[1], sys.argv[2])
budget = min(engine.budget, int(sys.argv[3]))
outcomes = [run_seed(engine, int(seed), budget) for seed in sys.argv[4:]]
print(json.dumps([[each.trace_hash, each.event_count, each.figures] for each in outcomes]))
"""


def _traces(
    engine: str, subject: str, budget: int, hash_seed: str, seeds: Iterable[int]
) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, engine, subject, str(budget), *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    traces: list[object] = json.loads(done.stdout)
    return traces


@pytest.mark.parametrize(("engine", "subject", "seed_count", "budget"), GATED)
def test_two_processes_with_other_hash_seeds_see_the_same_runs(
    engine: str, subject: str, seed_count: int, budget: int
) -> None:
    seeds = range(seed_count)
    forwards = _traces(engine, subject, budget, "0", seeds)
    backwards = _traces(engine, subject, budget, "4242", reversed(seeds))

    assert forwards == list(reversed(backwards))
    assert len({str(each) for each in forwards}) == seed_count
