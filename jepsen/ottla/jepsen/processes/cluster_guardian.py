"""Guardian process that cleans up after a dead test harness: `python -m …processes.cluster_guardian
RUN_ID`.

Its standard input is a pipe from the harness, which the kernel closes however the harness dies. The
guardian then releases the resources of the run RUN_ID. A run that has released its resources itself
sends ALL_IS_WELL first.
"""

import os
import signal
import sys

from ottla.jepsen.processes.cluster_claim import sweep_after


def main() -> int:
    """Wait for the end of the test harness, then release its resources unless ALL_IS_WELL was
    received. Returns the exit code."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    if not os.read(0, 1):
        sweep_after(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
