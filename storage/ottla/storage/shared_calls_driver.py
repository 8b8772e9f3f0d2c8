"""Calls of one kind that overlap and share what is done for them, as fsyncs of a directory do.

What is under way when a call arrives may miss what the caller did last.  So the caller waits for
the next one, which begins when that has ended and serves all that have arrived by then.
"""

from collections.abc import Awaitable, Callable

import trio


class _Shared:
    """One piece of work, done for several callers."""

    __slots__ = ("error", "is_done", "is_over")

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.is_done = False
        self.error: OSError | None = None


class SharedCalls:
    """The work under way and the work that is next, by what it is about."""

    def __init__(self) -> None:
        self._running: dict[str, _Shared] = {}
        self._next: dict[str, _Shared] = {}

    async def run(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Return when the work has begun and ended since the call.  Raises OSError if it does."""
        while True:
            shared = self._next.get(key)
            if shared is None:
                await self._do(key, work)
                return
            await shared.is_over.wait()
            if shared.error is not None:
                error = shared.error
                raise OSError(error.errno, error.strerror, error.filename)
            if shared.is_done:
                return  # else who did it for us was cancelled

    async def _do(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        shared = self._next[key] = _Shared()
        try:
            while key in self._running:
                await self._running[key].is_over.wait()
            self._running[key] = self._next.pop(key)
            await work()
            shared.is_done = True
        except OSError as error:
            shared.error = error
            raise
        finally:
            for calls in (self._next, self._running):
                if calls.get(key) is shared:
                    del calls[key]
            shared.is_over.set()
