"""Futures and tasks of asyncio whose hashes do not depend on memory addresses.

`asyncio.wait` and many libraries keep futures in sets. Otherwise, the order of callbacks would
differ between runs.
"""

import asyncio
from typing import Any


class StableFuture(asyncio.Future[Any]):
    """Future whose hash is a sequence number instead of its address. Sets of futures therefore have
    the same order in every run."""

    def __init__(self, *, loop: Any) -> None:
        self._number: int = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class StableTask(asyncio.Task[Any]):
    """Task whose hash is a sequence number instead of its address."""

    def __init__(self, coroutine: Any, *, loop: Any, **options: Any) -> None:
        # asyncio puts the task into a set in its constructor, which needs the hash.
        self._number: int = loop.next_number()
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self._number
