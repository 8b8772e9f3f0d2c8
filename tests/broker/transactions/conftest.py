"""One broker's transaction coordinator over real logs, and producers that ask it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.replicas.partition import Partition
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.producer_id_stock_driver import ProducerIdStock
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.broker.transactions.transaction_routes import register_transaction_apis
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset, ProducerId, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.settings.transactions import TransactionConfig
from ottla.node.network.turn_end import TurnEnd
from ottla.wire.apis import API
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from ottla.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse

COMPACT = TopicConfig(cleanup_policy=("compact",))
ORDERS = TopicPartition("orders", 0)


class TransactionsHere:
    """One broker's coordinator and its handlers, over the partitions of `world`."""

    def __init__(
        self,
        world: Any,
        config: TransactionConfig,
        *,
        transaction_version: int = 2,
        first_id: int = 1_000,
    ) -> None:
        self.world = world
        self.transaction_version = transaction_version
        self.handlers: dict[int, Callable[..., Any]] = {}
        self.orders: list[MarkerOrder] = []
        self.cancelled: list[int] = []
        self.created: list[str] = []
        """Topics that were to be made."""
        self.next_id = first_id
        self.ids = ProducerIdStock(self.allocate)
        self.turn_end = TurnEnd()
        self.coordinator = TransactionCoordinator(
            config,
            local_id=NodeId(1),
            table=world.table,
            purgatory=world.purgatory,
            clock=world.clock,
            ids=self.ids,
            send_markers=self.orders.append,
            cancel_markers=self.cancelled.append,
            turn_end=self.turn_end,
        )
        register_transaction_apis(
            self,  # type: ignore[arg-type]
            coordinator=self.coordinator,
            ids=self.ids,
            image=lambda: world.table.image,
            wall_ms=world.clock.wall_ms,
            create_topic=self.create_topic,
        )

    async def create_topic(self, _context: Any, names: Sequence[str]) -> None:
        self.created += names

    def register(self, api_key: int, handler: Callable[..., Any]) -> None:
        self.handlers[api_key] = handler

    async def allocate(self) -> tuple[ProducerId, int]:
        first, self.next_id = self.next_id, self.next_id + 10
        return ProducerId(first), 10

    async def publish(self) -> None:
        image = self.world.table.image
        features = PersistentMap({"transaction.version": self.transaction_version})
        image = self.world.table.image = replace(image, features=features)
        await self.coordinator.publish(MetadataDelta.between(self.coordinator.image, image), image)
        await trio.testing.wait_all_tasks_blocked()

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Call a handler, and let the turn end."""
        await self.ids.wait(1)
        call = self.begin(request, version)
        await trio.testing.wait_all_tasks_blocked()
        return call

    def begin(self, request: Message, version: int | None = None) -> Any:
        """Call a handler, and return the call, which may be open."""
        highest = API[request.API_KEY].latest_stable
        call = self.world.call(request.API_KEY, highest if version is None else version)
        return self.world.run(self.handlers[request.API_KEY], call, request)

    async def init(
        self,
        transactional_id: str | None = "t",
        *,
        producer: tuple[int, int] = (-1, -1),
        version: int = 5,
        timeout_ms: int = 60_000,
    ) -> Any:
        """Return (code, producer id, epoch), or the call while it is open."""
        call = await self.ask(
            InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
                producer_id=producer[0],
                producer_epoch=producer[1],
            ),
            version,
        )
        if not call.is_completed:
            return call
        answer = call.response(InitProducerIdResponse)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    async def add(
        self,
        producer: tuple[int, int],
        *partitions: TopicPartition,
        transactional_id: str = "t",
        version: int = 3,
        is_verification: bool = False,
    ) -> Any:
        """Return a code for each partition, or the call while it is open."""
        topics = [
            AddPartitionsToTxnTopic(name=one.topic, partitions=[one.partition])
            for one in partitions or (ORDERS,)
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
        if version >= 4:
            request = AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=transactional_id,
                        producer_id=producer[0],
                        producer_epoch=producer[1],
                        verify_only=is_verification,
                        topics=topics,
                    )
                ]
            )
        call = await self.ask(request, version)
        return self.codes_of_add(call) if call.is_completed else call

    @staticmethod
    def codes_of_add(call: Any) -> list[ErrorCode]:
        answer = call.response(AddPartitionsToTxnResponse)
        topics = [
            *answer.results_by_topic_v3_and_below,
            *(topic for one in answer.results_by_transaction for topic in one.topic_results),
        ]
        return [
            ErrorCode(one.partition_error_code)
            for topic in topics
            for one in topic.results_by_partition
        ]

    async def add_offsets(
        self, producer: tuple[int, int], group_id: str = "g", *, version: int = 4
    ) -> ErrorCode:
        call = await self.ask(
            AddOffsetsToTxnRequest(
                transactional_id="t",
                producer_id=producer[0],
                producer_epoch=producer[1],
                group_id=group_id,
            ),
            version,
        )
        return ErrorCode(call.response(AddOffsetsToTxnResponse).error_code)

    async def end(
        self,
        producer: tuple[int, int],
        *,
        is_commit: bool = True,
        version: int = 4,
        transactional_id: str = "t",
    ) -> Any:
        """Return (code, producer id, epoch), or the call while it is open."""
        call = await self.ask(
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=producer[0],
                producer_epoch=producer[1],
                committed=is_commit,
            ),
            version,
        )
        return self.outcome_of(call) if call.is_completed else call

    @staticmethod
    def outcome_of(call: Any) -> tuple[ErrorCode, int, int]:
        answer = call.response(EndTxnResponse)
        return ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch

    async def state(self, transactional_id: str = "t") -> str | ErrorCode:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        call = await self.ask(request)
        (one,) = call.response(DescribeTransactionsResponse).transaction_states
        return one.transaction_state if not one.error_code else ErrorCode(one.error_code)

    async def mark(self, order: MarkerOrder, *partitions: TopicPartition) -> None:
        """Have partitions of an order marked, all of them where none is named."""
        self.coordinator.on_marked(order, frozenset(partitions or order.missing))
        await trio.testing.wait_all_tasks_blocked()

    def replicate(self, led: Partition, follower: int = 2) -> None:
        """Let a follower have all there is."""
        assert led.log is not None
        led.on_follower_fetch(
            NodeId(follower),
            end_offset=led.log.end_offset,
            log_start_offset=Offset(0),
            broker_epoch=10,
            now_ms=self.world.clock.now_ms,
        )


@asynccontextmanager
async def _running(made: TransactionsHere) -> AsyncIterator[TransactionsHere]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(CoordinatorDriver(made.coordinator).run)
        nursery.start_soon(made.ids.run)
        await made.publish()
        yield made
        nursery.cancel_scope.cancel()


@pytest.fixture
def running() -> Callable[[TransactionsHere], Any]:
    """Return a function that runs another coordinator over the same partitions."""
    return _running


@asynccontextmanager
async def _coordinated(
    world: Any,
    *,
    config: TransactionConfig | None = None,
    transaction_version: int = 2,
    **partition: Any,
) -> AsyncIterator[tuple[TransactionsHere, Partition]]:
    """Run a coordinator that leads the one partition of the transaction state."""
    await world.add("orders")
    await world.add(OFFSETS_TOPIC, config=COMPACT)
    led = await world.add(TRANSACTIONS_TOPIC, config=COMPACT, **partition)
    made = TransactionsHere(
        world, config or TransactionConfig(), transaction_version=transaction_version
    )
    async with _running(made):
        yield made, led


@pytest.fixture
def coordinated() -> Callable[..., Any]:
    """Return a function that runs a coordinator for the length of a block."""
    return _coordinated


@pytest.fixture
def make_coordinator() -> type[TransactionsHere]:
    """Return the class of coordinator benches, for another one over the same partitions."""
    return TransactionsHere
