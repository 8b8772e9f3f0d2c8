"""Lengths of the searches: short in every run, long with OTTLA_WORLDS=full."""

import os

IS_FULL = os.environ.get("OTTLA_WORLDS") == "full"


def length(short: int, full: int) -> int:
    """Return `full` with OTTLA_WORLDS=full, else `short`."""
    return full if IS_FULL else short
