"""Delays of a share group on real processes: accurate to a second while leaders are killed.

OTTLA_DELAYS_S is the duration in seconds; an hour (3600) kills a leader every two minutes.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
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
from ottla.client.share_consumer import ShareConsumer

TOPIC, GROUP = "reminders", "mail"
DURATION_S = float(os.environ.get("OTTLA_DELAYS_S", "24"))
FIRST_DUE_S = 6.0 + DURATION_S / 200
"""Time in seconds from the first send to the first due time: all records are sent before it."""
RECORDS_PER_S = 10
KILL_INTERVAL_S = 120.0
LATE_MS_MAX = 1_000
OUTAGE_MS_MAX = 30_000
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(int(DURATION_S) + 240)]


class Deliveries:
    """Deliveries of records, whose value is their due time, and the outages of the partition."""

    def __init__(self) -> None:
        self.at_ms: dict[int, int] = {}
        """Time of the first delivery, by due time."""
        self.kills_ms: list[int] = []
        self.stalls_ms: dict[int, int] = {}
        """Delays of this process itself of more than 200 ms, by their time: a sign of a busy
        machine."""

    async def note(self, record: ShareRecord) -> None:
        assert record.value is not None
        self.at_ms.setdefault(int(record.value), now_ms())

    def outages(self) -> list[tuple[int, int]]:
        """Return each kill, and the time of the first delivery of a record due after it."""
        times = sorted(self.at_ms.items())
        return [
            (kill_ms, min(at_ms for due_ms, at_ms in times if due_ms > kill_ms))
            for kill_ms in self.kills_ms
        ]

    def late_ms(self) -> dict[int, int]:
        """Return the delay of each delivery behind its due time, or behind the end of the outage
        in which the record was due. Records in the second before a kill are left out."""
        found: dict[int, int] = {}
        outages = self.outages()
        for due_ms, at_ms in self.at_ms.items():
            begin_ms = due_ms
            for kill_ms, end_ms in outages:
                if kill_ms - LATE_MS_MAX <= due_ms <= end_ms:
                    begin_ms = max(begin_ms, end_ms)
            found[due_ms] = at_ms - begin_ms
        return found


def now_ms() -> int:
    return int(time.time() * 1_000)


async def work(bootstrap: str, deliveries: Deliveries, *, task_status: Any) -> None:
    async with open_share_consumer(bootstrap, ShareConsumerConfig(group_id=GROUP)) as consumer:
        consumer.subscribe([TOPIC])
        found: ShareConsumer = consumer
        task_status.started(found)
        await consumer.work(deliveries.note, concurrency=16)


async def watch_load(deliveries: Deliveries, is_over: trio.Event) -> None:
    """Note how much longer than requested this process sleeps."""
    while not is_over.is_set():
        begin_ms = now_ms()
        await trio.sleep(0.1)
        if (stall_ms := now_ms() - begin_ms - 100) > 200:
            deliveries.stalls_ms[begin_ms] = stall_ms


async def kill_leaders(cluster: Any, deliveries: Deliveries) -> None:
    """Kill the leader in the middle of the run, or every two minutes of a long one."""
    kill_count = max(1, int(DURATION_S / KILL_INTERVAL_S))
    for _ in range(kill_count):
        await trio.sleep(DURATION_S / kill_count / 2)
        victim = await trio.to_thread.run_sync(cluster.leader_of_most, TOPIC)
        deliveries.kills_ms.append(now_ms())
        cluster.kill(victim)
        await trio.sleep(DURATION_S / kill_count / 4)
        await trio.to_thread.run_sync(cluster.start, victim)
        await trio.to_thread.run_sync(cluster.wait_healthy)


async def drive(cluster: Any, deliveries: Deliveries) -> set[int]:
    """Delay records of one partition, kill its leader, and return all due times."""
    async with open_admin(cluster.bootstrap) as admin:
        configs = {"ottla.share.delay.ms": "0"}
        await admin.create_topic(TOPIC, partition_count=1, replication_factor=3, configs=configs)
        group = ConfigResource(ConfigKind.GROUP, GROUP)
        await admin.alter_configs(group, {"share.auto.offset.reset": "earliest"})
    begin_ms = now_ms() + int(FIRST_DUE_S * 1_000)
    step_ms = 1_000 // RECORDS_PER_S
    dues = [begin_ms + step_ms * each for each in range(int(DURATION_S) * RECORDS_PER_S)]
    shuffled = random.Random(37).sample(dues, len(dues))
    is_over = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch_load, deliveries, is_over)
        workers: list[ShareConsumer] = [
            await nursery.start(
                lambda task_status: work(cluster.bootstrap, deliveries, task_status=task_status)
            )
            for _ in range(2)
        ]
        async with open_producer(cluster.bootstrap) as producer:
            for due_ms in shuffled:
                text = b"%d" % due_ms
                await producer.send(TOPIC, text, headers=[("ottla.due.ms", text)])
        await kill_leaders(cluster, deliveries)
        with trio.move_on_after(FIRST_DUE_S + DURATION_S + OUTAGE_MS_MAX / 1_000):
            while len(deliveries.at_ms) < len(dues):
                await trio.sleep(0.1)
        for worker in workers:
            worker.stop()
        is_over.set()
    return set(dues)


def test_delays_are_accurate_to_a_second_while_leaders_are_killed(
    plan_cluster: Callable[..., Any],
) -> None:
    cluster = plan_cluster(
        brokers=3,
        broker_heartbeat_interval_ms="200",
        broker_session_timeout_ms="2000",
        offsets_topic_num_partitions="1",
        share_coordinator_state_topic_num_partitions="1",
    )
    cluster.start()
    deliveries = Deliveries()
    dues = trio.run(drive, cluster, deliveries)
    assert set(deliveries.at_ms) == dues, "no record is lost"
    early = {due_ms: at_ms for due_ms, at_ms in deliveries.at_ms.items() if at_ms < due_ms}
    assert early == {}, "no record is delivered before its time"
    assert all(end_ms - kill_ms < OUTAGE_MS_MAX for kill_ms, end_ms in deliveries.outages())
    late = deliveries.late_ms()
    worst = sorted(late.items(), key=lambda one: -one[1])[:5]
    assert worst[0][1] <= LATE_MS_MAX, f"{worst}; stalls of this process {deliveries.stalls_ms}"
