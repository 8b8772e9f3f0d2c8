"""Keeps producer ids in stock: the next block is fetched before the current block is used up
(KIP-730)."""

from collections.abc import Awaitable, Callable

import trio

from ottla.broker.logs.producer_ids import Block, ProducerIds
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId
from ottla.model.settings.broker import BrokerConfig
from ottla.node.part_registry import PartRegistry
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_client import ControllerClient

FETCHED_BELOW_SHARE = 0.1
"""Fraction of a block of producer ids. If the remaining fraction is smaller, the next block is
requested."""

RETRY_S = 1.0
"""Seconds between a failed request to the controller for producer ids and the next request.
Producers that wait for an id retry meanwhile."""


class ProducerIdStock:
    """Stock of producer ids for the producers of this broker's transactions. The method `run`
    refills the stock."""

    def __init__(self, allocate: Callable[[], Awaitable[Block]]) -> None:
        """Create an empty stock of producer ids. `allocate` requests a block of ids from the
        controller, and raises RefusedError if the request fails."""
        self._allocate = allocate
        self._ids = ProducerIds()
        self._next: Block | None = None
        self._block_count = 0
        self._is_low = trio.Event()
        self._is_changed = trio.Event()

    @property
    def has_some(self) -> bool:
        """True if a producer id is in stock."""
        return self._ids.left_count > 0 or self._next is not None

    def take(self) -> ProducerId:
        """Return a producer id that was not returned before.

        Raises RefusedError with COORDINATOR_LOAD_IN_PROGRESS if no id is in stock.
        """
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
        """Wait until a producer id is in stock, or until the timeout in seconds."""
        if not self.has_some:
            self._is_low.set()
            with trio.move_on_after(timeout_s):
                await self._is_changed.wait()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that fetches blocks of producer ids."""
        parts.task("producer ids of transactions", self.run)

    async def run(self) -> None:
        """Fetch blocks of producer ids from the controller when they are due, until cancelled."""
        while True:
            await self._is_low.wait()
            try:
                self._next = await self._allocate()
            except RefusedError:
                self._notify_waiting()
                await trio.sleep(RETRY_S)
                continue
            self._is_low = trio.Event()
            self._notify_waiting()

    def _notify_waiting(self) -> None:
        changed, self._is_changed = self._is_changed, trio.Event()
        changed.set()


async def allocate_block(
    config: BrokerConfig, controller: ControllerClient, broker_epoch: Callable[[], int]
) -> Block:
    """Request a block of producer ids from the controller, and return it.

    Raises RefusedError if the controller does not answer.
    """
    request = pb.AllocateProducerIdsRequest(broker_id=config.node_id, broker_epoch=broker_epoch())
    answer = await controller.allocate_producer_ids(request, deadline_ms=config.request_timeout_ms)
    return ProducerId(answer.producer_id_start), answer.producer_id_count
