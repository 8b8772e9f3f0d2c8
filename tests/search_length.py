"""Lengths of searches with fixed seeds: short in every run, long with OTTLA_FAULTS=full.

Fixed seeds find what a change broke and hardly anything else, which a few of them do as well.
"""

import os

IS_FULL = os.environ.get("OTTLA_FAULTS") == "full"


def length(short: int, full: int) -> int:
    """Return `full` with OTTLA_FAULTS=full, else `short`."""
    return full if IS_FULL else short
