"""Two of three controllers are down: records are still served, and requests for the quorum fail
with that reason."""

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

TIMEOUT_S = 3.0
RECORDS = 1_000


def refusal_of_a_topic(admin: AdminClient) -> KafkaError:
    """Request a new topic, which is impossible without a quorum; return the broker's error."""
    asked = admin.create_topics(
        [NewTopic("late", 1)], operation_timeout=TIMEOUT_S, request_timeout=60
    )
    with pytest.raises(KafkaException) as refused:
        asked["late"].result(timeout=60)
    error: KafkaError = refused.value.args[0]
    return error


def test_records_flow_and_a_topic_is_refused_in_time_while_two_of_three_controllers_are_gone(
    plan_cluster: Any,
) -> None:
    cluster = plan_cluster(controllers=3, brokers=3)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic("t", 3, replication_factor=3)]).values():
        future.result(timeout=60)
    cluster.wait_healthy()
    victims = [cluster.active_controller()]
    victims.append(next(name for name in cluster.named("controller") if name not in victims))
    cluster.kill(*victims)

    refusal = refusal_of_a_topic(admin)
    for _ in cluster.named("broker"):
        # A broker that has not yet heard of the death asks the dead one, and cannot know.
        if refusal.name() == "UNKNOWN":
            assert "whether it was carried out is not known" in refusal.str()
            refusal = refusal_of_a_topic(admin)
    assert refusal.name() == "REQUEST_TIMED_OUT"
    assert "controller" in refusal.str()
    said = cluster.ottla("topic", "create", "later", "--timeout", "2", code=None)
    assert "controller" in said.stderr
    assert len(said.stderr.strip().splitlines()) == 1

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": False})
    refusals: list[str] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            refusals.append(str(error))

    for number in range(RECORDS):
        producer.produce("t", b"%d" % number, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert refusals == []
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("t", partition, 0) for partition in range(3)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < RECORDS and time.monotonic() < deadline:
        found += [message.value() for message in consumer.consume(RECORDS, timeout=0.5)]
    consumer.close()
    assert sorted(found) == sorted(b"%d" % number for number in range(RECORDS))

    cluster.start(*victims)
    cluster.wait_healthy()
    admin.create_topics([NewTopic("later", 1)])["later"].result(timeout=60)
