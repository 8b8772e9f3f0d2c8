"""Imports without collections of garbage: what a module makes stays, and few of them make any."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from ottla.model.garbage import collection_paused


@contextmanager
def importing() -> Iterator[None]:
    """Collect no garbage within the block: a node's imports would have all objects looked at often.

    A tenth of the CPU of a start.
    """
    with collection_paused():
        yield


@contextmanager
def importing_for_good() -> Iterator[None]:
    """Do as `importing`, and keep all that there is by then out of later collections.

    The first one would look at every object that the modules made, at once.
    """
    with importing():
        yield
        gc.freeze()
