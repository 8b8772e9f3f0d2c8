"""What processes cost, read from the kernel."""

import os
import subprocess
import sys

from ottla.bench.processes import tree_seconds

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_tree_costs_what_its_children_cost_also_when_they_have_ended() -> None:
    before = tree_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert tree_seconds(os.getpid()) - before > 0.2  # the kernel counts ticks
