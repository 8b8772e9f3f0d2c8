"""Producer ids at hand: the next block is fetched before the current one is used up (KIP-730)."""

from collections.abc import Awaitable, Callable

import trio

from ottla.broker.logs.producer_ids import Block, ProducerIds
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId

FETCHED_BELOW_SHARE = 0.1
"""The share of a block below which the next one is fetched."""

RETRY_S = 1.0
"""How long it is waited after a controller had none.  Producers ask again by themselves."""


class ProducerIdStock:
    """The ids of this broker's transactions; `run` keeps some at hand."""

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        """`allocate` asks the controller for a block; RefusedError when that fails."""
        self._allocate = allocate
        self._ids = ProducerIds()
        self._next: Block | None = None
        self._block_count = 0
        self._is_low = trio.Event()
        self._has_news = trio.Event()

    @property
    def has_some(self) -> bool:
        """Whether an id is at hand."""
        return self._ids.left_count > 0 or self._next is not None

    def take(self) -> ProducerId:
        """Return an id that was never given; COORDINATOR_LOAD_IN_PROGRESS if none is at hand."""
        taken = self._ids.take()
        if taken is None and self._next is not None:
            self._ids.add_block(self._next)
            self._block_count, self._next = self._next[1], None
            taken = self._ids.take()
        if self._next is None and self._ids.left_count <= FETCHED_BELOW_SHARE * self._block_count:
            self._is_low.set()
        if taken is None:
            raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return taken

    async def wait(self, timeout_s: float) -> None:
        """Return when an id is at hand, or none came."""
        if not self.has_some:
            self._is_low.set()
            with trio.move_on_after(timeout_s):
                await self._has_news.wait()

    async def run(self) -> None:
        """Fetch blocks when they are due, until cancelled."""
        while True:
            await self._is_low.wait()
            try:
                self._next = await self._allocate()
            except RefusedError:
                self._tell_waiting()
                await trio.sleep(RETRY_S)
                continue
            self._is_low = trio.Event()
            self._tell_waiting()

    def _tell_waiting(self) -> None:
        news, self._has_news = self._has_news, trio.Event()
        news.set()
