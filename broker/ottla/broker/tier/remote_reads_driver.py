"""Runs reads of copied segments as background tasks."""

from collections.abc import Awaitable, Callable

import trio

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry


class RemoteReadTasks:
    """Background tasks that read copied segments. Reads run only while the method `run` is
    running."""

    def __init__(self, errors: UnexpectedErrors) -> None:
        self._errors = errors
        self._nursery: trio.Nursery | None = None

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that reads copied segments."""
        parts.task("remote-reads", self.run)

    async def run(self) -> None:
        """Run the reads that fetches start, until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def begin(self, read: Callable[[], Awaitable[None]]) -> bool:
        """Start a read in the background. Returns False if `run` is not running."""
        if self._nursery is None:
            return False
        self._nursery.start_soon(self._guarded, read)
        return True

    async def _guarded(self, read: Callable[[], Awaitable[None]]) -> None:
        try:
            await read()
        except Exception as fault:
            self._errors.note("remote read", "", fault)


async def within(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Await `work` for at most `seconds`. Work that takes longer is cancelled, and the result is
    False."""
    with trio.move_on_after(seconds):
        await work()
        return True
    return False
