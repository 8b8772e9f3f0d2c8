"""Keeps the collector of garbage from walking costly answers while they are made.

A full collection walks every object that is not frozen: the 300,000 of one large answer hold the
loop for some 90 ms, again and again while the answer grows, and a collection in a worker thread
holds it as long.  Nothing of an answer is garbage before it is sent, and then its reference counts
free it.  What else becomes garbage meanwhile is collected after the last costly request, or after
`PAUSE_S_MAX` under a load of costly requests that never ends.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import trio

PAUSE_S_MAX = 10.0
"""Lower holds the loop more often under such a load, higher keeps more garbage in memory."""

YOUNG = 1
"""The generation up to which is collected then: long-lived objects are not walked."""


class CollectorPause:
    """Disables the collector while at least one costly request is under way."""

    def __init__(self) -> None:
        self._count = 0
        self._since_s = 0.0
        self._was_enabled = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Disable the collector meanwhile."""
        now_s = trio.current_time()
        if not self._count:
            self._was_enabled = gc.isenabled()
            self._since_s = now_s
            gc.disable()
        elif now_s - self._since_s > PAUSE_S_MAX:
            self._since_s = now_s
            gc.collect(YOUNG)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
            if not self._count and self._was_enabled:
                gc.enable()


COLLECTOR_PAUSE = CollectorPause()
"""The one of this process, as the collector is."""
