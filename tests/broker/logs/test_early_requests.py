"""Requests for a topic between its announcement and the creation of its logs wait for the logs."""

from collections.abc import Collection
from typing import Any

import pytest

from ottla.broker.logs.early_requests import (
    LOOKED_AT_MAX,
    WAIT_S_MAX,
    EarlyRequests,
    named_by_index,
    named_by_leader_epochs,
    named_by_produce,
)
from ottla.broker.replicas.partition import Partition
from ottla.model.ids import TopicPartition
from ottla.node.network.steps import finished
from ottla.wire.codec_types import Message
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

World = Any  # the class of the `world` fixture, in conftest.py


class Edge:
    """The entry point of a world's partitions, which records the requests that passed it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.events: list[object] = []
        self.early = EarlyRequests(world.table, self.until_done)

    async def until_done(self, partitions: Collection[TopicPartition], timeout_s: float) -> None:
        assert timeout_s == WAIT_S_MAX
        self.events.append([at.partition for at in partitions])

    def handle(self, context: object, request: Message) -> Message:
        self.events.append("served")
        return request

    async def ask(self, request: Message, named: Any) -> None:
        handle = self.early.behind(self.handle, named)
        assert await finished(handle(self.world.call(0, 9).context, request)) is request


def produce(topic: str, *indexes: int, **changes: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index) for index in indexes]
    return ProduceRequest(topic_data=[TopicProduceData(name=topic, partition_data=data, **changes)])


async def added(world: World, index: int, **changes: Any) -> Partition:
    partition: Partition = await world.add("t", index=index, **changes)
    return partition


async def test_a_produce_waits_for_the_logs_it_names_and_no_others(world: World) -> None:
    edge = Edge(world)
    partitions = [await added(world, index) for index in range(3)]
    world.table.opening["t"] = dict.fromkeys(partitions[1:3])
    await edge.ask(produce("t", 0, 2, 9), named_by_produce)
    assert edge.events == [[2], "served"]
    edge.events.clear()
    await edge.ask(produce("", 1, topic_id=partitions[0].topic_id), named_by_produce)
    assert edge.events == [[1], "served"]


async def test_what_names_no_log_that_is_being_opened_passes(world: World) -> None:
    edge = Edge(world)
    partition = await added(world, 0)
    await edge.ask(produce("t", 0), named_by_produce)
    world.table.opening["other"] = {}
    await edge.ask(produce("t", 0), named_by_produce)
    await edge.ask(produce("unknown", 0), named_by_produce)
    world.table.opening["t"] = {partition: None}
    await edge.ask(produce("t", 1), named_by_produce)
    assert edge.events == ["served"] * 4


async def test_a_request_that_names_very_much_is_looked_at_in_part(world: World) -> None:
    edge = Edge(world)
    partition = await added(world, 0)
    world.table.opening["t"] = {partition: None}
    await edge.ask(produce("t", *[7] * LOOKED_AT_MAX, 0), named_by_produce)
    topics = [TopicProduceData(name="unknown", partition_data=[]) for _ in range(LOOKED_AT_MAX)]
    topics += produce("t", 0).topic_data
    await edge.ask(ProduceRequest(topic_data=topics), named_by_produce)
    assert edge.events == ["served"] * 2


async def test_requests_do_not_wait_for_the_log_of_a_follower(world: World) -> None:
    edge = Edge(world)
    partition = await added(world, 0, replicas=(1, 2), leader=2)
    world.table.opening["t"] = {partition: None}
    await edge.ask(produce("t", 0), named_by_produce)
    assert edge.events == ["served"]


@pytest.mark.parametrize(
    ("request_of", "named"),
    [
        (
            ListOffsetsRequest(
                topics=[
                    ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)])
                ]
            ),
            named_by_index,
        ),
        (
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name="t", partitions=[DeleteRecordsPartition(partition_index=0)]
                    )
                ]
            ),
            named_by_index,
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic="t", partitions=[OffsetForLeaderPartition(partition=0)]
                    )
                ]
            ),
            named_by_leader_epochs,
        ),
    ],
)
async def test_other_requests_wait_too(world: World, request_of: Message, named: Any) -> None:
    edge = Edge(world)
    world.table.opening["t"] = {await added(world, 0): None}
    await edge.ask(request_of, named)
    assert edge.events == [[0], "served"]
