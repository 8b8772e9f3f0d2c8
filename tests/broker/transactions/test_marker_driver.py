"""Markers over real sockets: they arrive whatever happens to the broker that is to write them."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.transactions.marker_driver import MarkerSender
from ottla.broker.transactions.markers import MarkerOrder
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Endpoint, MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, ProducerId, TopicPartition
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin.api_versions import ApiVersionsApi
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.node.clock_driver import RealClock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.loopback_driver import Loopback
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.wire.apis import API_VERSIONS, WRITE_TXN_MARKERS
from ottla.wire.messages.write_txn_markers_request import WriteTxnMarkersRequest
from ottla.wire.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

World = Any  # the class of the `world` fixture, in conftest.py

WRITER = NodeId(1)
ORDERS = TopicPartition("orders", 0)


class Writer:
    """A broker that answers each request for markers with the next of its codes, then with NONE."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[tuple[int, int]] = []
        """Version and producer epoch of every marker."""

    def handle(
        self, context: RequestContext, request: WriteTxnMarkersRequest
    ) -> WriteTxnMarkersResponse:
        code = self.codes.pop(0) if self.codes else ErrorCode.NONE
        self.asked += [(context.api_version, marker.producer_epoch) for marker in request.markers]
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


class MarkerBench:
    """A sender of markers, and which partitions have theirs."""

    def __init__(self, world: World, own: Loopback | None = None) -> None:
        self.world = world
        self.marked: list[tuple[str, list[TopicPartition]]] = []
        node_id = NodeId(2) if own is None else WRITER
        self.is_gathering = False
        self.sender = MarkerSender(
            BrokerConfig(node_id=node_id),
            on_marked=self._on_marked,
            one_flush=self._one_flush,
            own=own,
        )

    @contextmanager
    def _one_flush(self) -> Iterator[None]:
        self.is_gathering = True
        yield
        self.is_gathering = False

    def _on_marked(self, order: MarkerOrder, partitions: frozenset[TopicPartition]) -> None:
        assert self.is_gathering, "the ends of one response are written together"
        order.missing.difference_update(partitions)
        self.marked.append((order.transactional_id, sorted(partitions)))

    async def publish(self, server: SocketServer | None) -> None:
        """Publish the address of the writer, if it listens."""
        image: MetadataImage = self.world.table.image
        if server is not None:
            host, port = server.addresses["PLAINTEXT"]
            known = replace(
                image.brokers[WRITER], endpoints=(Endpoint("PLAINTEXT", host, port, 0),)
            )
            image = replace(image, brokers=image.brokers.set(WRITER, known))
        await self.sender.publish(MetadataDelta.between(self.sender.image, image), image)

    def order(self, epoch: int = 5, *, producer_id: int = 7) -> MarkerOrder:
        made = MarkerOrder(
            "t",
            producer_id=ProducerId(producer_id),
            producer_epoch=epoch,
            is_commit=True,
            transaction_version=2,
            partitions=(ORDERS,),
            state_partition=0,
            coordinator_epoch=3,
        )
        self.sender.send(made)
        return made


@asynccontextmanager
async def writing(world: World, writer: Writer, port: int = 0) -> AsyncIterator[SocketServer]:
    dispatcher = Dispatcher(
        {
            WRITE_TXN_MARKERS: writer.handle,
            API_VERSIONS: ApiVersionsApi(
                metadata=MetadataCache(),
                served=lambda: (WRITE_TXN_MARKERS, API_VERSIONS),
                cluster_id="c",
                node_id=WRITER,
                offers_telemetry=lambda: False,
            ).handle,
        }
    )
    async with open_socket_server(
        [Listener(name="PLAINTEXT", host="127.0.0.1", port=port)],
        dispatcher,
        clock=RealClock(),
        disk=world.disk,
        limits=ConnectionLimits(),
    ) as server:
        yield server


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until something is so; the test's time limit ends it."""
    while not condition():
        await trio.sleep(0.001)


@pytest.mark.parametrize("codes", [(), (ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 3])
async def test_markers_are_sent_until_they_are_written(
    world: World, codes: tuple[ErrorCode, ...]
) -> None:
    await world.add("orders")
    sending, writer = MarkerBench(world), Writer(*codes)
    with trio.fail_after(60):
        async with writing(world, writer) as server, trio.open_nursery() as nursery:
            await sending.publish(server)
            nursery.start_soon(sending.sender.run)
            sending.order()
            await until(lambda: bool(sending.marked))
            assert sending.marked == [("t", [ORDERS])]
            assert writer.asked == [(2, 5)] * (1 + len(codes))
            nursery.cancel_scope.cancel()


async def test_a_broker_that_cannot_be_reached_gets_its_markers_when_it_is_back(
    world: World,
) -> None:
    await world.add("orders")
    sending, writer = MarkerBench(world), Writer()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            async with writing(world, Writer()) as server:
                await sending.publish(server)
                port = server.addresses["PLAINTEXT"][1]
            nursery.start_soon(sending.sender.run)
            sending.order()
            await until(
                lambda: any(
                    "accepts no transaction markers" in one for one in sending.sender.problems()
                )
            )
            assert sending.marked == []
            async with writing(world, writer, port):
                await until(lambda: bool(sending.marked))
                assert list(sending.sender.problems()) == []
            nursery.cancel_scope.cancel()


async def test_a_cancelled_marker_order_is_not_sent(world: World) -> None:
    await world.add("orders")
    sending, writer = MarkerBench(world), Writer()
    with trio.fail_after(60):
        async with writing(world, writer) as server, trio.open_nursery() as nursery:
            await sending.publish(server)
            sending.order(4)
            sending.sender.cancel(0)
            nursery.start_soon(sending.sender.run)
            sending.order(5)
            await until(lambda: bool(sending.marked))
            assert writer.asked == [(2, 5)]
            nursery.cancel_scope.cancel()


async def test_a_newer_epoch_ends_the_sending(world: World) -> None:
    await world.add("orders")
    sending, writer = MarkerBench(world), Writer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    with trio.fail_after(60):
        async with writing(world, writer) as server, trio.open_nursery() as nursery:
            await sending.publish(server)
            nursery.start_soon(sending.sender.run)
            order = sending.order(4)
            await until(lambda: order.is_cancelled)
            sending.order(5, producer_id=8)
            await until(lambda: bool(sending.marked))
            assert writer.asked == [(2, 4), (2, 5)]
            assert sending.sender.metrics()["transactions.markers.superseded"] == 1
            nursery.cancel_scope.cancel()


async def test_a_broker_writes_its_own_markers_without_a_connection(world: World) -> None:
    await world.add("orders")
    writer = Writer(ErrorCode.NOT_ENOUGH_REPLICAS)
    dispatcher = Dispatcher({WRITE_TXN_MARKERS: writer.handle})
    sending = MarkerBench(world, Loopback(dispatcher, RealClock()))
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await sending.publish(None)
            nursery.start_soon(sending.sender.run)
            sending.order()
            await until(lambda: bool(sending.marked))
            assert writer.asked == [(2, 5)] * 2
            nursery.cancel_scope.cancel()


async def test_an_order_that_comes_while_the_broker_ends_waits_for_the_next_run(
    world: World,
) -> None:
    await world.add("orders")
    sending, writer = MarkerBench(world), Writer()
    with trio.fail_after(60):
        async with writing(world, writer) as server:
            await sending.publish(server)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sending.sender.run)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            sending.order()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sending.sender.run)
                await until(lambda: bool(sending.marked))
                nursery.cancel_scope.cancel()
    assert writer.asked == [(2, 5)]
