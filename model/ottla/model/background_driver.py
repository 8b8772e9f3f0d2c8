"""Restarts of background tasks. An unexpected exception in a task is logged and counted, and then
the task is restarted.

Without a restart, the exception would cancel the nursery of the task and end the process. If the
exception were only ignored, the task would stop working. The owner of a task stores any state that
must survive a restart.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import trio

from ottla.model.errors import only_error
from ottla.model.unexpected_errors import UnexpectedErrors

RESTART_PAUSE_MS = 1_000
"""Delay in ms before a task is restarted. With a shorter delay, a bug fills the log faster than an
operator can read it. With a longer delay, the task is out of service for longer."""

BackgroundWork: TypeAlias = Callable[[], Awaitable[object]]
"""Async function that performs a background task. It is called at each start of the task."""


async def run_side_by_side(
    works: Callable[[trio.Nursery], Iterable[tuple[str, BackgroundWork]]], errors: UnexpectedErrors
) -> None:
    """Run background tasks until cancelled, and restart each task that fails. `works` is called
    with the nursery of the tasks, and yields each task's name and its function."""
    async with trio.open_nursery() as nursery:
        for name, work in works(nursery):
            nursery.start_soon(keep_running, name, work, errors)


async def keep_running(
    name: str,
    work: BackgroundWork,
    errors: UnexpectedErrors,
    *,
    ends_with: type[Exception] | None = None,
) -> None:
    """Run a background task until it returns or is cancelled, and restart it after unexpected
    exceptions.

    An exception of type `ends_with` is raised to the caller instead. A task raises it to end its
    nursery.
    """
    while True:
        try:
            await work()
            return
        # With a star: a bug that occurs together with a cancellation is logged, and the
        # cancellation continues.
        except* Exception as group:
            if ends_with is not None and group.subgroup(ends_with) is not None:
                raise
            errors.note("task", name, only_error(group))
        await trio.sleep(RESTART_PAUSE_MS / 1_000)
