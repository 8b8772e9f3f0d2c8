"""Count of the tasks that use a log's files. The log's directory is renamed only after the last
task has ended.

Files are opened, removed and replaced by name. As soon as the directory of a deleted topic is
renamed, the topic's name may belong to a new topic. A remaining task of the old log would then
remove or replace files of the new log.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar


def _do_nothing() -> None:
    """Do nothing. All logs share this default callback, because a function object for each log
    takes 150 bytes."""


class FileTasks:
    """Count of the running tasks that use the files of one log."""

    __slots__ = ("count", "on_idle")

    def __init__(self) -> None:
        self.count = 0
        self.on_idle: Callable[[], None] = _do_nothing
        """Function that is called when the last task that uses the log's files has ended."""


class HasFileTasks(Protocol):
    """Interface of an object whose methods are counted as tasks that use a log's files."""

    file_tasks: FileTasks


S = TypeVar("S", bound=HasFileTasks)
P = ParamSpec("P")
R = TypeVar("R")


def file_task(
    method: Callable[Concatenate[S, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Decorate a method of a log. Running calls of the method are counted as tasks that use the
    log's files."""

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
