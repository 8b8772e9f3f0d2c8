"""`python -m ottla.jepsen.processes.node_main`: a node with a bug of the bank in it.

It plants the bug that OTTLA_PLANTED_BUG names, then is the ordinary `ottla` command.  Only tests
of the tests start nodes this way: nothing else ever reads that variable, so that no node in service
can be made to misbehave by its environment.
"""

import os
import runpy
import sys

from ottla.jepsen.world.bugs import bank
from ottla.model.errors import RefusedError

VARIABLE = "OTTLA_PLANTED_BUG"
REFUSED = 1


def main() -> None:
    """Run `ottla` with the arguments given, its bug planted."""
    name = os.environ.get(VARIABLE, "")
    try:
        bug = bank.mutant(name)
        planted = bug.apply()
    except RefusedError as error:
        sys.exit(f"{VARIABLE}: {error}")
    with planted:
        print(f"planted: {bug.name}: {bug.sentence}", file=sys.stderr, flush=True)
        # By its name, as `python -m ottla.cli` would: this package may not import the command.
        runpy.run_module("ottla.cli", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
