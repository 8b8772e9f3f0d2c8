"""ListOffsets and OffsetForLeaderEpoch."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.logs.leader_epochs import LeaderEpochsApi
from ottla.broker.logs.list_offsets import (
    LOOK_UPS_PER_STEP,
    ListOffsetsApi,
    LookUps,
    one_by_one,
)
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, ProducerId
from ottla.node.network.steps import STEP_COST, finished
from ottla.storage.producers.verification import UNGUARDED
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode, encode
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
)
from ottla.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

World = Any  # the class of the `world` fixture, in conftest.py

T0 = 1_700_000_000_000


def append(world: World, partition: Partition, *timestamps_ms: int) -> None:
    batch = build_batch([(timestamp, None, b"v") for timestamp in timestamps_ms])
    partition.append(
        memoryview(bytearray(batch)), acks=1, now_ms=world.clock.wall_ms(), mono_ms=1_000
    )


async def look_up(
    world: World, timestamp: int, *, version: int = 11, isolation_level: int = 0, **changes: Any
) -> ListOffsetsPartitionResponse:
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name="t",
                partitions=[
                    ListOffsetsPartition(partition_index=0, timestamp=timestamp, **changes)
                ],
            )
        ],
    )
    result = ListOffsetsApi(table=world.table).handle(world.call(2, version).context, request)
    response = await finished(result)
    response = decode(ListOffsetsResponse, version, encode(response, version))
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 1), (-2, 0), (T0, 0)])
async def test_every_version_answers(
    world: World, version: int, timestamp: int, offset: int
) -> None:
    append(world, await world.add("t"), T0)
    answer = await look_up(world, timestamp, version=version)
    assert (answer.error_code, answer.offset) == (0, offset)
    assert answer.leader_epoch == (3 if version >= 4 else -1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "epoch"),
    [(-1, 4, 3), (-2, 0, 3), (-3, 2, 3), (-4, 0, 3), (-5, -1, -1), (-6, -1, -1)],
)
async def test_the_special_timestamps(
    world: World, timestamp: int, offset: int, epoch: int
) -> None:
    append(world, await world.add("t"), T0, T0 + 10, T0 + 30, T0 + 20)
    answer = await look_up(world, timestamp)
    assert (answer.error_code, answer.offset, answer.leader_epoch) == (0, offset, epoch)


@pytest.mark.parametrize(
    ("timestamp", "offset", "found_ms"),
    [(T0 - 5, 0, T0), (T0, 0, T0), (T0 + 1, 1, T0 + 10), (T0 + 11, 2, T0 + 30), (T0 + 31, -1, -1)],
)
async def test_the_first_record_at_or_after_a_time(
    world: World, timestamp: int, offset: int, found_ms: int
) -> None:
    partition = await world.add("t")
    append(world, partition, T0, T0 + 10)
    append(world, partition, T0 + 30)
    append(world, partition, T0 + 20)
    answer = await look_up(world, timestamp)
    assert (answer.error_code, answer.offset, answer.timestamp) == (0, offset, found_ms)


async def test_uncommitted_records_are_not_found_by_time(world: World) -> None:
    append(world, await world.add("t", replicas=(1, 2)), T0)
    assert (await look_up(world, T0)).offset == -1
    assert (await look_up(world, -1)).offset == 0


@pytest.mark.parametrize(("timestamp", "version"), [(-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)])
async def test_a_special_timestamp_newer_than_the_version_is_refused(
    world: World, timestamp: int, version: int
) -> None:
    await world.add("t")
    answer = await look_up(world, timestamp, version=version)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_the_epoch_of_the_asker_is_checked(world: World) -> None:
    await world.add("t")
    answer = await look_up(world, -1, current_leader_epoch=2)
    assert answer.error_code == ErrorCode.FENCED_LEADER_EPOCH


async def test_a_new_leader_hides_its_end_until_it_has_committed_its_start(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, T0)
    partition.apply(
        world.state(replicas=(1, 2), leader_epoch=4, partition_epoch=1), partition.config, 1_000
    )
    assert (await look_up(world, -1)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert (await look_up(world, -1, version=4)).error_code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_new_leader_shows_its_stable_end_though_a_transaction_began_before_it(
    world: World,
) -> None:
    partition = await world.add("t")
    append(world, partition, T0)
    assert partition.log is not None
    data = build_batch(
        [(T0, None, b"open")],
        producer_id=ProducerId(7),
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    partition.log.append_as_leader(
        memoryview(bytearray(data)), leader_epoch=Epoch(3), now_ms=T0, guard=UNGUARDED
    )
    partition.advance_high_watermark(1_000)
    partition.apply(world.state(leader_epoch=4, partition_epoch=1), partition.config, 1_000)
    answer = await look_up(world, -1, isolation_level=1)
    assert (answer.error_code, answer.offset) == (ErrorCode.NONE, 1)
    assert (await look_up(world, -1)).offset == 2


async def test_epochs_tell_where_they_ended(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, T0, T0)
    partition.apply(world.state(leader_epoch=6, partition_epoch=1), partition.config, 1_000)
    append(world, partition, T0)
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="t",
                partitions=[
                    OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
                    for epoch in (3, 5, 6, 7, 1)
                ],
            )
        ]
    )
    api = LeaderEpochsApi(table=world.table)
    response: Any = api.handle(world.call(23, 4).context, request)
    answers = response.topics[0].partitions
    assert [(answer.leader_epoch, answer.end_offset) for answer in answers] == [
        (3, 2),
        (3, 2),
        (6, 3),
        (-1, -1),
        (1, 0),
    ]


async def test_partitions_that_are_not_here_are_refused_without_waiting_for_a_look_up(
    world: World,
) -> None:
    await world.add("t")
    named = [ListOffsetsPartition(partition_index=index, timestamp=T0) for index in range(1, 9)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=named)])
    result = ListOffsetsApi(table=world.table).handle(world.call(2, 11).context, request)
    assert isinstance(result, ListOffsetsResponse)
    (topic,) = result.topics
    assert [one.error_code for one in topic.partitions] == (
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * len(named)
    )


async def test_very_many_topics_of_one_partition_are_counted_in_steps(world: World) -> None:
    topic = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0)])
    request = ListOffsetsRequest(topics=[topic] * (10 * STEP_COST))
    steps = ListOffsetsApi(table=world.table).handle(world.call(2, 11).context, request)
    assert isinstance(steps, Iterator)
    # Some to count them, more to answer.
    assert sum(1 for _ in steps) >= 2 * 10


async def test_look_ups_by_time_are_done_some_at_the_same_time(world: World) -> None:
    count = LOOK_UPS_PER_STEP + 1
    for index in range(count):
        append(world, await world.add("t", index=index), T0 + index)
    at_once: list[int] = []

    async def run_all(look_ups: LookUps) -> None:
        at_once.append(len(look_ups))
        await one_by_one(look_ups)

    named = [ListOffsetsPartition(partition_index=index, timestamp=T0) for index in range(count)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=named)]
    )
    api = ListOffsetsApi(table=world.table, run_all=run_all)
    response = await finished(api.handle(world.call(2, 11).context, request))
    assert at_once == [LOOK_UPS_PER_STEP, 1]
    answers = response.topics[0].partitions
    assert [one.timestamp for one in answers] == [T0 + index for index in range(count)]
