"""InitProducerId: hands out producer ids from blocks that the controller allocates (KIP-730).

Pure; the block comes in through `allocate`.  Ids are given once: a block that is not used up when
the broker dies is lost, and nobody minds.
"""

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ottla.broker.logs.transactions import refusal_of_transactions
from ottla.broker.network.dispatch import RequestContext
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

Block = tuple[ProducerId, int]
"""The first id of a block, and how many it holds."""


class ProducerIds:
    """The ids of the current block."""

    __slots__ = ("_end", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._end = 0

    def take(self) -> ProducerId | None:
        """Return an id nobody has had, None when a new block is due."""
        if self._next >= self._end:
            return None
        self._next += 1
        return ProducerId(self._next - 1)

    @property
    def left_count(self) -> int:
        """Number of ids left in the block."""
        return self._end - self._next

    def add_block(self, block: Block) -> None:
        """Go on with a block; what is left of the last one is given up."""
        first, count = block
        assert count > 0
        assert first >= self._end, "the controller never gives an id twice"
        self._next, self._end = first, first + count


class ProducerIdsApi:
    """Serves InitProducerId 0-5 for idempotent producers; transactions come later."""

    def __init__(self, *, allocate: Callable[[], Awaitable[Block]]) -> None:
        """`allocate` asks the controller for a block; RefusedError when that fails."""
        self._allocate = allocate
        self._ids = ProducerIds()

    def handle(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
        """Answer from the block at hand, else fetch the next one first."""
        if request.transactional_id is not None:
            code = (
                refusal_of_transactions().code
                if request.transactional_id
                else ErrorCode.INVALID_REQUEST
            )
            return InitProducerIdResponse(error_code=code, producer_epoch=-1)
        producer_id = self._ids.take()
        if producer_id is None:
            return self._from_next_block()
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)

    async def _from_next_block(self) -> InitProducerIdResponse:
        try:
            block = await self._allocate()
        except RefusedError:
            # Kafka's word for "ask again soon": every client retries it.
            return InitProducerIdResponse(
                error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, producer_epoch=-1
            )
        producer_id = self._ids.take()
        if producer_id is None:
            self._ids.add_block(block)
            producer_id = self._ids.take()
        # Else another request's block came first, and this one is given up.
        assert producer_id is not None
        return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)
