"""Runs reads of copied segments in the background."""

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
        """Run the reads that fetches begin until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None

    def begin(self, read: Callable[[], Awaitable[None]]) -> bool:
        """Run a read in the background. Returns False while no read can run."""
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
    """Await `work` for a limited time. Returns False, and cancels it, if it takes longer."""
    with trio.move_on_after(seconds):
        await work()
        return True
    return False
