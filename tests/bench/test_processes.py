"""CPU and memory of processes, read from the kernel."""

import os
import subprocess
import sys

from ottla.bench.processes import shared_once_bytes, tree_seconds, usage_of

BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_a_tree_costs_what_its_children_cost_also_when_they_have_ended() -> None:
    before = tree_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", BURN], check=True)
    assert tree_seconds(os.getpid()) - before > 0.2  # the kernel counts ticks


SHARED_BYTES = 64 << 20


def test_memory_that_processes_share_is_counted_once() -> None:
    script = (
        f"import os, sys; held = b'x' * {SHARED_BYTES}; reader, writer = os.pipe()\n"
        "children = []\n"
        "for _ in range(2):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os.close(writer); os.read(reader, 1); os._exit(0)\n"
        "    children.append(child)\n"
        "print(*children, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pids = [parent.pid, *map(int, parent.stdout.readline().split())]
        assert usage_of(pids).rss_bytes > 3 * SHARED_BYTES
        assert SHARED_BYTES < shared_once_bytes(pids) < 2 * SHARED_BYTES
        parent.communicate()
