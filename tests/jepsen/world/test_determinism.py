"""The determinism gate: a seed's trace depends on the seed alone, whatever process runs it.

With OTTLA_WORLDS=full twice as many seeds are compared, each for twice as many events; with
OTTLA_FAULTS=full four times as many seeds.
"""

import json
import os
import subprocess
import sys

from tests.jepsen.search_length import IS_FULL, length

SEEDS = 4 if os.environ.get("OTTLA_FAULTS") == "full" else length(1, 2)
EVENTS = length(1_000, 2_000)
GATED = (
    ("walk", "raft", SEEDS, EVENTS),
    ("walk", "raft-forged", SEEDS, EVENTS),
    ("walk", "raft-disk", SEEDS, EVENTS),
    ("walk", "raft-damaged", SEEDS, EVENTS),
    ("walk", "replication", SEEDS, EVENTS),
    ("walk", "replication-forged", SEEDS, EVENTS),
    ("walk", "controller", SEEDS, EVENTS),
    ("walk", "log", SEEDS, EVENTS),
    ("walk", "log-failing", SEEDS, EVENTS),
    ("walk", "log-sequences", SEEDS, EVENTS),
    ("walk", "group", SEEDS, EVENTS),
    ("whole", "cluster", 1, 500),
    *((("whole", "disks", 1, 500), ("whole", "encrypted", 1, 500)) if IS_FULL else ()),
)
"""Engines and subjects whose every run must be deterministic, with the number of seeds and the most
events of each: all rows together cost some ten seconds of one core."""

PROGRAM = """
import json, sys
from ottla.jepsen.world.engine import make_engine
from ottla.jepsen.world.runner import run_seed
rows = json.loads(sys.argv[1])
for engine_name, subject, seeds, budget_max in rows:
    engine = make_engine(engine_name, subject)
    budget = min(engine.budget, budget_max)
    outcomes = [run_seed(engine, seed, budget) for seed in seeds]
    print(json.dumps([[each.trace_hash, each.event_count, each.figures] for each in outcomes]))
"""


def _traces(hash_seed: str, *, is_backwards: bool) -> list[list[object]]:
    """Return the traces of each row's seeds, first to last, seen by a process of their own."""
    step = -1 if is_backwards else 1
    rows = [
        (engine, subject, list(range(count))[::step], budget)
        for engine, subject, count, budget in GATED
    ]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(rows[::step])],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line)[::step] for line in done.stdout.splitlines()][::step]


def test_two_processes_with_other_hash_seeds_see_the_same_runs() -> None:
    forwards = _traces("0", is_backwards=False)
    backwards = _traces("4242", is_backwards=True)

    assert len(forwards) == len(GATED)
    for (engine, subject, *_), one, other in zip(GATED, forwards, backwards, strict=True):
        assert one == other, f"{engine} {subject}"
