"""The edge of a background task: what nobody foresaw is noted, and the task is started again.

A task that ends by a bug takes its nursery along, and in the end the process; one that is left
dead does its work no longer.  Work that must not be lost belongs to the owner of the task, which
finds it again when `work` begins.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

import trio

from ottla.model.errors import only_error
from ottla.model.unexpected_errors import UnexpectedErrors

RESTART_PAUSE_MS = 1_000
"""Between an unexpected end and the next start.  Lower repeats a bug faster than it can be read of,
higher leaves the work undone for longer."""

BackgroundWork: TypeAlias = Callable[[], Awaitable[object]]
"""The work of a task, from its start."""


async def run_side_by_side(
    works: Callable[[trio.Nursery], Iterable[tuple[str, BackgroundWork]]], errors: UnexpectedErrors
) -> None:
    """Keep tasks running, each with its name, until cancelled; `works` is given their nursery."""
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
    """Run a background task until it returns or is cancelled, whatever it meets.

    Raises what is of the type `ends_with`: the task's own way to end its nursery.
    """
    while True:
        try:
            await work()
            return
        # With a star: a bug that comes together with a cancellation is noted, the latter goes on.
        except* Exception as group:
            if ends_with is not None and group.subgroup(ends_with) is not None:
                raise
            errors.note("task", name, only_error(group))
        await trio.sleep(RESTART_PAUSE_MS / 1_000)
