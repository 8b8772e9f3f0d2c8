"""Dead letters on real processes with librdkafka's share consumer, while a broker is killed: each
record that is rejected, or whose deliveries are used up, is in the topic of dead letters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import trio
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    AcknowledgeType,
    Consumer,
    KafkaException,
    Producer,
    ShareConsumer,
)

from ottla.client import ConfigKind, ConfigResource, open_admin

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

TOPIC, LETTERS, GROUP = "orders", "dlq.orders", "workers"
RECORD_COUNT, PARTITION_COUNT, LIMIT = 300, 3, 5
REJECTED, USED_UP = 7, 3
"""Last digits of the values that are rejected, and of those that are released each time."""
FIRST_MS = 1_700_000_000_000
WAIT_S = 120.0
POLL_S = 0.2
SETTINGS = {
    "share.auto.offset.reset": "earliest",
    "errors.deadletterqueue.topic.name": LETTERS,
    "errors.deadletterqueue.copy.record.enable": "true",
}


class Letter(NamedTuple):
    """Content of a record, and the headers of a dead letter that name origin and cause."""

    key: bytes
    value: bytes
    timestamp_ms: int
    headers: tuple[tuple[str, bytes], ...]
    origin: tuple[tuple[str, bytes], ...]


def content_of(value: int) -> Letter:
    """Return the record with a value."""
    return Letter(
        b"key-%d" % value,
        b"%d" % value,
        FIRST_MS + value,
        (("trace", b"%d" % value), ("trace", b"again")),
        (),
    )


def work(consumer: ShareConsumer) -> set[int]:
    """Poll once, and settle each record by the last digit of its value. Returns the accepted
    values whose acknowledgement is durable."""
    accepted = set()
    kinds = {REJECTED: AcknowledgeType.REJECT, USED_UP: AcknowledgeType.RELEASE}
    for message in consumer.poll(POLL_S):
        if message.error() is None:
            value = int(message.value())
            kind = kinds.get(value % 10, AcknowledgeType.ACCEPT)
            consumer.acknowledge(message, kind)
            if kind == AcknowledgeType.ACCEPT:
                accepted.add(value)
    try:
        outcome = consumer.commit_sync()
    except KafkaException:
        return set()
    return set() if any(outcome.values()) else accepted


def read_letters(consumer: Consumer) -> list[Letter]:
    """Return the letters that have arrived."""
    found = []
    for message in consumer.consume(RECORD_COUNT, POLL_S):
        if message.error() is None:
            kind, timestamp_ms = message.timestamp()
            assert kind == TIMESTAMP_CREATE_TIME
            headers = tuple(message.headers())
            own = tuple(one for one in headers if not one[0].startswith("__dlq."))
            found.append(
                Letter(message.key(), message.value(), timestamp_ms, own, headers[len(own) :])
            )
    return found


def test_no_dead_letter_is_lost_though_a_broker_is_killed(plan_cluster: Callable[..., Any]) -> None:
    cluster = plan_cluster(
        brokers=3,
        broker_heartbeat_interval_ms="200",
        broker_session_timeout_ms="2000",
        num_partitions="2",
        default_replication_factor="3",
        errors_deadletterqueue_auto_create_topics_enable="true",
        share_coordinator_state_topic_num_partitions="3",
        group_share_min_record_lock_duration_ms="1000",
        group_share_record_lock_duration_ms="2000",
    )
    cluster.start()

    async def prepare() -> None:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partition_count=PARTITION_COUNT, replication_factor=3)
            await admin.alter_configs(ConfigResource(ConfigKind.GROUP, GROUP), SETTINGS)

    trio.run(prepare)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for value in range(RECORD_COUNT):
        record = content_of(value)
        producer.produce(
            TOPIC,
            record.value,
            record.key,
            partition=value % PARTITION_COUNT,
            timestamp=record.timestamp_ms,
            headers=list(record.headers),
        )
    assert producer.flush(WAIT_S) == 0

    workers = [
        ShareConsumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
            }
        )
        for _ in range(2)
    ]
    for worker in workers:
        worker.subscribe([TOPIC])
    reader = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": 1_000,
        }
    )
    reader.subscribe([LETTERS])
    dead = {value for value in range(RECORD_COUNT) if value % 10 in (REJECTED, USED_UP)}
    accepted: set[int] = set()
    letters: dict[int, Letter] = {}
    is_killed = False
    while accepted | letters.keys() != set(range(RECORD_COUNT)):
        for worker in workers:
            accepted |= work(worker)
        for letter in read_letters(reader):
            letters[int(letter.value)] = letter
        if not is_killed and len(accepted) > RECORD_COUNT // 4:
            cluster.kill(cluster.named("broker")[-1])
            is_killed = True
    for worker in workers:
        worker.close()
    reader.close()
    assert is_killed
    assert dead <= letters.keys()
    assert {value: letter._replace(origin=()) for value, letter in letters.items()} == {
        value: content_of(value) for value in letters
    }
    for value in dead:
        origin = dict(letters[value].origin)
        count = int(origin.pop("__dlq.errors.delivery.count"))
        cause = origin.pop("__dlq.errors.message").decode()
        assert origin == {
            "__dlq.errors.topic": TOPIC.encode(),
            "__dlq.errors.partition": b"%d" % (value % PARTITION_COUNT),
            "__dlq.errors.offset": b"%d" % (value // PARTITION_COUNT),
            "__dlq.errors.group": GROUP.encode(),
        }
        if value % 10 == USED_UP:
            assert (count, cause) == (LIMIT, "Offset delivery count exceeded the threshold.")
        else:
            assert 1 <= count <= LIMIT
            assert cause == "Offset rejected by client."
