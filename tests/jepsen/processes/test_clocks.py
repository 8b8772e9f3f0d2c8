"""The wall clock of one process jumps; its monotonic clock and all waiting stay true."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.jepsen.processes.abilities import Ability
from ottla.jepsen.processes.clocks import Clocks, compile_shim

SCRIPT = """
import datetime, sys, time
for line in sys.stdin:
    began = time.monotonic()
    time.sleep(0.01)
    print(time.time(), datetime.datetime.now().timestamp(), time.monotonic(), flush=True)
    assert time.monotonic() - began < 60
"""
ROUNDED_S = 0.001
"""Precision lost when an instant becomes a floating-point number."""

pytestmark = pytest.mark.cluster


async def test_a_jump_is_seen_at_once_and_by_the_wall_clock_alone(
    tmp_path: Path, need: Callable[..., None]
) -> None:
    need(Ability.CLOCKS)
    clocks = Clocks(tmp_path, ["b1", "b2"], library=await compile_shim(tmp_path))
    command = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **clocks.environment("b1")},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for offset_ms in (0, 3_600_000, -90_000, 250, 0):
            clocks.set("b1", offset_ms)
            clocks.set("b2", 12_345_678)
            before, monotonic_before = time.time(), time.monotonic()
            process.stdin.write("\n")
            process.stdin.flush()
            wall, today, monotonic = map(float, process.stdout.readline().split())
            wall_s, today_s = wall - offset_ms / 1_000, today - offset_ms / 1_000
            assert before - ROUNDED_S <= wall_s <= time.time() + ROUNDED_S
            assert before - ROUNDED_S <= today_s <= time.time() + ROUNDED_S
            assert monotonic_before <= monotonic <= time.monotonic()
        process.stdin.close()
