"""Sharing of disk calls: overlapping calls of one kind, such as fsyncs of a directory, share one
execution (run).

A run that has already begun when a call arrives may miss the caller's last change. The caller
therefore waits for the next run. The next run begins when the current one has ended, and serves all
callers whose calls have arrived by then.
"""

from collections.abc import Awaitable, Callable

import trio


class _SharedCall:
    """One execution of a disk call, whose result several callers share."""

    __slots__ = ("error", "is_done", "is_over")

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.is_done = False
        self.error: OSError | None = None


class SharedCalls:
    """Executions (runs) of disk calls that callers share. For each key, at most one run is in
    progress, and at most one further run waits."""

    def __init__(self) -> None:
        self._running: dict[str, _SharedCall] = {}
        self._next: dict[str, _SharedCall] = {}

    async def run(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        """Execute `work`, or share an execution for the same key that begins after this call, and
        wait for its end. Raises OSError if the execution failed."""
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
                return  # else: the caller that ran it was cancelled

    async def _do(self, key: str, work: Callable[[], Awaitable[object]]) -> None:
        shared = self._next[key] = _SharedCall()
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
