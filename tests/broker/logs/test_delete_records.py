"""DeleteRecords: deleted here at once, answered when it is deleted everywhere."""

from typing import Any

import pytest

from ottla.broker.logs.delete_records import DeleteRecordsApi
from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.network.steps import STEP_COST, finished
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse

World = Any  # the classes of the `world` fixture, in conftest.py
Call = Any

TWO, THREE = NodeId(2), NodeId(3)
TIMEOUT_MS = 1_000


def append(world: World, partition: Partition, count: int) -> None:
    for _ in range(count):
        partition.append(
            world.batch(b"v"), acks=ACKS_ALL, now_ms=world.clock.wall_ms(), mono_ms=1_000
        )


def fetched(world: World, partition: Partition, replica: NodeId, log_start_offset: int) -> None:
    """Apply the fetch of a follower that has all records."""
    assert partition.log is not None
    partition.on_follower_fetch(
        replica,
        end_offset=partition.log.end_offset,
        log_start_offset=Offset(log_start_offset),
        broker_epoch=10,
        now_ms=world.clock.monotonic_ms(),
    )


async def ask(world: World, offset: int, *topics: str) -> Call:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
            for name in topics or ("t",)
        ],
        timeout_ms=TIMEOUT_MS,
    )
    call = world.call(21, 2)
    api = DeleteRecordsApi(table=world.table, purgatory=world.purgatory)
    await finished(api.handle(call.context, request))
    return call


def outcomes(call: Call) -> list[tuple[ErrorCode, int]]:
    return [
        (ErrorCode(result.error_code), result.low_watermark)
        for topic in call.response(DeleteRecordsResponse).topics
        for result in topic.partitions
    ]


async def replicated(world: World, topic: str = "t") -> Partition:
    """Make a partition on three brokers with three records committed."""
    partition: Partition = await world.add(topic, replicas=(1, 2, 3))
    append(world, partition, 3)
    fetched(world, partition, TWO, 0)
    fetched(world, partition, THREE, 0)
    assert partition.high_watermark == 3
    return partition


async def test_records_are_deleted_up_to_an_offset_or_to_the_high_watermark(
    world: World,
) -> None:
    partition = await world.add("t")
    append(world, partition, 2)
    assert outcomes(await ask(world, 1)) == [(ErrorCode.NONE, 1)]
    assert outcomes(await ask(world, 3)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert outcomes(await ask(world, -2)) == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert outcomes(await ask(world, -1)) == [(ErrorCode.NONE, 2)]
    assert partition.log is not None
    assert partition.log.log_start_offset == Offset(2)


async def test_records_of_a_compacted_topic_are_not_deleted(world: World) -> None:
    await world.add("t", config=TopicConfig(cleanup_policy=("compact",)))
    assert outcomes(await ask(world, -1)) == [(ErrorCode.POLICY_VIOLATION, -1)]


async def test_records_of_a_topic_without_a_policy_are_deleted(world: World) -> None:
    """As on Kafka 4.4.0, where the empty list deletes nothing by itself."""
    partition = await world.add("t", config=TopicConfig(cleanup_policy=()))
    append(world, partition, 2)
    assert outcomes(await ask(world, 1)) == [(ErrorCode.NONE, 1)]


@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
async def test_records_of_an_internal_topic_are_not_deleted(world: World, topic: str) -> None:
    partition = await world.add(topic)
    partition.append_of_coordinator(
        bytes(world.batch(b"v")), now_ms=world.clock.wall_ms(), mono_ms=1_000
    )
    assert outcomes(await ask(world, 1, topic)) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
    assert partition.log is not None
    assert partition.log.log_start_offset == 0


async def test_the_answer_waits_until_every_follower_has_deleted_too(world: World) -> None:
    partition = await replicated(world)
    call = await ask(world, 2)
    assert not call.is_completed
    fetched(world, partition, TWO, 2)
    assert not call.is_completed
    fetched(world, partition, THREE, 3)
    assert outcomes(call) == [(ErrorCode.NONE, 2)]


async def test_a_follower_whose_broker_is_fenced_is_not_waited_for(world: World) -> None:
    partition = await replicated(world)
    partition.is_eligible = lambda replica, epoch: replica != THREE
    call = await ask(world, 2)
    fetched(world, partition, TWO, 2)
    assert outcomes(call) == [(ErrorCode.NONE, 2)]


async def test_a_follower_that_has_not_fetched_from_this_leader_is_waited_for(
    world: World,
) -> None:
    partition = await replicated(world)
    fetched(world, partition, TWO, 3)
    fetched(world, partition, THREE, 3)
    partition.apply(
        world.state(replicas=(1, 2, 3), leader_epoch=4, partition_epoch=1),
        partition.config,
        world.clock.monotonic_ms(),
    )
    call = await ask(world, 2)
    fetched(world, partition, TWO, 3)
    assert not call.is_completed
    fetched(world, partition, THREE, 3)
    assert outcomes(call) == [(ErrorCode.NONE, 2)]


async def test_at_the_deadline_what_is_not_deleted_everywhere_timed_out(world: World) -> None:
    partition = await replicated(world)
    await replicated(world, "u")
    call = await ask(world, 2, "t", "u")
    for replica in (TWO, THREE):
        fetched(world, partition, replica, 2)
    assert not call.is_completed
    world.pass_time(TIMEOUT_MS)
    assert outcomes(call) == [(ErrorCode.NONE, 2), (ErrorCode.REQUEST_TIMED_OUT, -1)]


async def test_a_leader_that_is_deposed_meanwhile_says_so(world: World) -> None:
    partition = await replicated(world)
    call = await ask(world, 2)
    partition.apply(
        world.state(replicas=(1, 2, 3), leader=2, leader_epoch=4, partition_epoch=1),
        partition.config,
        world.clock.monotonic_ms(),
    )
    assert outcomes(call) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_an_asker_that_has_gone_is_not_kept(world: World) -> None:
    await replicated(world)
    call = await ask(world, 2)
    call.slot.abandon()
    assert world.purgatory.waiting_count == 0


@pytest.mark.parametrize("count", [2, STEP_COST + 1])
async def test_only_a_large_answer_that_was_waited_for_is_encoded_apart(
    world: World, count: int
) -> None:
    partition = await replicated(world)
    call = await ask(world, 2, "t", *(f"missing-{number}" for number in range(1, count)))
    assert not call.is_completed
    fetched(world, partition, TWO, 2)
    fetched(world, partition, THREE, 2)
    assert call.is_completed
    assert call.is_in_steps is (count > STEP_COST)
