"""Pause of Python's garbage collector while code creates many long-lived objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Pause Python's garbage collector within the block. A block that creates many objects would
    otherwise cause many collections, each of which examines all existing objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
