"""Calls of one kind that a worker does some at a time: handing one over costs more than many do.

The first caller waits for a worker; calls made before it has one are done with its own, in their
order.  Each hears of its own error only.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class _Call(Generic[T]):
    """What one caller asked for."""

    __slots__ = ("asked", "error", "is_dropped")

    def __init__(self, asked: T) -> None:
        self.asked = asked
        self.error: Exception | None = None
        self.is_dropped = False
        """Whether its caller was cancelled before a worker took it."""


class _Batch(Generic[T]):
    """Calls that are done together."""

    __slots__ = ("calls", "has_begun", "is_done", "is_over")

    def __init__(self) -> None:
        self.calls: list[_Call[T]] = []
        self.has_begun = False
        self.is_done = False
        self.is_over = trio.Event()


class GatheredCalls(Generic[T]):
    """The calls of one kind."""

    def __init__(
        self, work: Callable[[T], object], workers: trio.CapacityLimiter, *, most: int
    ) -> None:
        """`work` does one call, in a thread of the `workers`; at most `most` are done together."""
        self._work = work
        self._workers = workers
        self._most = most
        self._waiting: _Batch[T] | None = None
        """The calls that no worker has taken yet, the newest of them."""
        self._threads = trio.CapacityLimiter(workers.total_tokens)

    async def run(self, asked: T) -> None:
        """Have one call done.  Raises what the work raises."""
        while True:
            call = _Call(asked)
            batch = self._waiting
            if batch is not None and len(batch.calls) < self._most:
                batch.calls.append(call)
                await _wait_for(batch, call)
            else:
                batch = self._waiting = _Batch()
                batch.calls.append(call)
                await self._do(batch)
            if call.error is not None:
                raise call.error
            if batch.is_done:
                return  # else the caller that was to begin was cancelled

    async def _do(self, batch: _Batch[T]) -> None:
        try:
            async with self._workers:
                batch.has_begun = True
                if self._waiting is batch:
                    self._waiting = None
                calls = [call for call in batch.calls if not call.is_dropped]
                # Begun for all, so that a cancelled caller takes no other's call away.
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(self._do_all, calls, limiter=self._threads)
                batch.is_done = True
        finally:
            if self._waiting is batch:
                self._waiting = None
            batch.is_over.set()

    def _do_all(self, calls: list[_Call[T]]) -> None:
        for call in calls:
            try:
                self._work(call.asked)
            except Exception as error:
                call.error = error


async def _wait_for(batch: _Batch[T], call: _Call[T]) -> None:
    """Wait for the batch; a call that a worker has taken is waited for to its end."""
    try:
        await batch.is_over.wait()
    except trio.Cancelled:
        if batch.has_begun:
            with trio.CancelScope(shield=True):
                await batch.is_over.wait()
        call.is_dropped = True
        raise
