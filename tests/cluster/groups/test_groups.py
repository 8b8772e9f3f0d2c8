"""Groups as people use them: their clients' own examples, as they stand, against real processes."""

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka
import pytest
import trio
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor as KafkaRange

from ottla.broker.coordinators.placement import partition_of
from ottla.client import ConnectionLostError, RefusedError, open_consumer
from ottla.client import TopicPartition as OttlaPartition
from ottla.model.settings.client import ConsumerConfig

pytestmark = pytest.mark.cluster

PARTITION_COUNT = 6
RECORD_COUNT = 60
WAIT_S = 60.0
SHORT_SESSION: dict[str, dict[str, Any]] = {
    "classic": {"session_timeout_ms": 6_000},
    "consumer": {"group_protocol": "consumer"},
}
"""Session time-outs: the time for which a crashed member delays a rebalance; the coordinator sets
that of members of the consumer protocol."""
BROKER = {
    "broker_heartbeat_interval_ms": "200",
    "group_consumer_session_timeout_ms": "2000",
    "group_consumer_min_session_timeout_ms": "2000",
    "group_consumer_heartbeat_interval_ms": "500",
    "group_consumer_min_heartbeat_interval_ms": "500",
}

HEARTBEAT_MS = 300
"""A member learns of a rebalance with its next heartbeat; the default of clients is 3 s."""

KILL_COUNT = int(os.environ.get("OTTLA_GROUP_KILLS", "3"))

Owned = set[tuple[str, int]]


def make_topic(cluster: Any, topic: str, *, record_count: int = RECORD_COUNT) -> None:
    """Make a topic with the same number of records in each partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITION_COUNT)]).values():
        future.result(timeout=60)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(record_count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITION_COUNT)
    assert producer.flush(60) == 0


def confluent(cluster: Any, group: str, **changes: Any) -> Consumer:
    """Return a consumer as the documentation of confluent-kafka makes it."""
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
    )


def read(consumer: Consumer, count: int) -> list[int]:
    """Poll until that many records have come."""
    values: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(values) < count:
        assert time.monotonic() < deadline, f"{len(values)} of {count}"
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None
            values.append(int(message.value() or b""))
    return values


def committed(cluster: Any, group: str, topic: str) -> dict[int, int]:
    """Return the committed offset of a group in each partition of a topic."""
    consumer = confluent(cluster, group)
    wanted = [TopicPartition(topic, index) for index in range(PARTITION_COUNT)]
    found = {one.partition: one.offset for one in consumer.committed(wanted, timeout=WAIT_S)}
    consumer.close()
    return found


def test_confluent_kafka_goes_on_where_its_group_left_off(cluster: Any) -> None:
    make_topic(cluster, "by-confluent")
    consumer = confluent(cluster, "confluent")
    consumer.subscribe(["by-confluent"])
    first = read(consumer, RECORD_COUNT // 2)
    consumer.commit(asynchronous=False)
    consumer.close()

    again = confluent(cluster, "confluent")
    again.subscribe(["by-confluent"])
    second = read(again, RECORD_COUNT - len(first))
    again.close()  # commits by itself: enable.auto.commit is true by default
    assert sorted(first + second) == list(range(RECORD_COUNT))
    assert set(committed(cluster, "confluent", "by-confluent").values()) == {10}


def test_kafka_python_goes_on_where_its_group_left_off(cluster: Any) -> None:
    make_topic(cluster, "by-kafka-python")
    consumer = KafkaConsumer(
        "by-kafka-python",
        group_id="kafka-python",
        bootstrap_servers=cluster.bootstrap,
        auto_offset_reset="earliest",
    )
    values = [int(message.value) for _, message in zip(range(RECORD_COUNT), consumer, strict=False)]
    consumer.close()
    assert sorted(values) == list(range(RECORD_COUNT))
    assert set(committed(cluster, "kafka-python", "by-kafka-python").values()) == {10}


def test_aiokafka_goes_on_where_its_group_left_off(cluster: Any) -> None:
    make_topic(cluster, "by-aiokafka")

    async def consume(count: int) -> list[int]:
        consumer = aiokafka.AIOKafkaConsumer(
            "by-aiokafka",
            bootstrap_servers=cluster.bootstrap,
            group_id="aiokafka",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        values = []
        try:
            async for message in consumer:
                values.append(int(message.value))
                if len(values) == count:
                    break
        finally:
            await consumer.stop()
        return values

    async def body() -> list[int]:
        async with asyncio.timeout(WAIT_S):
            return await consume(RECORD_COUNT // 2) + await consume(RECORD_COUNT // 2)

    assert sorted(asyncio.run(body())) == list(range(RECORD_COUNT))


# ---- sharing


class Worker:
    """One consumer in a thread of its own, which reports the partitions it owns."""

    def __init__(self, poll: Callable[[], Owned], close: Callable[[], None]) -> None:
        self.owned: Owned = set()
        self._poll = poll
        self._close = close
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            self.owned = self._poll()
        self._close()
        self.owned = set()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def confluent_worker(cluster: Any, group: str, topic: str, **changes: Any) -> Worker:
    if changes.get("group_protocol") != "consumer":
        changes["heartbeat_interval_ms"] = HEARTBEAT_MS
    consumer = confluent(cluster, group, **changes)
    consumer.subscribe([topic])

    def poll() -> Owned:
        consumer.poll(0.1)
        return {(one.topic, one.partition) for one in consumer.assignment()}

    return Worker(poll, consumer.close)


def kafka_python_worker(cluster: Any, group: str, topic: str, *assignors: Any) -> Worker:
    consumer = KafkaConsumer(
        topic,
        group_id=group,
        bootstrap_servers=cluster.bootstrap,
        partition_assignment_strategy=assignors,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )

    def poll() -> Owned:
        consumer.poll(100)
        return {(one.topic, one.partition) for one in consumer.assignment()}

    return Worker(poll, consumer.close)


def aiokafka_worker(cluster: Any, group: str, topic: str, *assignors: Any) -> Worker:
    loop = asyncio.new_event_loop()

    async def open_consumer() -> Any:
        return aiokafka.AIOKafkaConsumer(
            topic,
            group_id=group,
            bootstrap_servers=cluster.bootstrap,
            partition_assignment_strategy=assignors,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    consumer = loop.run_until_complete(open_consumer())
    has_started = False

    def poll() -> Owned:
        nonlocal has_started
        if not has_started:
            loop.run_until_complete(consumer.start())
            has_started = True
        loop.run_until_complete(consumer.getmany(timeout_ms=100))
        return {(one.topic, one.partition) for one in consumer.assignment()}

    def close() -> None:
        loop.run_until_complete(consumer.stop())
        loop.close()

    return Worker(poll, close)


def shared(workers: list[Worker], topic: str) -> bool:
    """Return whether the workers own all partitions, each partition once, and each worker at least
    one."""
    owned = [set(worker.owned) for worker in workers]
    everything = {(topic, index) for index in range(PARTITION_COUNT)}
    return (
        all(owned) and sum(map(len, owned)) == PARTITION_COUNT and set().union(*owned) == everything
    )


@contextmanager
def stopped_at_the_end(workers: list[Worker]) -> Iterator[None]:
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()


def test_three_kinds_of_clients_share_one_group(cluster: Any) -> None:
    make_topic(cluster, "mixed")
    workers = [confluent_worker(cluster, "mixed", "mixed", partition_assignment_strategy="range")]
    with stopped_at_the_end(workers):
        cluster.wait_for(lambda: shared(workers, "mixed"), "share of one")
        workers.append(kafka_python_worker(cluster, "mixed", "mixed", KafkaRange))
        cluster.wait_for(lambda: shared(workers, "mixed"), "share of two")
        workers.append(aiokafka_worker(cluster, "mixed", "mixed", AioRange))
        cluster.wait_for(lambda: shared(workers, "mixed"), "share of three")
        workers.pop(0).stop()
        cluster.wait_for(lambda: shared(workers, "mixed"), "share of who is left")


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_partitions_are_rebalanced_when_members_join_and_leave(cluster: Any, strategy: str) -> None:
    topic = f"shared-{strategy}"
    make_topic(cluster, topic)
    workers: list[Worker] = []
    with stopped_at_the_end(workers):
        for _ in range(3):
            workers.append(
                confluent_worker(cluster, topic, topic, partition_assignment_strategy=strategy)
            )
            cluster.wait_for(lambda: shared(workers, topic), f"share of {len(workers)}")
        workers.pop().stop()
        cluster.wait_for(lambda: shared(workers, topic), "share of who is left")


def test_a_static_member_that_comes_back_costs_no_rebalance(cluster: Any) -> None:
    make_topic(cluster, "static")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def members() -> dict[str, Owned]:
        found = admin.describe_consumer_groups(["static"])["static"].result(60)
        return {
            one.group_instance_id: {(p.topic, p.partition) for p in one.assignment.topic_partitions}
            for one in found.members
        }

    def worker(name: str) -> Worker:
        return confluent_worker(cluster, "static", "static", group_instance_id=name)

    workers = [worker("a"), worker("b")]
    with stopped_at_the_end(workers):
        cluster.wait_for(lambda: shared(workers, "static"), "share of two")
        before = members()
        workers.pop().stop()
        workers.append(worker("b"))
        cluster.wait_for(lambda: shared(workers, "static"), "share of two")
        assert members() == before


# ---- admin


def test_an_admin_lists_describes_and_deletes_groups_and_their_offsets(cluster: Any) -> None:
    make_topic(cluster, "administered")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    workers = [confluent_worker(cluster, "administered", "administered")]
    with stopped_at_the_end(workers):
        cluster.wait_for(lambda: shared(workers, "administered"), "share of one")
        found = admin.describe_consumer_groups(["administered"])["administered"].result(60)
        assert found.state == ConsumerGroupState.STABLE
        assert found.partition_assignor == "range"
        (member,) = found.members
        assert member.client_id == "rdkafka"
        assert len(member.assignment.topic_partitions) == PARTITION_COUNT
        stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(60)
        assert "administered" in {one.group_id for one in stable.valid}
        with pytest.raises(KafkaException) as refusal:
            admin.delete_consumer_groups(["administered"])["administered"].result(60)
        assert refusal.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    moved = [TopicPartition("administered", index, 3) for index in range(PARTITION_COUNT)]
    asked = [ConsumerGroupTopicPartitions("administered", moved)]
    admin.alter_consumer_group_offsets(asked)["administered"].result(60)
    assert set(committed(cluster, "administered", "administered").values()) == {3}
    listed = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    offsets = listed.list_group_offsets(["administered"])["administered"]
    assert {one.offset for one in offsets.values()} == {3}
    listed.close()
    admin.delete_consumer_groups(["administered"])["administered"].result(60)
    empty = admin.list_consumer_groups().result(60)
    assert "administered" not in {one.group_id for one in empty.valid}
    assert set(committed(cluster, "administered", "administered").values()) == {-1001}


# ---- what is acknowledged stays


class Committer:
    """A thread that commits increasing offsets, and knows which of them are acknowledged.

    As a member of the group it joins every rebalance; otherwise it only commits.
    """

    def __init__(
        self, cluster: Any, topic: str, *, is_member: bool = False, protocol: str = "classic"
    ) -> None:
        self.acknowledged = -1
        self.asked = 0
        self._refusal = ""
        self._cluster = cluster
        self._topic = topic
        self._is_member = is_member
        self._is_stopping = threading.Event()
        run = self._run if protocol == "classic" else self._run_ours
        self._thread = threading.Thread(target=run)
        self._thread.start()

    def _run(self) -> None:
        consumer = confluent(
            self._cluster, self._topic, enable_auto_commit=False, **SHORT_SESSION["classic"]
        )
        if self._is_member:
            consumer.subscribe([self._topic])
        while not self._is_stopping.is_set():
            if self._is_member:
                consumer.poll(0)
                if not consumer.assignment():
                    # A commit of a member that has not joined yet restarts librdkafka's join.
                    self._is_stopping.wait(0.01)
                    continue
            self.asked += 1
            wanted = [TopicPartition(self._topic, 0, self.asked)]
            try:
                (done,) = consumer.commit(offsets=wanted, asynchronous=False)
            except KafkaException as refusal:
                self._refusal = str(refusal)
                continue
            self._refusal = str(done.error)
            if done.error is None:
                self.acknowledged = done.offset
        consumer.close()

    def _run_ours(self) -> None:
        """Commit by our own client.

        librdkafka finds a new coordinator, gives up its connection for that, with it the commit
        that waits there, and for that the coordinator, and so on: for half a minute at times.
        """
        trio.run(self._commit_by_ottla)

    async def _commit_by_ottla(self) -> None:
        config = ConsumerConfig(
            group_id=self._topic, enable_auto_commit=False, group_protocol="consumer"
        )
        async with open_consumer(self._cluster.bootstrap, config) as consumer:
            consumer.subscribe([self._topic])
            while not self._is_stopping.is_set():
                await consumer.poll(0.01)
                self.asked += 1
                wanted = {OttlaPartition(self._topic, 0): self.asked}
                try:
                    await consumer.commit(wanted)
                except (RefusedError, ConnectionLostError) as refusal:
                    self._refusal = str(refusal)
                    continue
                self.acknowledged = self.asked

    def wait_for_one_more(self, cluster: Any) -> None:
        """Wait until commits are acknowledged again."""
        before = self.acknowledged
        try:
            cluster.wait_for(lambda: self.acknowledged > before, "acknowledged commit")
        except AssertionError as late:
            late.add_note(f"{self.asked} asked for; the last: {self._refusal}")
            raise

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@pytest.mark.timeout(max(300, 20 * KILL_COUNT))
def test_an_acknowledged_commit_outlives_kill_9_of_the_coordinator(fresh: Any) -> None:
    """The broker that coordinates is killed at random moments while offsets are committed."""
    fresh.start("controller", broker_session_timeout_ms="1000")
    fresh.start("broker", **BROKER)
    make_topic(fresh, "killed")
    rng = random.Random(4)
    committer = Committer(fresh, "killed")
    try:
        for _ in range(KILL_COUNT):
            committer.wait_for_one_more(fresh)
            time.sleep(rng.uniform(0.0, 0.5))
            acknowledged = committer.acknowledged
            fresh.kill("broker")
            fresh.start("broker", **BROKER)
            found = fresh.wait_for(lambda: committed(fresh, "killed", "killed")[0], "commit")
            assert found >= acknowledged
    finally:
        committer.stop()
    assert committed(fresh, "killed", "killed")[0] >= committer.acknowledged > 0


@contextmanager
def coming_and_going(
    cluster: Any, topic: str, rng: random.Random, protocol: str
) -> Iterator[list[int]]:
    """Let members join a group for a moment and leave it again; yield how many have done so."""
    counts = [0]
    is_stopping = threading.Event()

    def run() -> None:
        while not is_stopping.is_set():
            worker = confluent_worker(
                cluster, topic, topic, enable_auto_commit=False, **SHORT_SESSION[protocol]
            )
            is_stopping.wait(rng.uniform(0.5, 2.0))
            worker.stop()
            counts[0] += 1

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield counts
    finally:
        is_stopping.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@pytest.mark.timeout(max(300, 20 * KILL_COUNT))
@pytest.mark.parametrize("protocol", SHORT_SESSION)
def test_an_acknowledged_commit_outlives_kill_9_during_rebalances(
    fresh: Any, protocol: str
) -> None:
    """The same while members of the group come and go, and the committer is one of them."""
    fresh.start("controller", broker_session_timeout_ms="1000")
    fresh.start("broker", **BROKER)
    make_topic(fresh, "rebalanced")
    rng = random.Random(5)
    committer = Committer(fresh, "rebalanced", is_member=True, protocol=protocol)
    try:
        with coming_and_going(fresh, "rebalanced", random.Random(6), protocol) as counts:
            for _ in range(KILL_COUNT):
                committer.wait_for_one_more(fresh)
                time.sleep(rng.uniform(0.0, 0.5))
                acknowledged = committer.acknowledged
                fresh.kill("broker")
                fresh.start("broker", **BROKER)
                found = fresh.wait_for(
                    lambda: committed(fresh, "rebalanced", "rebalanced")[0], "commit"
                )
                assert found >= acknowledged
            committer.wait_for_one_more(fresh)
    finally:
        committer.stop()
    assert counts[0] > 0
    assert committed(fresh, "rebalanced", "rebalanced")[0] >= committer.acknowledged
    print(f"{committer.asked} commits asked for, {counts[0]} members came and went")


def test_the_next_broker_takes_the_group_over_where_it_was(
    plan_cluster: Callable[..., Any],
) -> None:
    """With three brokers no acknowledged record is lost, and no client waits for the dead one."""
    processes = plan_cluster(
        controllers=1,
        brokers=3,
        broker_session_timeout_ms="3000",
        broker_heartbeat_interval_ms="500",
    )
    processes.start()
    make_topic(processes, "moving")
    index = partition_of("moving", 50)
    committer = Committer(processes, "moving")
    try:
        for _ in range(3):
            committer.wait_for_one_more(processes)
            victim = f"broker {processes.leaders('__consumer_offsets')[index]}"
            acknowledged = committer.acknowledged
            processes.kill(victim)
            committer.wait_for_one_more(processes)
            found = processes.wait_for(
                lambda: committed(processes, "moving", "moving")[0], "commit", WAIT_S
            )
            assert found >= acknowledged
            processes.start(victim)
            processes.wait_healthy()
    finally:
        committer.stop()
    assert committed(processes, "moving", "moving")[0] >= committer.acknowledged > 0
