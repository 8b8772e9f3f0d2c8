"""Awaits the parts of one request at the same time: they wait for disks, not for each other."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import trio

from ottla.model.errors import only_error

Part: TypeAlias = Callable[[], Coroutine[Any, Any, None]]


async def side_by_side(parts: Sequence[Part]) -> None:
    """Run every part, the caller bounds how many; return when all are done.

    Raises what one of them raises; the others are cancelled then.
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
