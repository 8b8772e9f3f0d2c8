"""Counts the tasks that work on a log's files, so that its directory is renamed after the last.

Files are opened, removed and replaced by name.  A deleted topic's name may belong to another topic
as soon as its directory is renamed; a task that still worked for the old one would remove or
replace its successor's files.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


class FileTasks:
    """The tasks within methods of one log that change its files."""

    __slots__ = ("count", "on_idle")

    def __init__(self) -> None:
        self.count = 0
        self.on_idle: Callable[[], None] = lambda: None
        """Called when the last one has ended."""


class HasFileTasks(Protocol):
    """An owner of files."""

    file_tasks: FileTasks


S = TypeVar("S", bound=HasFileTasks)
P = ParamSpec("P")
R = TypeVar("R")


def file_task(
    method: Callable[Concatenate[S, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Count the tasks within a method."""

    async def counted(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        tasks = self.file_tasks
        tasks.count += 1
        try:
            return await method(self, *args, **kwargs)
        finally:
            tasks.count -= 1
            if not tasks.count:
                tasks.on_idle()

    counted.__doc__ = method.__doc__
    return counted
