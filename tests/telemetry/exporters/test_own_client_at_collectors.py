"""Pushes of our own producer reach collectors through a whole broker, the last one included."""

from collections.abc import Sequence
from typing import Any

import trio

from ottla.broker.broker_driver import Broker
from ottla.client import ConfigKind, ConfigResource, ProducerConfig, open_admin, open_producer
from ottla.client.testing import open_test_cluster
from ottla.model.ids import NodeId

TIMEOUT_S = 90
RECORDS = 250
SENT = "org.apache.kafka.producer.record.send.total"


async def test_deltas_at_collectors_add_up_to_what_was_sent(collectors: Sequence[Any]) -> None:
    settings = {
        "telemetry.otlp.endpoint": ",".join(str(one.endpoint()) for one in collectors),
        "metrics.otlp.interval.ms": "0",  # only what clients push
    }
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster:
            broker = cluster.brokers[NodeId(1)]
            assert isinstance(broker, Broker)
            async with open_admin(cluster.bootstrap) as admin:
                await admin.alter_configs(
                    ConfigResource(ConfigKind.CLIENT_METRICS, "all"),
                    {"metrics": "org.apache.kafka.producer.record.", "interval.ms": "200"},
                )
            config = ProducerConfig(client_id="ours")
            async with open_producer(cluster.bootstrap, config) as producer:
                instances = broker.telemetry.instances
                for sent in range(RECORDS):
                    await producer.send("t", b"x")
                    if not sent % 50:
                        await producer.flush()
                while not any(one.export_count > 1 for one in instances):
                    await trio.sleep(0.02)
                await producer.send("t", b"behind the last push but one")
            while len(instances):
                await trio.sleep(0.02)
            pushed = broker.telemetry.ingest.counts()["pushes"]
            while any(one.counts()["sent"] < pushed for one in broker.telemetry.exporters):
                await trio.sleep(0.02)
    for one in collectors:
        sent_points = [point for point in one.points() if point.name == SENT]
        assert len(sent_points) >= 3
        assert sum(point.value for point in sent_points) == RECORDS + 1
