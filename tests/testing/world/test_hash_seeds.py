"""Runs are equal in different processes with different hash seeds.

`OTTLA_WORLD_SEEDS=200` compares 200 seeds of each program instead of one.
"""

import os
import subprocess
import sys

import pytest

from tests.testing.world.copying_programs import PROGRAMS

SEED_COUNT = int(os.environ.get("OTTLA_WORLD_SEEDS", "1"))

pytestmark = pytest.mark.timeout(300 + 30 * SEED_COUNT)


def test_the_hash_seed_of_a_process_changes_nothing() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.testing.world.copying_programs", str(SEED_COUNT)],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "4242")
    ]
    first, second = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(first) == len(PROGRAMS) * SEED_COUNT
    assert len({line.split()[2] for line in first}) == len(first)
    assert first == second
