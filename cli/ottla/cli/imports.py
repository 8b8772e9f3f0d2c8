"""Imports without collections of garbage: what a module makes stays, and few of them make any."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage within the block: a node's imports would have all objects looked at often.

    A tenth of the CPU of a start.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
