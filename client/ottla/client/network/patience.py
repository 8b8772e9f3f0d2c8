"""Repeats what may be repeated without harm, while the trouble is one that passes."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import RefusedError

T = TypeVar("T")


async def sit_out(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_s: float,
    retry_wait_s: float,
    passes: Callable[[RefusedError], bool] = lambda error: error.is_retriable,
) -> T:
    """Return what an attempt returns; the last trouble is raised when the time is over.

    A refusal that does not pass is raised at once.
    """
    trouble: RefusedError | ConnectionLostError = ConnectionLostError("nobody was asked")
    with trio.move_on_after(timeout_s):
        while True:
            try:
                return await attempt()
            except ConnectionLostError as error:
                trouble = error
            except RefusedError as error:
                if not passes(error):
                    raise
                trouble = error
            await trio.sleep(retry_wait_s)
    raise trouble
