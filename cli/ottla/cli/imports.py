"""Disables garbage collection while modules are imported, because imports create many permanent
objects and little garbage."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.model.garbage import collection_paused


@contextmanager
def importing() -> Iterator[None]:
    """Disable garbage collection within the `with` block, and restore it afterwards.

    Otherwise, the collector would scan all objects repeatedly while a node imports its modules.
    This saves a tenth of the CPU time of a node's startup.
    """
    with collection_paused():
        yield


@contextmanager
def importing_for_good() -> Iterator[None]:
    """Disable garbage collection within the `with` block as `importing` does. At the end of the
    block, exempt all existing objects from later collections.

    Otherwise, the first collection would scan every object that the modules created.
    """
    with importing():
        yield
        gc.freeze()
