"""Share groups on real processes with librdkafka's share consumer, while a broker is killed."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
from confluent_kafka import AcknowledgeType, KafkaException, Producer, ShareConsumer

from ottla.client import ConfigKind, ConfigResource, open_admin

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOPIC, GROUP = "orders", "workers"
RECORD_COUNT = 600
WAIT_S = 120.0
POLL_S = 0.5


class Worker:
    """Member of the group that settles each record: it accepts most, releases a tenth of the first
    deliveries, and rejects a few."""

    def __init__(self, bootstrap: str) -> None:
        self.consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
            }
        )
        self.consumer.subscribe([TOPIC])

    def work(self, seen: dict[int, int], settled: set[int]) -> None:
        """Poll once. Counts deliveries in `seen`, and adds settled records to `settled` once their
        acknowledgement is durable."""
        kinds: dict[int, Any] = {}
        for message in self.consumer.poll(POLL_S):
            if message.error() is not None:
                continue
            value = int(message.value())
            seen[value] = seen.get(value, 0) + 1
            kind = AcknowledgeType.ACCEPT
            if value % 10 == 3 and seen[value] == 1:
                kind = AcknowledgeType.RELEASE
            elif value % 50 == 7:
                kind = AcknowledgeType.REJECT
            self.consumer.acknowledge(message, kind)
            kinds[value] = kind
        if not kinds:
            return
        try:
            outcome = self.consumer.commit_sync()
        except KafkaException:
            return
        if not any(outcome.values()):
            settled.update(
                value for value, kind in kinds.items() if kind != AcknowledgeType.RELEASE
            )


def test_every_record_is_settled_though_a_broker_is_killed(
    plan_cluster: Callable[..., Any],
) -> None:
    cluster = plan_cluster(
        brokers=3,
        broker_heartbeat_interval_ms="200",
        broker_session_timeout_ms="2000",
        offsets_topic_num_partitions="1",
        share_coordinator_state_topic_num_partitions="3",
        group_share_min_record_lock_duration_ms="1000",
        group_share_record_lock_duration_ms="2000",
    )
    cluster.start()

    async def prepare() -> None:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partition_count=3, replication_factor=3)
            await admin.alter_configs(
                ConfigResource(ConfigKind.GROUP, GROUP), {"share.auto.offset.reset": "earliest"}
            )

    trio.run(prepare)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in range(RECORD_COUNT):
        producer.produce(TOPIC, str(value).encode(), partition=value % 3)
    assert producer.flush(WAIT_S) == 0

    workers = [Worker(cluster.bootstrap) for _ in range(2)]
    seen: dict[int, int] = {}
    settled: set[int] = set()
    is_killed = False
    while len(settled) < RECORD_COUNT:
        for worker in workers:
            worker.work(seen, settled)
        if not is_killed and len(settled) > RECORD_COUNT // 4:
            cluster.kill(cluster.named("broker")[-1])
            is_killed = True
    for worker in workers:
        worker.consumer.close()
    assert is_killed
    assert settled == set(range(RECORD_COUNT))
    assert all(seen[value] >= 2 for value in range(RECORD_COUNT) if value % 10 == 3)
