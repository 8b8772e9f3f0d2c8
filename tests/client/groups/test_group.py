"""Consumers that share topics as a group, against a real coordinator."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import confluent_kafka
import pytest
import trio

from ottla.client import (
    Consumer,
    ConsumerConfig,
    ErrorCode,
    RefusedError,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.testing import ClusterUnderTest
from ottla.wire.messages.leave_group_response import LeaveGroupResponse

T = TypeVar("T")

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_S = 60


def config(**changes: Any) -> ConsumerConfig:
    return ConsumerConfig(
        **{
            "group_id": "g",
            "auto_offset_reset": "earliest",
            "heartbeat_interval_ms": 50,
            "session_timeout_ms": 6_000,
            **changes,
        }
    )


async def create(cluster: ClusterUnderTest, partition_count: int, topic: str = "t") -> None:
    async with open_admin(cluster.bootstrap) as admin:
        await admin.create_topic(topic, partition_count=partition_count)


async def produce(cluster: ClusterUnderTest, numbers: range, partitions: int = 2) -> None:
    async with open_producer(cluster.bootstrap) as producer:
        for number in numbers:
            await producer.send("t", b"%d" % number, partition=number % partitions)


async def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    with trio.fail_after(TIMEOUT_S):
        while len(found) < count:
            found += [int(record.value or b"") for record in await consumer.poll()]
    return found


async def test_a_lone_member_reads_everything_and_its_successor_goes_on(
    ottla_cluster: ClusterUnderTest,
) -> None:
    await create(ottla_cluster, 2)
    await produce(ottla_cluster, range(100))
    async with open_consumer(ottla_cluster.bootstrap, config()) as consumer:
        consumer.subscribe(["t"])
        assert sorted(await read(consumer, 100)) == list(range(100))
        assert consumer.assignment == {A, B}
    await produce(ottla_cluster, range(100, 110))
    async with open_consumer(ottla_cluster.bootstrap, config()) as consumer:
        consumer.subscribe(["t"])
        assert sorted(await read(consumer, 10)) == list(range(100, 110))


async def test_what_was_not_committed_comes_again(ottla_cluster: ClusterUnderTest) -> None:
    await create(ottla_cluster, 1)
    await produce(ottla_cluster, range(10), partitions=1)
    by_hand = config(enable_auto_commit=False)
    async with open_consumer(ottla_cluster.bootstrap, by_hand) as consumer:
        consumer.subscribe(["t"])
        with trio.fail_after(TIMEOUT_S):
            async for record in consumer:
                if record.offset == 4:
                    await consumer.commit()
                if record.offset == 7:
                    break
    async with open_consumer(ottla_cluster.bootstrap, by_hand) as consumer:
        consumer.assign([A])
        assert (await consumer.committed([A, B]))[A].offset == 5
        assert await read(consumer, 5) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_says_as_whom_it_commits_while_it_is_one(
    ottla_cluster: ClusterUnderTest, protocol: str
) -> None:
    await create(ottla_cluster, 1)
    by_hand = config(enable_auto_commit=False, group_protocol=protocol)
    async with open_consumer(ottla_cluster.bootstrap, by_hand) as consumer:
        consumer.subscribe(["t"])
        assert consumer.coordinator_address is None
        with pytest.raises(RefusedError):
            consumer.group_metadata()
        with trio.fail_after(TIMEOUT_S):
            while not consumer.assignment:
                await consumer.poll(0.05)
        membership = consumer.group_metadata()
        assert membership.generation_id > 0
        assert membership.member_id
        assert consumer.coordinator_address == ottla_cluster.bootstrap
        await consumer.unsubscribe()
        with pytest.raises(RefusedError):
            consumer.group_metadata()


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_come_and_go_and_each_record_is_read_once(
    ottla_cluster: ClusterUnderTest, assignor: str
) -> None:
    count, partition_count = 600, 6
    await create(ottla_cluster, partition_count)
    found: list[int] = []
    settings = config(partition_assignment_strategy=(assignor,))
    owned: dict[str, frozenset[TopicPartition]] = {}

    async def member(name: str, *, goes_after: int | None = None) -> None:
        async with open_consumer(ottla_cluster.bootstrap, settings) as consumer:
            consumer.subscribe(["t"])
            mine = 0
            while goes_after is None or mine < goes_after:
                records = await consumer.poll(0.2, record_count_max=20)
                owned[name] = consumer.assignment
                found.extend(int(record.value or b"") for record in records)
                mine += len(records)
        owned.pop(name, None)

    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member, "a")
            nursery.start_soon(member, "b")
            await produce(ottla_cluster, range(200), partition_count)
            while len(found) < 200:
                await trio.sleep(0.01)
            nursery.start_soon(partial_member, member, "c")
            await produce(ottla_cluster, range(200, 400), partition_count)
            while len(found) < 400:
                await trio.sleep(0.01)
            await produce(ottla_cluster, range(400, count), partition_count)
            while len(found) < count or sum(map(len, owned.values())) != partition_count:
                await trio.sleep(0.01)
            assert frozenset[TopicPartition]().union(*owned.values()) == {
                TopicPartition("t", index) for index in range(partition_count)
            }
            nursery.cancel_scope.cancel()
    assert sorted(found) == list(range(count))


async def partial_member(member: Callable[..., Any], name: str) -> None:
    await member(name, goes_after=30)


async def test_a_rebalance_waits_until_the_application_is_done(
    ottla_cluster: ClusterUnderTest,
) -> None:
    await create(ottla_cluster, 2)
    await produce(ottla_cluster, range(20))
    reported: list[str] = []

    async def given(partitions: tuple[TopicPartition, ...]) -> None:
        reported.append(f"given {len(partitions)}")

    async def revoked(partitions: tuple[TopicPartition, ...]) -> None:
        reported.append(f"revoked {len(partitions)}")

    with trio.fail_after(TIMEOUT_S):
        async with open_consumer(ottla_cluster.bootstrap, config()) as first:
            first.subscribe(["t"], on_assigned=given, on_revoked=revoked)
            await read(first, 20)
            async with open_consumer(ottla_cluster.bootstrap, config()) as second:
                second.subscribe(["t"])
                assert await second.poll(0.3) == []
                assert reported == ["given 2"], "the first is still processing"
                while not second.assignment:
                    await first.poll(0.05)
                    await second.poll(0.05)
                assert len(first.assignment | second.assignment) == 2
                assert await second.poll(0.1) == []
    assert reported[:3] == ["given 2", "revoked 2", "given 1"]


async def test_a_pattern_takes_topics_that_come_later(ottla_cluster: ClusterUnderTest) -> None:
    await create(ottla_cluster, 1, "t")
    await create(ottla_cluster, 1, "other")
    settings = config(metadata_age_ms_max=100)
    async with open_consumer(ottla_cluster.bootstrap, settings) as consumer:
        consumer.subscribe(pattern="t.*")
        with trio.fail_after(TIMEOUT_S):
            while consumer.assignment != {A}:
                await consumer.poll(0.05)
            await create(ottla_cluster, 1, "t2")
            while consumer.assignment != {A, TopicPartition("t2", 0)}:
                await consumer.poll(0.05)


async def test_a_commit_of_a_member_that_was_expelled_is_refused(
    ottla_cluster: ClusterUnderTest,
) -> None:
    await create(ottla_cluster, 1)
    await produce(ottla_cluster, range(5), partitions=1)
    # It has not heard of it when it commits: its next heartbeat is far away.
    calm = {"heartbeat_interval_ms": 100_000, "session_timeout_ms": 300_000}
    settings = config(enable_auto_commit=False, **calm)
    async with open_consumer(ottla_cluster.bootstrap, settings) as consumer:
        consumer.subscribe(["t"])
        await read(consumer, 5)
        driver: Any = consumer._group and consumer._group.driver
        request = driver._member.leave_request("as if it had been silent for too long")
        await driver._coordinator.request(request, LeaveGroupResponse, timeout_s=60)
        with pytest.raises(RefusedError) as refused:
            await consumer.commit()
        assert refused.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
        assert await read(consumer, 5) == [0, 1, 2, 3, 4]


async def test_it_shares_a_group_with_librdkafka(ottla_cluster: ClusterUnderTest) -> None:
    count = 200
    await create(ottla_cluster, 4)
    theirs: list[int] = []
    ours: list[int] = []
    is_over = False
    deadline = time.monotonic() + TIMEOUT_S

    def other() -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ottla_cluster.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": "range",
                "heartbeat.interval.ms": 50,
                "session.timeout.ms": 6_000,
            }
        )
        consumer.subscribe(["t"])
        while not is_over and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                theirs.append(int(message.value()))
        consumer.close()

    async with open_consumer(ottla_cluster.bootstrap, config()) as consumer:
        consumer.subscribe(["t"])
        with trio.fail_after(TIMEOUT_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(trio.to_thread.run_sync, other, abandon_on_cancel=True))
                while len(consumer.assignment) != 2:
                    await consumer.poll(0.05)
                await produce(ottla_cluster, range(count), 4)
                while len(ours) + len(theirs) < count:
                    records = await consumer.poll(0.05)
                    ours += [int(record.value or b"") for record in records]
                is_over = True
    assert sorted(ours + theirs) == list(range(count))
    assert len(ours) == len(theirs) == count // 2


async def test_operators_move_a_groups_offsets(ottla_cluster: ClusterUnderTest) -> None:
    await create(ottla_cluster, 1)
    await produce(ottla_cluster, range(10), partitions=1)
    async with open_admin(ottla_cluster.bootstrap) as admin:
        assert await admin.group_offsets("g") == {}
        await admin.alter_group_offsets("g", {A: 7})
        assert (await admin.group_offsets("g"))[A].offset == 7
        async with open_consumer(ottla_cluster.bootstrap, config()) as consumer:
            consumer.subscribe(["t"])
            assert await read(consumer, 3) == [7, 8, 9]
        await admin.delete_group("g")
        assert await admin.group_offsets("g") == {}
