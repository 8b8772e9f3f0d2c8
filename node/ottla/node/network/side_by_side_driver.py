"""Runs independent pieces of work of one request concurrently, such as writes to several disks.
Each piece of work waits only for its own disk."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import trio

from ottla.model.errors import only_error

Part: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


async def side_by_side(parts: Sequence[Part]) -> None:
    """Run all pieces of work in `parts` concurrently, and return when all are done. The caller must
    bound the number of pieces.

    Raises the error of a failed piece. All other pieces are then cancelled.
    """
    if len(parts) == 1:
        await parts[0]()
        return
    fault: BaseException | None = None
    try:
        async with trio.open_nursery() as nursery:
            for part in parts:
                nursery.start_soon(part)
    except* Exception as group:
        fault = only_error(group)
    if fault is not None:
        raise fault
