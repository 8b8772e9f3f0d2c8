"""Dead letters beside Kafka: one program at both, with the differences that docs/reference names.

Kafka's part runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka 4.4.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer

import ottla.testing
from ottla.bench.kafka.kafka_server import open_kafka
from ottla.client import ConfigKind, ConfigResource, open_admin

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

JARS = "OTTLA_KAFKA_JARS"
SETTINGS = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
FIRST_MS, LIMIT = 1_700_000_000_000, 2
TIMEOUT_S = 60.0
OTTLA, KAFKA = "ottla", "kafka"


@pytest.fixture(scope="module", params=[OTTLA, KAFKA])
def system(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """Name and bootstrap servers of a system."""
    if request.param == OTTLA:
        with ottla.testing.cluster(settings=SETTINGS) as cluster:
            yield OTTLA, cluster.bootstrap
        return
    given = os.environ.get(JARS)
    if not given:
        pytest.skip(f"LOUD: {JARS} is not set; dead letters were NOT compared with those of Kafka")
    with open_kafka(Path(given), tmp_path_factory.mktemp("kafka"), SETTINGS) as server:
        yield KAFKA, server.bootstrap


async def prepare(bootstrap: str, topic: str, group: str, texts: dict[str, str]) -> None:
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(topic, partition_count=1, replication_factor=1)
        await admin.alter_configs(ConfigResource(ConfigKind.GROUP, group), texts)


async def settings_of(bootstrap: str, topic: str) -> dict[str, str | None]:
    """Return the settings that were given to a topic."""
    async with open_admin(bootstrap) as admin:
        found = await admin.describe_configs(ConfigResource(ConfigKind.TOPIC, topic))
    return {key: one.value for key, one in found.items() if one.source.name == "TOPIC"}


def settle(bootstrap: str, topic: str, group: str) -> None:
    """Accept the first record, reject the second, and release the third until it is used up."""
    worker = ShareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
        }
    )
    worker.subscribe([topic])
    kinds = {b"0": AcknowledgeType.ACCEPT, b"1": AcknowledgeType.REJECT}
    seen: list[bytes] = []
    while sorted(seen) != [b"0", b"1", *[b"2"] * LIMIT]:
        for message in worker.poll(0.5):
            assert message.error() is None
            seen.append(message.value())
            worker.acknowledge(message, kinds.get(message.value(), AcknowledgeType.RELEASE))
        worker.commit_sync()
    worker.close()


def letters_of(bootstrap: str, topic: str) -> list[Any]:
    """Return the two letters, in the order of their records."""
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    reader.subscribe([topic])
    found: list[Any] = []
    while len(found) < 2:
        found += [message for message in reader.consume(2, 0.5) if message.error() is None]
    reader.close()
    return sorted(found, key=lambda message: dict(message.headers())["__dlq.errors.offset"])


@pytest.mark.parametrize("is_copied", [True, False])
def test_letters_are_those_of_kafka_with_headers_and_timestamp_kept(
    system: tuple[str, str], is_copied: bool
) -> None:
    name, bootstrap = system
    topic = f"orders-{is_copied}"
    group, target = f"workers-{is_copied}", f"dlq.{topic}"
    texts = {
        "share.auto.offset.reset": "earliest",
        "share.delivery.count.limit": str(LIMIT),
        "errors.deadletterqueue.topic.name": target,
        "errors.deadletterqueue.copy.record.enable": str(is_copied).lower(),
    }
    trio.run(prepare, bootstrap, topic, group, texts)
    producer = Producer({"bootstrap.servers": bootstrap})
    for at in range(3):
        producer.produce(
            topic, b"%d" % at, b"key", timestamp=FIRST_MS + at, headers=[("trace", b"%d" % at)]
        )
    assert producer.flush(TIMEOUT_S) == 0
    settle(bootstrap, topic, group)

    letters = letters_of(bootstrap, target)

    keeps_all = is_copied and name == OTTLA
    for at, letter in zip((1, 2), letters, strict=True):
        assert (letter.key(), letter.value()) == (
            (b"key", b"%d" % at) if is_copied else (None,) * 2
        )
        own = [("trace", b"%d" % at)] if keeps_all else []
        rejected, used_up = "rejected by client.", "delivery count exceeded the threshold."
        assert letter.headers() == [
            *own,
            ("__dlq.errors.topic", topic.encode()),
            ("__dlq.errors.partition", b"0"),
            ("__dlq.errors.offset", b"%d" % at),
            ("__dlq.errors.group", group.encode()),
            ("__dlq.errors.delivery.count", b"%d" % at),
            ("__dlq.errors.message", f"Offset {rejected if at == 1 else used_up}".encode()),
        ]
        assert (letter.timestamp()[1] == FIRST_MS + at) == keeps_all
    assert trio.run(settings_of, bootstrap, target) == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }
