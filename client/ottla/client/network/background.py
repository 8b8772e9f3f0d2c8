"""Background tasks that end with the `async with` block of their client, and helpers for the loops
of such tasks."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from ottla.model.errors import only_error


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """Open and yield a nursery for background tasks. The tasks are cancelled at the end of the
    caller's block.

    An error of the block or of a single task is raised without an exception group around it,
    because background tasks are an implementation detail.
    """
    with lone_errors():
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_shielded_background() -> AsyncIterator[trio.Nursery]:
    """Open and yield a nursery for background tasks, as `open_background` does. In addition, the
    tasks are shielded from cancellation.

    If the block is cancelled, it may still close objects that need these tasks, and the tasks
    continue to run until then.
    """
    async with open_background() as outer:
        scope = trio.CancelScope(shield=True)
        nursery: trio.Nursery = await outer.start(_hold_nursery, scope)
        try:
            yield nursery
        finally:
            scope.cancel()


async def _hold_nursery(
    scope: trio.CancelScope, task_status: trio.TaskStatus[trio.Nursery]
) -> None:
    with scope:
        async with trio.open_nursery() as nursery:
            task_status.started(nursery)
            await trio.sleep_forever()


@contextmanager
def lone_errors() -> Iterator[None]:
    """Replace an exception group that contains only one exception, at any depth, by that exception.
    Other exceptions are raised unchanged."""
    try:
        yield
    except BaseExceptionGroup as group:
        single = only_error(group)
        if single is group:
            raise
        raise single from single.__cause__


ROUNDING_MS = 0.001
"""Upper bound, in ms, of the rounding error when a time in seconds is divided and multiplied by
1000.

For example, 1.015 s times 1000 is less than 1015. Without this allowance, a task would find that no
work is due and yet not sleep.
"""


class WakeUp:
    """Wake-up signal for a task that waits for work. If the signal is set while the task is
    working, the next `wait` returns at once."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._event: trio.Event | None = None
        self._is_set = False

    def set(self) -> None:
        """Wake the task, or make its next `wait` return at once."""
        self._is_set = True
        if self._event is not None:
            self._event.set()
            self._event = None

    def clear(self) -> None:
        """Ignore the signals until now. The task calls this before it looks for work, so that it
        does not look again because of work that it finds."""
        self._is_set = False

    async def wait(self, until_ms: int | None = None) -> None:
        """Sleep until the signal is set, or until the event loop's clock reaches `until_ms`."""
        if not self._is_set:
            self._event = trio.Event()
            if until_ms is None:  # a cancel scope costs as much as a third of a turn of the loop
                await self._event.wait()
            else:
                with trio.CancelScope(deadline=until_ms / 1_000):
                    await self._event.wait()
            self._event = None
        else:
            await trio.lowlevel.checkpoint()
        self._is_set = False


YIELD_AFTER_S = 0.001
"""Time in seconds that a task may run before it yields to other tasks.

With a smaller value, tasks yield more often and use more CPU time: one event-loop iteration costs
as much as some dozens of records. A larger value delays other tasks.
"""
YIELD_COUNT_MAX = 32
"""Maximum number of calls of `yield_if_due` until a task yields, even if the clock has not
advanced. In a simulation, the clock may be stopped."""


class YieldTimer:
    """Timer that makes a task yield to other tasks after `YIELD_AFTER_S` seconds of work without
    waiting."""

    __slots__ = ("_count_left", "_until_s")

    def __init__(self) -> None:
        self._count_left = 0
        self._until_s = 0.0

    async def yield_if_due(self) -> None:
        """Yield to other tasks if this task has run for `YIELD_AFTER_S` seconds without waiting. A
        task calls this after every few steps of its work."""
        self._count_left -= 1
        if self._count_left <= 0 or trio.current_time() >= self._until_s:
            await trio.lowlevel.checkpoint()
            self.restart(trio.current_time())

    def restart(self, now_s: float) -> None:
        """Start a new period of work, because the task has just waited. `now_s` is the event loop's
        time in seconds."""
        self._count_left = YIELD_COUNT_MAX
        self._until_s = now_s + YIELD_AFTER_S


async def acquire(lock: trio.Lock) -> None:
    """Acquire a lock. A free lock is acquired without yielding, because yielding would cost as much
    CPU time as a request."""
    if lock.locked():
        await lock.acquire()
    else:
        lock.acquire_nowait()


def now_ms() -> int:
    """Return the event loop's time in ms. The time is rounded, so that a task that sleeps until a
    time does not wake a fraction of a millisecond early."""
    return int(trio.current_time() * 1_000 + ROUNDING_MS)
