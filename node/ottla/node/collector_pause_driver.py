"""Pauses the garbage collector while large responses are built, or a snapshot is loaded.

A full collection visits every object that is not frozen. With the 300,000 objects of one large
response, a collection blocks the event loop for some 90 ms, and is repeated while the response
grows. A collection in a worker thread blocks the loop for as long.

These collections have no benefit: no part of a response is garbage before it is sent, and reference
counting frees the response afterwards. Other garbage is collected after the last costly request has
ended. If costly requests never stop, garbage is collected every `PAUSE_S_MAX`.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import trio

PAUSE_S_MAX = 10.0
"""Longest pause of the garbage collector in seconds. With a shorter pause, collections block the
event loop more often while costly requests are processed. With a longer one, more garbage stays in
memory."""

YOUNG = 1
"""Oldest generation of objects that is collected when the garbage collector has been paused for
`PAUSE_S_MAX`. Long-lived objects are not visited."""


class CollectorPause:
    """Pause of the garbage collector while at least one costly request is being processed."""

    def __init__(self) -> None:
        self._count = 0
        self._since_s = 0.0
        self._was_enabled = False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the garbage collector while the block runs."""
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
"""The only instance of `CollectorPause`: the garbage collector is global to the process."""
