"""Reads from the nearest replica (KIP-392): the leader's choice, and the follower's answers."""

from typing import Any
from uuid import UUID

import pytest

from ottla.broker.logs.replica_selection import RackAwareSelector
from ottla.broker.replicas.partition import Partition
from ottla.metadata.image import BrokerRegistration, Endpoint, MetadataImage
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse
from tests.broker.logs.fetch_requests import World, append, ask, offsets, parts

LEADER, NEAR, OTHER = 1, 2, 3
BROKER_EPOCH = 10


def register(world: World, node: int, rack: str | None, **changes: Any) -> None:
    image = world.table.image
    given = {
        "endpoints": (Endpoint(world.peer.listener_name, f"host-{node}", 9092, 0),),
        "is_fenced": False,
        **changes,
    }
    broker = BrokerRegistration(
        id=NodeId(node), epoch=BROKER_EPOCH, incarnation_id=UUID(int=node), rack=rack, **given
    )
    world.table.image = MetadataImage(
        brokers=image.brokers.set(NodeId(node), broker),
        topic_ids=image.topic_ids,
        topics=image.topics,
    )


def report(world: World, partition: Partition, replica: int, end: int, start: int = 0) -> None:
    partition.on_follower_fetch(
        NodeId(replica),
        end_offset=Offset(end),
        log_start_offset=Offset(start),
        broker_epoch=BROKER_EPOCH,
        now_ms=world.clock.now_ms,
    )


@pytest.fixture
async def led(world: World) -> Partition:
    """A partition of three replicas in three racks that this broker leads, with two records."""
    partition: Partition = await world.add("t", replicas=(LEADER, NEAR, OTHER))
    for node, rack in ((LEADER, "a"), (NEAR, "b"), (OTHER, "b")):
        register(world, node, rack)
    append(world, partition, b"one")
    append(world, partition, b"two")
    report(world, partition, NEAR, 2)
    report(world, partition, OTHER, 1)
    world.fetch_api.selector = RackAwareSelector(world.table)
    return partition


def asked_from(world: World, rack: str, offset: int = 0, **changes: Any) -> FetchRequest:
    request = ask(world, ("t", 0, offset), **changes)
    request.rack_id = rack
    return request


async def test_a_consumer_is_sent_to_the_most_caught_up_replica_of_its_rack(
    world: World, led: Partition
) -> None:
    (part,) = parts(world.fetch(asked_from(world, "b", wait_ms=500)))

    assert part.preferred_read_replica == NEAR
    assert not part.records
    assert (part.error_code, part.high_watermark) == (0, 1)


@pytest.mark.parametrize("rack", ["a", "c", ""])
async def test_the_leader_serves_its_own_rack_and_those_without_a_replica(
    world: World, led: Partition, rack: str
) -> None:
    (part,) = parts(world.fetch(asked_from(world, rack)))

    assert part.preferred_read_replica == -1
    assert offsets(part) == [0]


@pytest.mark.parametrize("version", [10, 11, 12, 18])
async def test_versions_from_eleven_on_name_a_rack(
    world: World, led: Partition, version: int
) -> None:
    (part,) = parts(world.fetch(asked_from(world, "b"), version=version))

    assert part.preferred_read_replica == (NEAR if version >= 11 else -1)


async def test_a_follower_is_never_sent_elsewhere(world: World, led: Partition) -> None:
    (part,) = parts(world.fetch(asked_from(world, "b", replica=OTHER)))

    assert part.preferred_read_replica == -1


@pytest.mark.parametrize(
    "change",
    ["fenced", "no endpoint", "out of the ISR", "records not there", "records deleted"],
)
async def test_only_a_replica_that_can_answer_is_named(
    world: World, led: Partition, change: str
) -> None:
    offset = 1
    if change == "fenced":
        register(world, NEAR, "b", is_fenced=True)
    elif change == "no endpoint":
        register(world, NEAR, "b", endpoints=())
    elif change == "out of the ISR":
        led.isr = frozenset({NodeId(LEADER), NodeId(OTHER)})
    elif change == "records not there":
        offset = 2
        report(world, led, NEAR, 1)
    else:
        report(world, led, NEAR, 2, start=2)
    report(world, led, OTHER, 0)

    (part,) = parts(world.fetch(asked_from(world, "b", offset)))

    assert part.preferred_read_replica == -1


async def test_a_consumer_with_an_old_epoch_is_not_sent_away(world: World, led: Partition) -> None:
    (part,) = parts(world.fetch(asked_from(world, "b", current_leader_epoch=1)))

    assert part.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert part.preferred_read_replica == -1


async def test_an_incremental_answer_names_the_replica_too(world: World, led: Partition) -> None:
    opened = world.fetch(asked_from(world, "a", session=(0, 0)))
    number = opened.response(FetchResponse).session_id
    request = asked_from(world, "b", 1, session=(number, 1))

    (part,) = parts(world.fetch(request))

    assert part.preferred_read_replica == NEAR


async def test_a_follower_serves_consumers_what_is_committed(world: World) -> None:
    partition = await world.add("t", replicas=(LEADER, NEAR), leader=NEAR)
    world.fetch_api.selector = RackAwareSelector(world.table)
    partition.log.append_as_follower(world.batch(b"one"), now_ms=0)
    second = bytearray(world.batch(b"two"))
    second[:8] = (1).to_bytes(8, "big")
    partition.log.append_as_follower(memoryview(second), now_ms=0)
    partition.follow_high_watermark(Offset(1))

    (part,) = parts(world.fetch(asked_from(world, "b")))
    assert (part.error_code, offsets(part), part.high_watermark) == (0, [0], 1)
    assert partition.consumer_read_ms == world.clock.now_ms

    waiting = world.fetch(asked_from(world, "b", 1, wait_ms=500))
    assert not waiting.is_completed
    partition.follow_high_watermark(Offset(2))
    assert offsets(parts(waiting)[0]) == [1]

    (beyond,) = parts(world.fetch(asked_from(world, "b", 9)))
    assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_follower_refuses_consumers_without_the_setting_or_with_a_hole(
    world: World,
) -> None:
    partition = await world.add("t", replicas=(LEADER, NEAR), leader=NEAR)
    (part,) = parts(world.fetch(asked_from(world, "b")))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    world.fetch_api.selector = RackAwareSelector(world.table)
    partition.log.append_as_follower(world.batch(b"one"), now_ms=0)
    partition.log.note_hole(Offset(0))
    (part,) = parts(world.fetch(asked_from(world, "b")))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
