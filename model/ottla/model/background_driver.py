"""Restarts of background tasks: an unexpected exception is logged and counted, and the task is
restarted.

Without this, the exception would cancel the task's nursery and finally end the process; or the
task's work would no longer be done. Work that must not be lost is stored by the owner of the task,
so that the task finds it again when `work` starts.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import trio

from ottla.model.errors import only_error
from ottla.model.unexpected_errors import UnexpectedErrors

RESTART_PAUSE_MS = 1_000
"""Delay in ms before a restart. With a shorter delay, a bug is repeated faster than an operator can
read the log; with a longer delay, the work is not done for longer."""

BackgroundWork: TypeAlias = Callable[[], Awaitable[object]]
"""The work of a task. It is called at each start of the task."""


async def run_side_by_side(
    works: Callable[[trio.Nursery], Iterable[tuple[str, BackgroundWork]]], errors: UnexpectedErrors
) -> None:
    """Run tasks until cancelled, and restart each task that fails. `works` receives the nursery of
    the tasks and yields each task with its name."""
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

    An exception of type `ends_with` is raised instead: the task uses it to end its nursery.
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
