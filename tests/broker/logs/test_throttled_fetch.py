"""A leader's throttle: which followers get nothing for now, and for how long they are held."""

from typing import Any

import pytest

from ottla.broker.quotas.replication_quota import PIECE_BYTES_MIN, PIECES_PER_S
from ottla.model.ids import NodeId
from ottla.model.limits import INT64_MAX
from ottla.model.settings.storage.throttled_replicas import throttled_replicas
from ottla.model.settings.storage.topic import TopicConfig
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse

World = Any  # the class of the `world` fixture, in conftest.py

FOLLOWER = 2


def ask(
    world: World, *asked: tuple[str, int], wait_ms: int = 500, session: tuple[int, int] = (0, -1)
) -> FetchRequest:
    """Ask for (topic, offset)s of partition 0, as broker 2."""
    return FetchRequest(
        replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=10),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            FetchTopic(
                topic_id=world.table.image.topic_ids[topic],
                partitions=[
                    FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
            for topic, offset in asked
        ],
    )


def answer_of(call: Any) -> FetchResponse:
    response: FetchResponse = call.response(FetchResponse)
    return response


def sizes(call: Any) -> list[int]:
    """Return how many bytes each partition was answered with."""
    return [
        len(part.records or b"") for topic in answer_of(call).responses for part in topic.partitions
    ]


async def add(world: World, topic: str, throttled: str = "", *, in_sync: bool = False) -> Any:
    """Create a topic whose follower may be out of sync, with one batch."""
    config = TopicConfig(leader_replication_throttled_replicas=throttled_replicas(throttled))
    partition = await world.add(topic, replicas=(1, FOLLOWER), config=config)
    if not in_sync:
        state = world.state(replicas=(1, FOLLOWER), isr=(1,), partition_epoch=1)
        partition.apply(state, config, world.clock.now_ms)
    append(world, partition)
    return partition


def append(world: World, partition: Any) -> None:
    partition.append(world.batch(b"v" * 900), acks=1, now_ms=world.clock.wall_ms(), mono_ms=0)


def exceed(world: World, *, limit: int = 1_000, used: int = 1_100) -> None:
    """Have the quota exceeded for 100 ms."""
    world.replication_quota.set_limit(limit)
    world.replication_quota.record(used)
    world.pass_time(1_000)


@pytest.mark.parametrize("throttled", ["*", "0:1", "3:2,0:1"])
async def test_a_throttled_follower_gets_nothing_until_the_rate_has_fallen(
    world: World, throttled: str
) -> None:
    await add(world, "t", throttled)
    exceed(world)

    call = world.fetch(ask(world, ("t", 0)))

    assert not call.is_completed
    world.pass_time(100)
    assert not call.is_completed
    world.pass_time(1)
    assert sizes(call)[0] > 900


@pytest.mark.parametrize("throttled", ["", "0:2", "1:1"])
async def test_what_the_list_does_not_name_is_not_throttled(world: World, throttled: str) -> None:
    await add(world, "t", throttled)
    exceed(world)

    assert sizes(world.fetch(ask(world, ("t", 0))))[0] > 900


async def test_a_replica_in_sync_is_never_throttled_and_counts_all_the_same(world: World) -> None:
    await add(world, "t", "*", in_sync=True)
    exceed(world)
    before = world.replication_quota.per_second()

    (size,) = sizes(world.fetch(ask(world, ("t", 0))))

    assert size > 900
    assert world.replication_quota.per_second() == before + size


async def test_throttled_replicas_come_in_pieces_each_in_its_turn(world: World) -> None:
    for topic in ("s", "t"):
        partition = await add(world, topic, "*")
        for _ in range(2 * PIECE_BYTES_MIN // 900):
            append(world, partition)
    free = await add(world, "u", "*", in_sync=True)
    append(world, free)
    world.replication_quota.set_limit(1_000_000_000)
    whole = sizes(world.fetch(ask(world, ("s", 0), ("t", 0), ("u", 0))))
    world.replication_quota.set_limit(PIECES_PER_S * PIECE_BYTES_MIN)

    call = world.fetch(ask(world, ("s", 0), ("t", 0), ("u", 0), session=(0, 0)))

    piece = sizes(call)
    assert whole[0] == whole[1] > PIECE_BYTES_MIN
    assert PIECE_BYTES_MIN - 1_000 < piece[0] + piece[1] <= PIECE_BYTES_MIN
    assert piece[2] == whole[2] > 1_800
    session = (answer_of(call).session_id, 1)
    (later,) = sizes(world.fetch(ask(world, session=session)))[:1]
    assert later > PIECE_BYTES_MIN - 1_000


async def test_a_quota_within_its_limit_gives_what_is_asked_and_counts_it(world: World) -> None:
    await add(world, "t", "*")
    world.replication_quota.set_limit(500)

    (size,) = sizes(world.fetch(ask(world, ("t", 0))))

    assert size > 900
    assert world.replication_quota.is_exceeded()
    assert not world.fetch(ask(world, ("t", 0))).is_completed


async def test_without_a_limit_no_byte_is_counted(world: World) -> None:
    await add(world, "t", "*")

    world.fetch(ask(world, ("t", 0)))

    assert world.replication_quota.limit == INT64_MAX
    assert world.replication_quota.per_second() == 0


async def test_other_partitions_of_the_answer_have_all_their_bytes(world: World) -> None:
    await add(world, "slow", "*")
    await add(world, "fast")
    exceed(world)

    call = world.fetch(ask(world, ("slow", 0), ("fast", 0)))

    assert sizes(call)[0] == 0
    assert sizes(call)[1] > 900


async def test_an_append_elsewhere_answers_a_fetch_that_a_throttle_holds(world: World) -> None:
    await add(world, "slow", "*")
    fast = await add(world, "fast")
    exceed(world)
    call = world.fetch(ask(world, ("slow", 0), ("fast", 1)))
    assert not call.is_completed

    append(world, fast)

    assert sizes(call)[0] == 0
    assert sizes(call)[1] > 900


async def test_a_session_brings_what_was_held_back_without_being_asked_again(world: World) -> None:
    await add(world, "slow", "*")
    fast = await add(world, "fast")
    exceed(world)
    opened = answer_of(world.fetch(ask(world, ("slow", 0), ("fast", 0), session=(0, 0))))
    assert opened.session_id
    append(world, fast)
    call = world.fetch(ask(world, ("fast", 1), session=(opened.session_id, 1)))
    assert sizes(call)[-1] > 900  # of "fast" alone
    call = world.fetch(ask(world, ("fast", 2), session=(opened.session_id, 2)))
    assert not call.is_completed

    world.pass_time(101)

    (topic,) = answer_of(call).responses
    assert topic.topic_id == world.table.image.topic_ids["slow"]
    assert len(topic.partitions[0].records or b"") > 900


async def test_a_follower_is_held_no_longer_than_it_asks_for(world: World) -> None:
    await add(world, "t", "*")
    exceed(world, limit=0)

    call = world.fetch(ask(world, ("t", 0), wait_ms=50))

    assert not call.is_completed
    world.pass_time(50)
    assert sizes(call) == [0]


async def test_a_throttled_follower_still_receives_diverging_epochs_and_errors(
    world: World,
) -> None:
    await add(world, "t", "*")
    exceed(world)
    beyond = ask(world, ("t", 99))

    (topic,) = answer_of(world.fetch(beyond)).responses

    assert topic.partitions[0].error_code == 1  # OFFSET_OUT_OF_RANGE


async def test_a_throttled_fetch_still_notes_where_the_follower_is(world: World) -> None:
    partition = await add(world, "t", "*")
    append(world, partition)
    exceed(world)

    world.fetch(ask(world, ("t", 1)))

    assert partition.followers[NodeId(FOLLOWER)].end_offset == 1
