"""The determinism gate: a seed's trace depends on the seed alone, whatever process runs it."""

import json
import os
import subprocess
import sys

import pytest

SEEDS = range(20)
GATED = (
    ("A", "raft"),
    ("A", "replication"),
    ("A", "replication-disk"),
    ("A", "controller"),
    ("A", "log"),
    ("A", "log-failing"),
    ("A", "group"),
    ("B", "raft"),
    ("B", "cluster"),
    ("C", "cluster"),
)
"""Engines and subjects whose every run must be the same everywhere."""

PROGRAM = """
import json, sys
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import run_seed
engine = make_engine(sys.argv[1], sys.argv[2])
budget = min(engine.budget, 4_000)
outcomes = [run_seed(engine, int(seed), budget) for seed in sys.argv[3:]]
print(json.dumps([[each.trace_hash, each.event_count, each.figures] for each in outcomes]))
"""


def _traces(engine: str, subject: str, hash_seed: str, seeds: list[int]) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, engine, subject, *map(str, seeds)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    traces: list[object] = json.loads(done.stdout)
    return traces


@pytest.mark.timeout(1_200)  # whole clusters compute for minutes, on cores that other tests use
@pytest.mark.parametrize(("engine", "subject"), GATED)
def test_two_processes_with_other_hash_seeds_see_the_same_runs(engine: str, subject: str) -> None:
    forwards = _traces(engine, subject, "0", list(SEEDS))
    backwards = _traces(engine, subject, "4242", list(reversed(SEEDS)))

    assert forwards == list(reversed(backwards))
    assert len({str(each) for each in forwards}) == len(SEEDS)
