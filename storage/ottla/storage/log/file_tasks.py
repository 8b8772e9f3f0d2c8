"""Count of the tasks that use a log's files. The log's directory is renamed only after the last
task has ended.

Files are opened, removed and replaced by name. As soon as the directory of a deleted topic is
renamed, the topic's name may belong to a new topic. A remaining task of the old log would then
remove or replace files of the new log.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


def ignore_idle_files() -> None:
    """Default of `HasFileTasks.on_files_idle` for a log whose directory is not being renamed. Does
    nothing. A function object for each log would take 150 bytes."""


class HasFileTasks(Protocol):
    """Interface of an object whose methods are counted as tasks that use a log's files."""

    file_task_count: int
    """Number of running tasks that use the log's files."""
    on_files_idle: Callable[[], None]
    """Function that is called when the last task that uses the log's files has ended."""


S = TypeVar("S", bound=HasFileTasks)
P = ParamSpec("P")
R = TypeVar("R")


def file_task(
    method: Callable[Concatenate[S, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Decorate a method of a log. Running calls of the method are counted as tasks that use the
    log's files."""

    async def counted(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self.file_task_count += 1
        try:
            return await method(self, *args, **kwargs)
        finally:
            self.file_task_count -= 1
            if not self.file_task_count:
                self.on_files_idle()

    counted.__doc__ = method.__doc__
    return counted
