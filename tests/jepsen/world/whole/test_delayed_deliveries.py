"""Whole clusters in virtual time: after a failover, delayed records are delivered at their time.

Processing takes no time here. What is late is late because a part waits for something: a timeout, a
retry or a timer.
"""

import random
from collections.abc import Awaitable, Callable

import trio

from ottla.client import (
    ConfigKind,
    ConfigResource,
    ShareConsumerConfig,
    ShareRecord,
    open_admin,
    open_producer,
    open_share_consumer,
)
from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.machine import Machine
from ottla.jepsen.world.whole.net.streams import MachineTransport
from ottla.jepsen.world.whole.workload import machine_time_ms
from ottla.model.ids import NodeId
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from tests.jepsen.world.whole.test_early_failover import play

TOPIC, GROUP = "reminders", "mail"
DURATION_S = 12
FAULT_S = 3
STEP_MS = 100
FIRST_DUE_S = 3
SESSION_MS = 2_000
LATE_MS_MAX = 500
"""Time in ms from the end of a failover until the last record that was due before is delivered."""
SETTINGS = {
    "broker_heartbeat_interval_ms": "200",
    "broker_session_timeout_ms": str(SESSION_MS),
    "offsets_topic_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "group_share_heartbeat_interval_ms": "1000",
    "group_share_min_heartbeat_interval_ms": "1000",
}

Fault = Callable[[SimulatedCluster], Awaitable[None]]


def leader_of(cluster: SimulatedCluster, topic: str) -> Machine:
    image = cluster.latest_image
    assert image is not None
    found = image.topic(topic)
    assert found is not None
    return cluster.broker_machines[NodeId(found.partitions[0].leader)]


async def consume(cluster: SimulatedCluster, name: str, at_ms: dict[int, int]) -> None:
    world = cluster.world
    host = world.network.host(name)
    world.network.on_start(host)
    TRANSPORT.set(MachineTransport(world.network, world.ports, host))

    async def note(record: ShareRecord) -> None:
        at_ms.setdefault(int(record.value or b""), machine_time_ms())

    config = ShareConsumerConfig(group_id=GROUP)
    async with open_share_consumer(cluster.bootstrap, config) as consumer:
        consumer.subscribe([TOPIC])
        await consumer.work(note, concurrency=16)


async def send_all(cluster: SimulatedCluster) -> list[int]:
    """Create the topic, and send its records in random order. Returns their due times in ms."""
    async with open_admin(cluster.bootstrap) as admin:
        configs = {"ottla.share.delay.ms": "0"}
        await admin.create_topic(TOPIC, partition_count=1, replication_factor=3, configs=configs)
        group = ConfigResource(ConfigKind.GROUP, GROUP)
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    begin_ms = machine_time_ms() + FIRST_DUE_S * 1_000
    dues = [begin_ms + STEP_MS * each for each in range(DURATION_S * 1_000 // STEP_MS)]
    async with open_producer(cluster.bootstrap) as producer:
        for due_ms in random.Random(37).sample(dues, len(dues)):
            text = b"%d" % due_ms
            headers = [("ottla.due.ms", text)]
            await producer.send(TOPIC, text, headers=headers, timestamp_ms=machine_time_ms())
    return dues


def deliver(seed: int, fault: Fault) -> list[int]:
    """Deliver delayed records while a fault happens. Returns the lateness of each delivery in
    ms."""
    late: list[int] = []

    async def scene(cluster: SimulatedCluster) -> None:
        world = cluster.world
        host = world.network.host("client-0")
        world.network.on_start(host)
        TRANSPORT.set(MachineTransport(world.network, world.ports, host))
        dues = await send_all(cluster)
        at_ms: dict[int, int] = {}
        async with trio.open_nursery() as nursery:
            for name in ("client-1", "client-2"):
                nursery.start_soon(consume, cluster, name, at_ms)
            await trio.sleep(FIRST_DUE_S + FAULT_S)
            await fault(cluster)
            with trio.fail_after(DURATION_S + 30):
                while len(at_ms) < len(dues):
                    await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        late.extend(at_ms[due_ms] - due_ms for due_ms in dues)

    play(seed, scene, **SETTINGS)
    return late


def test_delayed_records_are_late_only_by_the_failover_of_a_killed_leader() -> None:
    async def kill(cluster: SimulatedCluster) -> None:
        machine = leader_of(cluster, TOPIC)
        machine.kill()
        await trio.sleep(3)
        machine.start()

    late = deliver(1, kill)
    assert min(late) >= 0
    assert max(late) <= LATE_MS_MAX, "a certain death ends the session at once"


def test_delayed_records_do_not_wait_for_a_frozen_share_coordinator() -> None:
    """Members receive no record while an acknowledgement is not stored: its request has both."""

    async def freeze(cluster: SimulatedCluster) -> None:
        machine = leader_of(cluster, SHARE_STATE_TOPIC)
        assert machine is not leader_of(cluster, TOPIC)
        machine.pause()
        await trio.sleep(6)
        machine.resume()

    late = deliver(1, freeze)
    assert min(late) >= 0
    assert max(late) <= SESSION_MS + LATE_MS_MAX
