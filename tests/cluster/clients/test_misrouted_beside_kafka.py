"""Our client names the broker that it expects to Kafka 4.4, which refuses it if it is another one
(KIP-1242)."""

import os
from pathlib import Path

import pytest
import trio

from ottla.bench.kafka.kafka_server import CLUSTER_ID, open_kafka
from ottla.client import ConsumerConfig, open_admin, open_consumer, open_producer
from ottla.client.network.broker_versions import ExpectedNode
from ottla.client.network.connection import MisroutedConnectionError, open_connection
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.apis import METADATA

pytestmark = pytest.mark.cluster

ONE = NodeId(1)


async def is_accepted(address: tuple[str, int], expected: ExpectedNode) -> bool:
    """Return whether the broker at an address accepts a connection for the expected broker."""
    try:
        async with open_connection(*address, expected=expected) as connection:
            return connection.version_of(METADATA) > 0
    except MisroutedConnectionError:
        return False


def test_kafka_refuses_connections_for_other_brokers(tmp_path: Path) -> None:
    jars = os.environ.get("OTTLA_KAFKA_JARS")
    if jars is None:
        pytest.skip("LOUD: OTTLA_KAFKA_JARS is not set; Kafka's own broker was NOT asked here")
    settings = {"offsets.topic.replication.factor": "1", "offsets.topic.num.partitions": "1"}
    with open_kafka(Path(jars), tmp_path, settings) as kafka:
        host, _, port = kafka.bootstrap.partition(":")
        address = (host, int(port))

        async def body() -> None:
            assert await is_accepted(address, ExpectedNode(CLUSTER_ID, ONE))
            assert not await is_accepted(address, ExpectedNode("other", ONE))
            assert not await is_accepted(address, ExpectedNode(CLUSTER_ID, NodeId(2)))
            # Each client here names the broker on its later connections.
            async with open_admin(kafka.bootstrap) as admin:
                await admin.create_topic("t", partition_count=1)
            async with open_producer(kafka.bootstrap) as producer:
                await (await producer.send("t", b"1"))
            config = ConsumerConfig(group_id="g", auto_offset_reset="earliest")
            async with open_consumer(kafka.bootstrap, config) as consumer:
                consumer.assign([TopicPartition("t", 0)])
                with trio.fail_after(60):
                    assert [one.value for one in await consumer.poll(60)] == [b"1"]

        trio.run(body)
