"""Retries of idempotent operations that fail temporarily."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import RefusedError

T = TypeVar("T")


async def retry_until_timeout(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_s: float,
    retry_wait_s: float,
    passes: Callable[[RefusedError], bool] = lambda error: error.is_retriable,
) -> T:
    """Call `attempt` until it succeeds, and return its result. Waits `retry_wait_s` seconds between
    two calls.

    After `timeout_s` seconds, raises the last temporary error. Raises a permanent refusal at once.
    """
    trouble: RefusedError | ConnectionLostError = ConnectionLostError("no request was sent")
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
