"""Tasks that serve a block and end with it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from ottla.model.errors import only_error


@asynccontextmanager
async def open_background() -> AsyncIterator[trio.Nursery]:
    """Open a nursery for tasks that only serve the block: they are cancelled when it ends.

    An error of the block or of one task comes out as itself, not in a group: that tasks run behind
    the block is none of its user's business.
    """
    with lone_errors():
        async with trio.open_nursery() as nursery:
            yield nursery
            nursery.cancel_scope.cancel()


@contextmanager
def lone_errors() -> Iterator[None]:
    """Let an error that is alone in its group, however deep, come out as itself."""
    try:
        yield
    except BaseExceptionGroup as group:
        single = only_error(group)
        if single is group:
            raise
        raise single from single.__cause__


ROUNDING_MS = 0.001
"""More than dividing and multiplying an instant by 1000 may lose: 1.015 s times 1000 is less than
1015, and whoever looks for what is due then would find nothing, and not sleep either."""


class Bell:
    """Wakes one task that waits for work; a ring while it works is not lost."""

    __slots__ = ("_event", "_is_rung")

    def __init__(self) -> None:
        self._event: trio.Event | None = None
        self._is_rung = False

    def ring(self) -> None:
        """Wake the task, or let it not fall asleep."""
        self._is_rung = True
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, until_ms: int | None = None) -> None:
        """Sleep until rung or until an instant of the loop's clock."""
        if not self._is_rung:
            self._event = trio.Event()
            with trio.CancelScope() as scope:
                if until_ms is not None:
                    scope.deadline = until_ms / 1_000
                await self._event.wait()
            self._event = None
        else:
            await trio.lowlevel.checkpoint()
        self._is_rung = False


TURN_S = 0.001
"""How long a task may go on before others get their turn: a turn of the loop costs as much as some
dozens of records."""
TURN_COUNT_MAX = 8
"""How often it is asked before its turn is over whatever the clock says: a clock may stand."""


class Turn:
    """How long a task has gone on that has much to do at once and waits for nothing."""

    __slots__ = ("_count_left", "_until_s")

    def __init__(self) -> None:
        self._count_left = 0
        self._until_s = 0.0

    async def end_if_over(self) -> None:
        """Let others have their turn if this task's is over; to be asked every few steps."""
        self._count_left -= 1
        if self._count_left <= 0 or trio.current_time() >= self._until_s:
            await trio.lowlevel.checkpoint()
            self._count_left = TURN_COUNT_MAX
            self._until_s = trio.current_time() + TURN_S


async def acquire(lock: trio.Lock) -> None:
    """Acquire a lock; a free one without a turn of the loop, which costs as much as a request."""
    if lock.locked():
        await lock.acquire()
    else:
        lock.acquire_nowait()


def now_ms() -> int:
    """Return the loop's clock in milliseconds; who slept until an instant finds it come."""
    return int(trio.current_time() * 1_000 + ROUNDING_MS)
