"""Awaits the pending work of a request handler, and passes its errors to the connection.

Separate from `hosting`, which is compiled: the compiler does not support `except*`
(docs/compiled.md).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ottla.model.errors import only_error
from ottla.node.network.dispatch import MalformedRequestError

R = TypeVar("R")


async def guarded(
    work: Awaitable[R],
    on_malformed: Callable[[MalformedRequestError], object],
    on_fault: Callable[[BaseException], object],
) -> R | None:
    """Await `work` and return its result. If `work` raises an exception, pass the exception to the
    callback for its kind and return None."""
    result: R | None = None
    try:
        result = await work
    except* MalformedRequestError as bad:
        error = only_error(bad)
        assert isinstance(error, MalformedRequestError)
        on_malformed(error)
    # `except*`, since a bug may arrive together with a cancellation, which continues.
    except* Exception as group:
        on_fault(only_error(group))
    return result
