"""Fetch sessions (KIP-227): responses with news only, order, bounds, and their end."""

from random import Random

import pytest

from ottla.broker.logs.fetch import PARTITIONS_READ_AGAIN
from ottla.broker.logs.fetch_read import FetchTarget
from ottla.broker.replicas.partition import Partition
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.network.purgatory import COST_PER_TURN
from ottla.wire.batch import batches
from ottla.wire.messages.fetch_request import (
    ForgottenTopic,
)
from ottla.wire.messages.fetch_response import FetchResponse, PartitionData
from tests.broker.logs.fetch_requests import (
    World,
    append,
    ask,
    offsets,
    parts,
    session_over,
)


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


async def test_a_follower_that_asks_again_gets_the_log_start_that_it_ignored(
    world: World,
) -> None:
    """A follower ignores a response to a request that it sent before it followed in this leader
    epoch. Its next request asks for the same offset."""
    partition = await world.add("t", replicas=(1, 2))
    append(world, partition, b"a")
    append(world, partition, b"b")
    assert partition.log is not None
    partition.log.update_high_watermark(Offset(2))
    partition.log.raise_log_start(Offset(2))
    known = {"log_start_offset": 0}
    opened = world.fetch(ask(world, ("t", 0, 2), session=(0, 0), replica=2, **known))
    (ignored,) = parts(opened)
    assert (ignored.log_start_offset, ignored.high_watermark) == (2, 2)
    session_id = opened.response(FetchResponse).session_id

    again = ask(world, ("t", 0, 2), session=(session_id, 1), replica=2, wait_ms=500, **known)
    assert parts(world.fetch(again)) == [ignored]

    # A follower that has taken the log start over waits for records.
    known = {"log_start_offset": 2}
    done = ask(world, ("t", 0, 2), session=(session_id, 2), replica=2, wait_ms=500, **known)
    assert not world.fetch(done).is_completed


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


async def test_a_deleted_partition_is_an_error_and_has_no_watcher(world: World) -> None:
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
    """In every random history, a partition that a session skips has no news for its client."""
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
    """Return the offset after the last whole batch."""
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
    assert target.seen_high_watermark == log.high_watermark
    assert target.seen_log_start_offset == log.log_start_offset
