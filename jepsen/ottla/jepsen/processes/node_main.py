"""Starts a node with a deliberate bug: `python -m ottla.jepsen.processes.node_main`.

It installs the bug named by OTTLA_PLANTED_BUG, then runs the ordinary `ottla` command. Only tests
of the harness start nodes this way. No other code reads that variable, so that the environment
cannot make a node in production misbehave.
"""

import os
import runpy
import sys

from ottla.jepsen.world.bugs import bank
from ottla.model.errors import RefusedError

VARIABLE = "OTTLA_PLANTED_BUG"
REFUSED = 1


def main() -> None:
    """Install the bug that OTTLA_PLANTED_BUG names, and run `ottla` with the arguments of this
    process."""
    name = os.environ.get(VARIABLE, "")
    try:
        bug = bank.mutant(name)
        planted = bug.apply()
    except RefusedError as error:
        sys.exit(f"{VARIABLE}: {error}")
    with planted:
        print(f"planted: {bug.name}: {bug.sentence}", file=sys.stderr, flush=True)
        # By name, as `python -m ottla.cli` would, because this package may not import the command.
        runpy.run_module("ottla.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
