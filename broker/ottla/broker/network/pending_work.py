"""Awaits a handler's unfinished work, whose errors are its connection's.

Apart from `hosting`, which is compiled: the compiler knows no `except*` (docs/compiled.md).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.broker.network.dispatch import MalformedRequestError
from ottla.model.errors import only_error

R = TypeVar("R")


async def guarded(
    work: Awaitable[R],
    on_malformed: Callable[[MalformedRequestError], object],
    on_fault: Callable[[BaseException], object],
) -> R | None:
    """Return the work's result; None after an error, which is handed on."""
    result: R | None = None
    try:
        result = await work
    except* MalformedRequestError as bad:
        error = only_error(bad)
        assert isinstance(error, MalformedRequestError)
        on_malformed(error)
    # With a star: a bug that comes together with a cancellation is noted, the latter goes on.
    except* Exception as group:
        on_fault(only_error(group))
    return result
