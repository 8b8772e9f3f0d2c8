"""Placement of new replicas: spread over racks and hosts, and evenly over brokers."""

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.replication.placement import Placement
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.image import BrokerRegistration
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest


def place(
    brokers: Iterable[BrokerRegistration],
    *,
    partition_count: int,
    replication_factor: int,
    turn: int,
) -> list[tuple[NodeId, ...]]:
    return Placement(brokers).place(
        partition_count=partition_count, replication_factor=replication_factor, turn=turn
    )


def broker(
    number: int,
    rack: str | None = None,
    host: str | None = None,
    *,
    is_fenced: bool = False,
    is_cordoned: bool = False,
) -> BrokerRegistration:
    directories = (UUID(int=1_000 + number),)
    return BrokerRegistration(
        id=NodeId(number),
        epoch=number,
        incarnation_id=UUID(int=number),
        rack=rack,
        host=host,
        is_fenced=is_fenced,
        log_dirs=directories,
        cordoned_log_dirs=directories if is_cordoned else (),
    )


def placed(
    brokers: list[BrokerRegistration], partition_count: int, replication_factor: int, turn: int = 0
) -> list[tuple[NodeId, ...]]:
    return place(
        brokers,
        partition_count=partition_count,
        replication_factor=replication_factor,
        turn=turn,
    )


PLACES = st.lists(
    st.tuples(st.sampled_from([None, "r1", "r2", "r3"]), st.sampled_from([None, "h1", "h2"])),
    min_size=1,
    max_size=8,
)


@given(PLACES, st.integers(1, 8), st.integers(1, 30), st.integers(0, 50))
def test_replicas_share_a_domain_only_when_there_are_too_few(
    places: list[tuple[str | None, str | None]],
    replication_factor: int,
    partition_count: int,
    turn: int,
) -> None:
    brokers = [broker(number, *place) for number, place in enumerate(places)]
    replication_factor = min(replication_factor, len(brokers))
    racks = {one.id: one.rack for one in brokers}
    hosts = {one.id: (one.rack, one.host) for one in brokers}

    replicas = placed(brokers, partition_count, replication_factor, turn)

    assert len(replicas) == partition_count
    for partition in replicas:
        assert len(set(partition)) == replication_factor
        used = {racks[one] for one in partition}
        assert len(used) == min(replication_factor, len(set(racks.values())))
        for rack in used:
            here = [hosts[one] for one in partition if racks[one] == rack]
            there = {host for host in hosts.values() if host[0] == rack}
            assert len(set(here)) == min(len(here), len(there))


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 40), st.integers(0, 50))
def test_every_broker_leads_as_many_and_holds_nearly_as_many(
    broker_count: int, replication_factor: int, partition_count: int, turn: int
) -> None:
    brokers = [broker(number) for number in range(broker_count)]
    replication_factor = min(replication_factor, broker_count)

    replicas = placed(brokers, partition_count, replication_factor, turn)

    led = Counter({one.id: 0 for one in brokers})
    held = Counter({one.id: 0 for one in brokers})
    for partition in replicas:
        led[partition[0]] += 1
        held.update(partition)
    assert max(led.values()) - min(led.values()) <= 1
    assert max(held.values()) - min(held.values()) <= 2


@given(st.integers(1, 7), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40))
def test_many_small_topics_are_led_and_held_as_evenly_as_one_large(
    broker_count: int, replication_factor: int, partition_count: int, topic_count: int
) -> None:
    brokers = [broker(number) for number in range(broker_count)]
    replication_factor = min(replication_factor, broker_count)

    led = Counter({one.id: 0 for one in brokers})
    held = Counter({one.id: 0 for one in brokers})
    for turn in range(topic_count):
        for partition in placed(brokers, partition_count, replication_factor, turn):
            led[partition[0]] += 1
            held.update(partition)

    rest = partition_count % broker_count
    assert max(led.values()) - min(led.values()) <= max(1, min(rest, broker_count - rest))
    mean = topic_count * partition_count * replication_factor / broker_count
    assert max(held.values()) <= 1.25 * mean + 2 * partition_count


def test_topics_of_one_partition_are_led_by_one_broker_after_the_other() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2, 3)

    for number in range(9):
        name = f"topic-{number}"
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=3)
        cluster.forward(CreateTopicsRequest(topics=[topic]))

    leaders = Counter(cluster.state(f"topic-{number}").leader for number in range(9))
    assert set(leaders.values()) == {3}


@given(st.integers(1, 5), st.lists(st.integers(1, 6), min_size=1, max_size=6))
def test_a_topic_that_grows_again_and_again_is_led_as_evenly_as_one_made_whole(
    broker_count: int, steps: list[int]
) -> None:
    cluster = InMemoryController()
    cluster.start(*range(1, broker_count + 1))
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    cluster.forward(CreateTopicsRequest(topics=[topic]))

    count = 1
    for step in steps:
        count += step
        growing = CreatePartitionsTopic(name="a", count=count, assignments=None)
        cluster.forward(CreatePartitionsRequest(topics=[growing]))

    grown = cluster.image.topic("a")
    assert grown is not None
    led = Counter(dict.fromkeys(cluster.image.brokers, 0))
    led.update(state.leader for state in grown.partitions.values())
    assert sum(led.values()) == count
    assert max(led.values()) - min(led.values()) <= 1


def test_followers_of_one_leader_differ_from_round_to_round() -> None:
    brokers = [broker(number) for number in range(5)]

    replicas = placed(brokers, 25, 3)

    by_leader: dict[NodeId, set[NodeId]] = {}
    for leader, *followers in replicas:
        by_leader.setdefault(leader, set()).update(followers)
    # Two followers a partition; were they always the same, the others would never share the load.
    assert all(len(followers) >= 3 for followers in by_leader.values())


def test_fenced_brokers_are_a_last_resort_and_never_first() -> None:
    brokers = [broker(1), broker(2), broker(3, is_fenced=True)]

    assert all(NodeId(3) not in partition for partition in placed(brokers, 6, 2))
    for partition in placed(brokers, 6, 3):
        assert partition[2] == NodeId(3)


def test_a_cordoned_broker_gets_nothing_though_it_lives() -> None:
    brokers = [broker(1), broker(2, is_cordoned=True), broker(3)]
    assert all(NodeId(2) not in partition for partition in placed(brokers, 6, 2))


@pytest.mark.parametrize(
    ("brokers", "replication_factor", "sentence"),
    [
        (
            [broker(1)],
            3,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
            "cannot be reached because only 1 broker(s) are registered.",
        ),
        (
            [broker(1), broker(2, is_fenced=True)],
            3,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 "
            "cannot be reached because only 2 broker(s) are registered, 1 of them alive.",
        ),
        (
            [broker(1, is_fenced=True)],
            1,
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced.",
        ),
        (
            [broker(1), broker(2, is_cordoned=True)],
            2,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 "
            "cannot be reached because only 1 broker(s) are registered; 1 more have all their log "
            "directories cordoned.",
        ),
        (
            [broker(1, is_cordoned=True)],
            1,
            "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or "
            "have all their log directories cordoned.",
        ),
    ],
)
def test_too_few_brokers_are_an_invalid_replication_factor(
    brokers: list[BrokerRegistration], replication_factor: int, sentence: str
) -> None:
    with pytest.raises(RefusedError) as caught:
        placed(brokers, 1, replication_factor)

    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert caught.value.message == sentence
