"""Collector of concurrent disk calls of one kind. It runs them as one batch in a worker thread,
because passing work to a thread costs more than many of the calls.

The first caller waits for a worker thread. Calls that arrive before the thread starts are performed
in the same batch, in order. Each caller receives only its own error.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

import trio

T = TypeVar("T")


class _Call(Generic[T]):
    """One pending disk call in a batch: its argument, and the error that its caller receives."""

    __slots__ = ("asked", "error", "is_dropped")

    def __init__(self, asked: T) -> None:
        self.asked = asked
        self.error: Exception | None = None
        self.is_dropped = False
        """True if the caller was cancelled before a worker thread started its disk call."""


class _Batch(Generic[T]):
    """Disk calls that one worker thread performs together."""

    __slots__ = ("calls", "has_begun", "is_done", "is_over")

    def __init__(self) -> None:
        self.calls: list[_Call[T]] = []
        self.has_begun = False
        self.is_done = False
        self.is_over = trio.Event()


class GatheredCalls(Generic[T]):
    """Collector of concurrent disk calls of one kind (such as fsync). The calls run together as one
    batch."""

    def __init__(
        self, work: Callable[[T], object], workers: trio.CapacityLimiter, *, most: int
    ) -> None:
        """Create an empty collector. `work` performs one call, in a thread that `workers` limits.
        At most `most` calls form one batch."""
        self._work = work
        self._workers = workers
        self._most = most
        self._waiting: _Batch[T] | None = None
        """The newest batch of calls if no worker thread has started it yet, otherwise None."""
        self._threads = trio.CapacityLimiter(workers.total_tokens)

    async def run(self, asked: T) -> None:
        """Perform one disk call with the argument `asked` in a worker thread. Raises the exception
        of the call if it fails for this argument."""
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
                return  # else: the starter was cancelled

    async def _do(self, batch: _Batch[T]) -> None:
        try:
            async with self._workers:
                batch.has_begun = True
                if self._waiting is batch:
                    self._waiting = None
                calls = [call for call in batch.calls if not call.is_dropped]
                # Started on behalf of all callers: the cancellation of one must not cancel the
                # others' calls.
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
    """Wait until a batch of disk calls has ended. A cancellation takes effect only if no worker
    thread has started this caller's call."""
    try:
        await batch.is_over.wait()
    except trio.Cancelled:
        if batch.has_begun:
            with trio.CancelScope(shield=True):
                await batch.is_over.wait()
        call.is_dropped = True
        raise
