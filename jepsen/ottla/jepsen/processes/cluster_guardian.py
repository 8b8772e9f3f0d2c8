"""Cleans up after a harness that could not: `python -m …processes.cluster_guardian RUN_ID`.

It waits until its standard input ends, which the kernel sees to however the harness dies, and gives
back what that run took.  A run that has done so itself says so first.
"""

import os
import signal
import sys

from ottla.jepsen.processes.cluster_claim import sweep_after


def main() -> int:
    """Wait for the end of the harness, then sweep unless it is told that all is well."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    if not os.read(0, 1):
        sweep_after(sys.argv[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
