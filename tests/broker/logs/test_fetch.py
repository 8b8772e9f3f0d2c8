"""Fetch: how far an asker may see, how much it gets, how long it waits."""

from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.logs import fetch, fetch_read
from ottla.broker.logs.fetch import Fetch
from ottla.broker.logs.fetch_read import FetchLimits, FetchTarget, targets_of
from ottla.broker.logs.fetch_session import FAILED_LOOKED_AT
from ottla.broker.logs.waiting_fetch import PARTITIONS_READ_AGAIN
from ottla.broker.network.purgatory import COST_PER_TURN
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.topic import TopicConfig
from ottla.wire.batch import batches
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData

World = Any  # the class of the `world` fixture, in conftest.py


def ask(
    world: World,
    *asked: tuple[str, int, int],
    bytes_max: int = 1 << 20,
    partition_bytes_max: int = 1 << 20,
    bytes_min: int = 1,
    wait_ms: int = 0,
    replica: int = -1,
    session: tuple[int, int] = (0, -1),
    **changes: Any,
) -> FetchRequest:
    """Ask for (topic, index, offset)s."""
    topics = [
        FetchTopic(
            topic=topic,
            topic_id=world.table.image.topic_ids.get(topic, UUID(int=99)),
            partitions=[
                FetchPartition(
                    partition=index,
                    fetch_offset=offset,
                    partition_max_bytes=partition_bytes_max,
                    **changes,
                )
            ],
        )
        for topic, index, offset in asked
    ]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=10 if replica >= 0 else -1),
        replica_id=replica,
        max_wait_ms=wait_ms,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
    )


def append(world: World, partition: Partition, *values: bytes) -> None:
    partition.append(world.batch(*values), acks=1, now_ms=world.clock.wall_ms(), mono_ms=1_000)


def parts(call: Any) -> list[PartitionData]:
    response: FetchResponse = call.response(FetchResponse)
    return [part for topic in response.responses for part in topic.partitions]


def offsets(part: PartitionData) -> list[int]:
    """Return the base offsets of the batches a partition was answered with."""
    assert isinstance(part.records, memoryview | bytes)
    found = batches(part.records, is_partial_end_allowed=True)
    return [header.base_offset for _, header in found]


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads_what_is_committed(world: World, version: int) -> None:
    partition = await world.add("t")
    append(world, partition, b"a", b"b")
    append(world, partition, b"c")
    request = ask(world, ("t", 0, 2))
    if version < 15:
        request.replica_state = ReplicaState()
    (part,) = parts(world.fetch(request, version=version))
    assert part.error_code == 0
    assert part.high_watermark == 3
    assert offsets(part) == [2]


async def test_the_bytes_leave_as_a_slice_of_the_file(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    call = world.fetch(ask(world, ("t", 0, 0)))
    assert any(type(chunk).__name__ == "FileSlice" for chunk in call.slot.chunks)


async def test_an_offset_within_a_batch_brings_the_whole_batch(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a", b"b", b"c")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 1))))
    assert offsets(part) == [0]


async def test_a_consumer_sees_the_committed_and_a_follower_all(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (seen,) = parts(world.fetch(ask(world, ("t", 0, 0))))
    assert offsets(seen) == []
    (copied,) = parts(world.fetch(ask(world, ("t", 0, 0), replica=2)))
    assert offsets(copied) == [0]


async def test_a_followers_fetch_commits_and_wakes_the_consumer(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    consumer = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    assert not consumer.is_completed
    follower = world.fetch(ask(world, ("t", 0, 1), replica=2, wait_ms=500, high_watermark=0))
    assert offsets(parts(consumer)[0]) == [0]
    # KIP-1166: it is told the new high watermark at once, though there are no bytes for it.
    assert parts(follower)[0].high_watermark == 1


async def test_a_follower_that_knows_the_high_watermark_waits_for_an_append(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    call = world.fetch(ask(world, ("t", 0, 1), replica=2, wait_ms=500, high_watermark=1))
    assert not call.is_completed
    append(world, partition, b"b")
    assert offsets(parts(call)[0]) == [1]


async def test_an_append_wakes_who_waits(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    assert not call.is_completed
    append(world, partition, b"a")
    assert offsets(parts(call)[0]) == [0]


async def test_min_bytes_makes_it_wait_on(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500, bytes_min=150))
    append(world, partition, b"a")
    append(world, partition, b"b")
    assert not call.is_completed
    append(world, partition, b"c")
    assert offsets(parts(call)[0]) == [0, 1, 2]


async def test_when_the_wait_is_over_it_answers_with_what_there_is(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500, bytes_min=10_000))
    append(world, partition, b"a")
    world.pass_time(501)
    assert offsets(parts(call)[0]) == [0]


async def test_a_closed_connection_leaves_nothing_waiting(world: World) -> None:
    await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    assert world.purgatory.waiting_count == 1
    call.slot.abandon()
    assert world.purgatory.waiting_count == 0


async def test_the_first_batch_comes_whole_however_large_and_the_next_partition_waits(
    world: World,
) -> None:
    for index in (0, 1):
        append(world, await world.add("t", index=index), b"x" * 1_000)
    call = world.fetch(ask(world, ("t", 0, 0), ("t", 1, 0), bytes_max=100))
    first, second = parts(call)
    assert offsets(first) == [0]
    assert second.records is not None
    assert len(second.records) == 0


async def test_the_partition_limit_holds_within_the_total(world: World) -> None:
    partition = await world.add("t")
    for _ in range(10):
        append(world, partition, b"x" * 1_000)
    (part,) = parts(world.fetch(ask(world, ("t", 0, 0), partition_bytes_max=2_500)))
    assert part.records is not None
    assert len(part.records) <= 2_500
    assert offsets(part) == [0, 1]


@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
async def test_an_offset_outside_the_log_is_out_of_range_at_once(world: World, offset: int) -> None:
    partition = await world.add("t")
    append(world, partition, b"a", b"b", b"c")
    (part,) = parts(world.fetch(ask(world, ("t", 0, offset), wait_ms=500)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert part.high_watermark == -1


async def test_below_the_log_start_is_out_of_range(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    append(world, partition, b"b")
    assert partition.log is not None
    await partition.log.delete_records_before(Offset(1))
    gone, there = (parts(world.fetch(ask(world, ("t", 0, offset))))[0] for offset in (0, 1))
    assert gone.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert there.log_start_offset == 1
    assert offsets(there) == [1]


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
async def test_the_leader_epoch_fences(world: World, epoch: int, expected: ErrorCode) -> None:
    append(world, await world.add("t"), b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 0), current_leader_epoch=epoch)))
    assert part.error_code == expected


async def test_a_client_that_followed_another_history_is_told_where_ours_parts(
    world: World,
) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    partition.apply(world.state(leader_epoch=6, partition_epoch=1), partition.config, 1_000)
    append(world, partition, b"b")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 3), last_fetched_epoch=5)))
    assert part.error_code == 0
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (3, 1)
    (follows,) = parts(world.fetch(ask(world, ("t", 0, 1), last_fetched_epoch=3)))
    assert follows.diverging_epoch.epoch == -1
    assert offsets(follows) == [1]


async def test_a_fetch_that_waits_on_a_deleted_partition_is_answered(world: World) -> None:
    partition = await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    world.table.remove(partition)
    log = partition.remove()
    assert log is not None
    log.abandon()
    assert parts(call)[0].error_code != 0


async def test_not_leader_names_the_leader_from_version_16(world: World) -> None:
    await world.add("t", replicas=(2,), leader=2)
    call = world.fetch(ask(world, ("t", 0, 0)), version=16)
    (part,) = parts(call)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert part.current_leader.leader_id == 2
    assert call.response(FetchResponse).node_endpoints[0].host == "host2"


async def test_a_leader_deposed_while_a_fetch_waits_names_the_next_one(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2, 3))
    call = world.fetch(ask(world, ("t", 0, 0), wait_ms=500))
    state = world.state(replicas=(1, 2, 3), leader=3, leader_epoch=4, partition_epoch=1)
    world.know("t", state)
    partition.apply(state, partition.config, world.clock.now_ms)
    (part,) = parts(call)
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 4)
    (endpoint,) = call.response(FetchResponse).node_endpoints
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (3, "host3", 9093)


async def test_an_unknown_topic_does_not_end_the_wait_for_the_others(world: World) -> None:
    await world.add("t")
    call = world.fetch(ask(world, ("nobody", 0, 0), ("t", 0, 0), wait_ms=500))
    assert not call.is_completed
    alone = world.fetch(ask(world, ("nobody", 0, 0), wait_ms=500))
    assert parts(alone)[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_one_of_three_replicas_down_is_not_waited_for_outside_the_isr(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2, 3))
    partition.apply(
        world.state(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=1), partition.config, 1_000
    )
    append(world, partition, b"a")
    partition.on_follower_fetch(
        NodeId(2),
        end_offset=Offset(1),
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )
    assert partition.high_watermark == 1


# Sessions (KIP-227).


async def session_over(world: World, *names: tuple[str, int]) -> int:
    call = world.fetch(ask(world, *((*name, 0) for name in names), session=(0, 0)))
    session_id: int = call.response(FetchResponse).session_id
    return session_id


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_what_a_late_request_of_a_follower_takes_back_its_session_says_again(
    world: World, is_waiting: bool
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    append(world, partition, b"b")
    opened = world.fetch(ask(world, ("t", 0, 0), session=(0, 0), replica=2))
    session_id = opened.response(FetchResponse).session_id
    world.fetch(ask(world, ("t", 0, 2), session=(session_id, 1), replica=2))
    if is_waiting:
        world.fetch(ask(world, session=(session_id, 2), replica=2, wait_ms=500))

    world.fetch(ask(world, ("t", 0, 1), replica=2))

    if is_waiting:
        world.purgatory.expire(1 << 40)
    else:
        world.fetch(ask(world, session=(session_id, 2), replica=2))
    assert partition.followers[NodeId(2)].end_offset == 2


async def test_fetches_of_one_deadline_are_ended_in_turns_by_the_partitions_they_read(
    world: World,
) -> None:
    names = [("t", index) for index in range(PARTITIONS_READ_AGAIN)]
    for _, index in names:
        await world.add("t", index=index)
    calls = [
        world.fetch(ask(world, *((*name, 0) for name in names), wait_ms=500))
        for _ in range(COST_PER_TURN // PARTITIONS_READ_AGAIN + 2)
    ]
    session_id = await session_over(world, *names)
    world.fetch(ask(world, session=(session_id, 1), wait_ms=500))

    world.clock.now_ms += 500
    counts = [world.purgatory.expire(world.clock.now_ms) for _ in range(3)]

    assert counts == [COST_PER_TURN // PARTITIONS_READ_AGAIN + 1, 2, 0]
    for call in calls:
        answered = call.response(FetchResponse).responses
        assert sum(len(topic.partitions) for topic in answered) == len(names)


async def test_a_session_answers_only_what_has_news(world: World) -> None:
    quiet, busy = await world.add("t"), await world.add("t", index=1)
    append(world, quiet, b"a")
    session_id = await session_over(world, ("t", 0), ("t", 1))
    assert session_id > 0
    append(world, busy, b"b")
    request = ask(world, ("t", 0, 1), session=(session_id, 1))
    response = world.fetch(request).response(FetchResponse)
    assert response.session_id == session_id
    assert [part.partition_index for part in parts(world.fetch(request))] == []
    answered = [part.partition_index for topic in response.responses for part in topic.partitions]
    assert answered == [1]


async def test_an_empty_incremental_fetch_asks_for_the_same_again(world: World) -> None:
    partition = await world.add("t")
    session_id = await session_over(world, ("t", 0))
    call = world.fetch(ask(world, session=(session_id, 1), wait_ms=500))
    append(world, partition, b"a")
    assert offsets(parts(call)[0]) == [0]


async def test_forgotten_partitions_are_no_longer_read(world: World) -> None:
    first, second = await world.add("t"), await world.add("t", index=1)
    session_id = await session_over(world, ("t", 0), ("t", 1))
    request = ask(world, session=(session_id, 1))
    request.forgotten_topics_data = [ForgottenTopic(topic_id=first.topic_id, partitions=[0])]
    append(world, first, b"a")
    append(world, second, b"a")
    assert [part.partition_index for part in parts(world.fetch(request))] == [1]


@pytest.mark.parametrize(
    ("session_id", "epoch", "expected"),
    [
        (77_777, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 5, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
    ],
)
async def test_a_session_out_of_step_is_refused(
    world: World, session_id: int | None, epoch: int, expected: ErrorCode
) -> None:
    await world.add("t")
    opened = await session_over(world, ("t", 0))
    call = world.fetch(ask(world, session=(session_id or opened, epoch)))
    response = call.response(FetchResponse)
    assert response.error_code == expected
    assert response.responses == []


async def test_a_session_of_names_is_not_continued_by_ids(world: World) -> None:
    await world.add("t")
    request = ask(world, ("t", 0, 0), session=(0, 0))
    opened = world.fetch(request, version=12).response(FetchResponse).session_id
    response = world.fetch(ask(world, session=(opened, 1))).response(FetchResponse)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_final_epoch_closes_the_session(world: World) -> None:
    await world.add("t")
    opened = await session_over(world, ("t", 0))
    response = world.fetch(ask(world, session=(opened, -1))).response(FetchResponse)
    assert response.session_id == 0
    assert len(world.sessions) == 0


async def test_with_all_slots_taken_a_fetch_goes_without_a_session(world: World) -> None:
    await world.add("t")
    for _ in range(10):
        assert await session_over(world, ("t", 0)) > 0
    assert await session_over(world, ("t", 0)) == 0
    world.clock.now_ms += 120_001
    assert await session_over(world, ("t", 0)) > 0
    assert len(world.sessions) == 10


async def test_a_partition_that_had_records_is_served_last_next_time(world: World) -> None:
    for index in (0, 1):
        partition = await world.add("t", index=index)
        for _ in range(3):
            append(world, partition, b"x" * 500)
    opened = world.fetch(
        ask(world, ("t", 0, 0), ("t", 1, 0), session=(0, 0), bytes_max=100)
    ).response(FetchResponse)
    first = world.fetch(ask(world, session=(opened.session_id, 1), bytes_max=100))
    second = world.fetch(ask(world, session=(opened.session_id, 2), bytes_max=100))
    served = [
        [part.partition_index for part in parts(call) if part.records] for call in (first, second)
    ]
    assert [part.partition_index for part in opened.responses[0].partitions if part.records] == [0]
    assert served == [[1], [0]]


async def test_a_session_looks_only_at_partitions_that_something_happened_to(
    world: World,
) -> None:
    names = [("t", index) for index in range(20)]
    partitions = [await world.add("t", index=index) for _, index in names]
    session_id = await session_over(world, *names)
    session = world.sessions._sessions[session_id]
    assert not session.due
    call = world.fetch(ask(world, session=(session_id, 1), wait_ms=500))
    append(world, partitions[7], b"a")
    assert [part.partition_index for part in parts(call)] == [7]
    assert [target.index for target in session.due] == [7], "until it is asked for again"
    world.fetch(ask(world, ("t", 7, 1), session=(session_id, 2)))
    assert not session.due


async def test_a_deleted_partition_is_told_and_nothing_listens_for_it(world: World) -> None:
    partition = await world.add("t")
    session_id = await session_over(world, ("t", 0))
    call = world.fetch(ask(world, session=(session_id, 1), wait_ms=500))
    world.table.remove(partition)
    partition.remove()
    assert parts(call)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not world.purgatory._listeners


async def test_a_session_that_is_closed_lets_its_partitions_go(world: World) -> None:
    await world.add("t")
    session_id = await session_over(world, ("t", 0))
    assert world.purgatory._listeners
    world.fetch(ask(world, session=(session_id, -1)))
    assert not world.purgatory._listeners


STEPS = ("append", "append", "commit", "fetch", "fetch", "resign", "lead")


@pytest.mark.parametrize("replica", [-1, 2])
@pytest.mark.parametrize("seed", range(20))
async def test_settled_means_silent(world: World, seed: int, replica: int) -> None:
    """Whatever happens, a partition a session does not look at has nothing to tell."""
    chance = Random(seed)
    partitions = [await world.add("t", index=index, replicas=(1, 2)) for index in range(4)]
    offsets_asked = dict.fromkeys(range(4), 0)
    opened = ask(world, *(("t", index, 0) for index in range(4)), session=(0, 0), replica=replica)
    session_id = world.fetch(opened).response(FetchResponse).session_id
    epoch = 1
    for _ in range(200):
        index = chance.randrange(4)
        partition = partitions[index]
        step = chance.choice(STEPS)
        if step == "append" and partition.is_leader:
            append(world, partition, b"v" * chance.randrange(200))
        elif step == "commit" and partition.is_leader:
            commit(world, partition)
        elif step in ("resign", "lead"):
            lead_or_resign(world, partition, leader=1 if step == "lead" else 2)
        elif step == "fetch":
            asked = [("t", one, offset) for one, offset in offsets_asked.items() if offset]
            call = world.fetch(
                ask(world, *asked, session=(session_id, epoch), bytes_max=300, replica=replica)
            )
            epoch += 1
            for part in parts(call):
                if part.records:
                    offsets_asked[part.partition_index] = whole_end(part)
        session = world.sessions._sessions[session_id]
        for target in set(session.targets.values()) - {*session.due, *session.failed}:
            expect_silence(target, replica)


def commit(world: World, partition: Partition) -> None:
    log = partition.leader_log()
    partition.on_follower_fetch(
        NodeId(2),
        end_offset=log.end_offset,
        log_start_offset=Offset(0),
        broker_epoch=10,
        now_ms=world.clock.now_ms,
    )


def lead_or_resign(world: World, partition: Partition, *, leader: int) -> None:
    partition.apply(
        world.state(
            replicas=(1, 2),
            leader=leader,
            leader_epoch=partition.leader_epoch + 1,
            partition_epoch=partition.partition_epoch + 1,
        ),
        TopicConfig(),
        world.clock.now_ms,
    )


def whole_end(part: PartitionData) -> int:
    """Return the offset after the last batch that came whole."""
    assert isinstance(part.records, memoryview)
    return [header.end_offset for _, header in batches(part.records, is_partial_end_allowed=True)][
        -1
    ]


def expect_silence(target: FetchTarget, replica: int) -> None:
    partition = target.partition
    assert partition is not None
    log = partition.leader_log()
    bound = log.high_watermark if replica < 0 else log.end_offset
    assert target.fetch_offset >= bound
    assert target.told_high_watermark == log.high_watermark
    assert target.told_log_start_offset == log.log_start_offset


# Who is believed to be a follower (KIP-903).


async def test_a_forged_broker_epoch_does_not_lock_the_real_replica_out(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    forged = ask(world, ("t", 0, 1), replica=2)
    forged.replica_state.replica_epoch = 1 << 62
    (part,) = parts(world.fetch(forged))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0
    assert partition.followers[NodeId(2)].broker_epoch == -1
    (believed,) = parts(world.fetch(ask(world, ("t", 0, 1), replica=2)))
    assert believed.error_code == 0
    assert partition.high_watermark == 1


async def test_reading_for_a_follower_commits_nothing_until_its_position_is_noted(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    request = ask(world, ("t", 0, 1), replica=2, high_watermark=0)
    limits = FetchLimits(request, 18, 1 << 20)
    fetch = Fetch(world.fetch_api, world.call(1, 18).context, limits, targets_of(request, True))
    reading = fetch.read()
    assert partition.high_watermark == 0
    fetch.note_positions(reading)
    assert partition.high_watermark == 1
    ((_, data),) = reading.results
    assert data.high_watermark == 1
    assert reading.is_urgent, "the follower is told of the commit at once"


async def test_a_follower_refused_for_its_position_gets_no_records(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    follower = partition.followers[NodeId(2)]
    follower.broker_epoch = 11
    request = ask(world, ("t", 0, 0), replica=2)
    limits = FetchLimits(request, 18, 1 << 20)
    fetch = Fetch(world.fetch_api, world.call(1, 18).context, limits, targets_of(request, True))
    reading = fetch.read()
    assert reading.byte_count > 0
    fetch.note_positions(reading)
    ((_, data),) = reading.results
    assert (data.error_code, data.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert (reading.byte_count, reading.is_urgent) == (0, True)


@pytest.mark.parametrize(
    ("replica", "replica_epoch"), [(2, 9), (2, -1), (7, 10), (7, -1), (2, -(1 << 63))]
)
async def test_only_a_registered_broker_of_its_present_epoch_is_believed(
    world: World, replica: int, replica_epoch: int
) -> None:
    partition = await world.add("t", replicas=(1, 2, 7))
    append(world, partition, b"a")
    request = ask(world, ("t", 0, 1), replica=replica, session=(0, 0), wait_ms=500)
    request.replica_state.replica_epoch = replica_epoch
    world.isrs_due.clear()
    call = world.fetch(request)
    assert [part.error_code for part in parts(call)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert call.response(FetchResponse).session_id == 0
    assert len(world.sessions) == 0
    assert partition.high_watermark == 0
    assert not world.isrs_due


async def test_a_version_without_broker_epochs_is_no_followers(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    request = ask(world, ("t", 0, 1), replica=2)
    request.replica_state = ReplicaState()
    (part,) = parts(world.fetch(request, version=14))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 0


async def test_a_registered_broker_without_a_replica_changes_nothing(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 1), replica=3)))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert set(partition.followers) == {NodeId(2)}
    assert partition.high_watermark == 0


@pytest.mark.parametrize("offset", [-1, 2, 1 << 62])
async def test_a_follower_cannot_be_where_the_log_is_not(world: World, offset: int) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, offset), replica=2)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.followers[NodeId(2)].end_offset == -1
    assert partition.high_watermark == 0


async def test_a_log_start_above_its_end_is_refused(world: World) -> None:
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    (part,) = parts(world.fetch(ask(world, ("t", 0, 1), replica=2, log_start_offset=1 << 62)))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.low_watermark == -1
    assert partition.high_watermark == 0


@pytest.mark.parametrize("replica", [-1, 3])
async def test_a_followers_session_is_continued_by_nobody_else(world: World, replica: int) -> None:
    await world.add("t", replicas=(1, 2, 3))
    opened = world.fetch(ask(world, ("t", 0, 0), replica=2, session=(0, 0)))
    session_id = opened.response(FetchResponse).session_id
    stolen = world.fetch(ask(world, replica=replica, session=(session_id, 1)))
    assert stolen.response(FetchResponse).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    own = world.fetch(ask(world, replica=2, session=(session_id, 1)))
    assert own.response(FetchResponse).error_code == 0


# Very many partitions.


def unknown(count: int) -> list[tuple[str, int, int]]:
    return [("nobody", index, 0) for index in range(count)]


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often a partition is looked for, or read."""
    done: list[str] = []
    find, read = fetch_read.find_partition, fetch_read.read_partition

    def find_partition(*arguments: Any) -> Partition:
        done.append("find")
        return find(*arguments)

    def read_partition(*arguments: Any, **more: Any) -> PartitionData:
        done.append("read")
        return read(*arguments, **more)

    monkeypatch.setattr(fetch, "find_partition", find_partition)
    monkeypatch.setattr(fetch, "read_partition", read_partition)
    return done


async def test_partitions_nobody_knows_cost_a_small_fetch_little(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.add("t")
    call = world.fetch(ask(world, ("t", 0, 0), *unknown(5_000), session=(0, 0)))
    session_id = call.response(FetchResponse).session_id
    assert session_id
    done = count_reads(monkeypatch)
    looked_at: set[int] = set()
    for epoch in range(1, 31):
        call = world.fetch(ask(world, session=(session_id, epoch)))
        assert len(done) <= FAILED_LOOKED_AT + 1
        done.clear()
        looked_at |= {part.partition_index for part in parts(call)}
    assert looked_at == set(range(5_000)), "each is looked at in its turn"


async def test_a_partition_that_comes_is_read_again_in_its_turn(world: World) -> None:
    call = world.fetch(ask(world, ("t", 0, 0), *unknown(3), session=(0, 0)), version=12)
    session_id = call.response(FetchResponse).session_id
    append(world, await world.add("t"), b"a")
    answered = parts(world.fetch(ask(world, session=(session_id, 1)), version=12))
    assert [part.error_code for part in answered].count(0) == 1
    # Once it was read it is no longer among those that failed.
    answered = parts(world.fetch(ask(world, ("t", 0, 1), session=(session_id, 2)), version=12))
    assert len(answered) == 3


async def test_sessions_hold_no_more_partitions_than_there_is_room_for(world: World) -> None:
    await world.add("t")
    world.sessions.partition_count_max = 100
    small = await session_over(world, ("t", 0))
    large = world.fetch(ask(world, *unknown(100), session=(0, 0))).response(FetchResponse)
    assert large.session_id == 0
    assert world.sessions.partition_count == 1
    grown = world.fetch(ask(world, *unknown(100), session=(small, 1))).response(FetchResponse)
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert world.sessions.partition_count == 0


async def test_the_count_of_partitions_follows_the_sessions(world: World) -> None:
    await world.add("t")
    session_id = await session_over(world, ("t", 0), ("nobody", 1))
    world.fetch(ask(world, ("nobody", 2, 0), session=(session_id, 1)))
    assert world.sessions.partition_count == 3
    world.fetch(ask(world, session=(session_id, -1)))
    assert world.sessions.partition_count == 0


@pytest.mark.interpreted_only("counts the reads of fetch by replacing them")
async def test_an_append_looks_at_one_partition_of_each_long_poll(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [await world.add("t", index=index) for index in range(40)]
    names = [("t", index, 0) for index in range(40)]
    calls = [world.fetch(ask(world, *names, bytes_min=1_000, wait_ms=500)) for _ in range(20)]
    done = count_reads(monkeypatch)
    append(world, partitions[3], b"a")
    assert len(done) == len(calls)
    assert not any(call.is_completed for call in calls)
    append(world, partitions[3], bytes(1_000))
    assert all(call.is_completed for call in calls)
    for call in calls:
        assert [part.partition_index for part in parts(call)] == list(range(40))
        assert offsets(parts(call)[3]) == [0, 1]


async def test_a_long_poll_of_many_partitions_is_answered_in_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun_steps: list[object] = []
    kind = type(world.call(1, 18))
    monkeypatch.setattr(kind, "on_steps", lambda self, slot, steps: begun_steps.append(steps))
    partitions = [await world.add("t", index=index) for index in range(40)]
    call = world.fetch(ask(world, *[("t", index, 0) for index in range(40)], wait_ms=500))
    append(world, partitions[0], b"a")
    assert len(begun_steps) == 1
    assert not call.is_completed
    asked = ask(world, ("t", 0, 1), *[("t", index, 0) for index in range(1, 40)], wait_ms=500)
    expired = world.fetch(asked)
    world.pass_time(500)
    assert len(begun_steps) == 2
    assert not expired.is_completed


@pytest.mark.parametrize("replica", [-1, 2])
async def test_a_fetch_of_very_many_partitions_is_answered_as_any_other(
    world: World, replica: int
) -> None:
    for index in range(3):
        append(world, await world.add("t", index=index, replicas=(1, 2)), b"a")
    names = [*(("t", index, 0) for index in range(3)), *unknown(1_000)]

    def run(handle: Any, session: tuple[int, int]) -> FetchResponse:
        asked = ask(world, *names, replica=replica, session=session)
        response: FetchResponse = world.run(handle, world.call(1, 18), asked).response(
            FetchResponse
        )
        return response

    small = run(world.fetch_api.handle, (0, 0))
    large = run(world.fetch_api.handle_large, (0, 0))
    assert large.session_id not in (0, small.session_id)
    large_parts = [(one.topic_id, one.partitions) for one in large.responses]
    assert large_parts == [(one.topic_id, one.partitions) for one in small.responses]
    again = run(world.fetch_api.handle_large, (large.session_id, 1))
    assert again.error_code == 0
    assert again.session_id == large.session_id
    assert world.sessions.partition_count == 2 * 1_003


async def test_a_strangers_large_fetch_changes_nothing(world: World) -> None:
    await world.add("t", replicas=(1, 2))
    asked = ask(world, ("t", 0, 0), *unknown(1_000), replica=2, session=(0, 0))
    asked.replica_state.replica_epoch = 11
    call = world.run(world.fetch_api.handle_large, world.call(1, 18), asked)
    assert {part.error_code for part in parts(call)} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert len(world.sessions) == 0


class Charge:
    """A quota that lets a client have so many bytes at once."""

    def __init__(self, bytes_max: int) -> None:
        self.used_ns = 0
        self.bytes_max = bytes_max
        self.asked: list[int] = []

    def fetch_bytes_max(self, bytes_max: int) -> int:
        return min(bytes_max, 1_000_000)

    def may_give(self, byte_count: int, slot: Any) -> bool:
        self.asked.append(byte_count)
        return byte_count <= self.bytes_max

    def settle(self, slot: Any) -> int:
        return 0


def charged(world: World, charge: Charge, request: FetchRequest) -> Any:
    call = world.call(1, 18)
    call.slot.charge = charge
    return world.run(world.fetch_api.handle, call, request)


async def test_a_client_above_its_quota_gets_an_answer_without_records(world: World) -> None:
    partition = await world.add("t")
    append(world, partition, b"a")
    charge = Charge(10)

    call = charged(world, charge, ask(world, ("t", 0, 0)))

    assert len(charge.asked) == 1
    assert charge.asked[0] > 10
    assert call.response(FetchResponse).responses == []


async def test_a_session_goes_on_after_a_fetch_above_the_quota(world: World) -> None:
    partition = await world.add("t")
    opened = world.fetch(ask(world, ("t", 0, 0), session=(0, 0))).response(FetchResponse)
    append(world, partition, b"a")
    again = FetchRequest(
        session_id=opened.session_id, session_epoch=1, min_bytes=1, max_bytes=1 << 20
    )

    throttled = charged(world, Charge(10), again).response(FetchResponse)
    again.session_epoch = 2
    answer = world.fetch(again).response(FetchResponse)

    assert throttled.session_id == opened.session_id
    assert throttled.responses == []
    assert answer.responses[0].partitions[0].records


async def test_a_client_is_given_no_more_than_its_quota_bears_at_once(world: World) -> None:
    limits = world.fetch_api._limits_of(
        *with_charge(world), ask(world, ("t", 0, 0), bytes_max=50 << 20, bytes_min=2_000_000)
    )

    assert limits.bytes_max == 1_000_000
    assert limits.bytes_min == 1_000_000


async def test_a_client_with_a_quota_is_given_whole_batches(world: World) -> None:
    """It would be charged again for the part of a batch that it cannot use."""
    partition = await world.add("t")
    append(world, partition, bytes(10_000))
    append(world, partition, bytes(10_000))
    request = ask(world, ("t", 0, 0), bytes_max=15_000)
    charge = Charge(1 << 20)

    charged(world, charge, request)
    unlimited = world.fetch(request).response(FetchResponse)

    assert 10_000 < charge.asked[0] < 11_000
    assert len(unlimited.responses[0].partitions[0].records) == 15_000


async def test_a_follower_is_charged_to_no_client(world: World) -> None:
    (context,) = with_charge(world)

    limits = world.fetch_api._limits_of(context, ask(world, ("t", 0, 0), replica=2))

    assert context.slot.charge.is_exempt, "its time is counted, and no client pays"
    assert not limits.whole_batches


def with_charge(world: World) -> tuple[Any]:
    call = world.call(1, 18)
    call.slot.charge = Charge(10)
    return (call.context,)
