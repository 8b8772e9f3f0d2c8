"""The cluster of synchronous tests, with a client that Ottla did not write."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from ottla.testing import SyncCluster, cluster

FLUSH_TIMEOUT_S = 60


@pytest.fixture(scope="module")
def shared() -> Iterator[SyncCluster]:
    with cluster() as running:
        yield running


def produce(running: SyncCluster, topic: str, value: bytes) -> int | None:
    """Produce one record; return its offset, or None if it was not delivered."""
    offsets: list[int | None] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        offsets.append(None if error else message.offset())

    producer = Producer({**running.client_settings, "message.timeout.ms": 30_000})
    producer.produce(topic, value, on_delivery=on_delivery)
    assert producer.flush(FLUSH_TIMEOUT_S) == 0
    return offsets[0]


def consume_one(running: SyncCluster, topic: str, group: str) -> bytes | None:
    """Return the value of the first record that a group has not committed; commit it."""
    consumer = Consumer(
        {**running.client_settings, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        message = consumer.poll(FLUSH_TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        consumer.commit(asynchronous=False)
        value: bytes | None = message.value()
        return value
    finally:
        consumer.close()


def test_a_client_produces_and_consumes(shared: SyncCluster) -> None:
    assert produce(shared, "orders", b"one") == 0
    assert consume_one(shared, "orders", "billing") == b"one"


def test_a_reset_deletes_records_and_committed_offsets(shared: SyncCluster) -> None:
    for value in (b"before", b"after"):
        shared.reset()
        assert produce(shared, "orders", value) == 0
        assert consume_one(shared, "orders", "billing") == value


def test_a_reset_deletes_settings_users_and_acls(shared: SyncCluster) -> None:
    admin = AdminClient(shared.client_settings)
    entry = ConfigEntry("message.max.bytes", "9999", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    user = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
    )
    changes = admin.incremental_alter_configs([resource])
    for future in (*changes.values(), *admin.alter_user_scram_credentials([user]).values()):
        future.result(FLUSH_TIMEOUT_S)

    shared.reset()

    assert admin.describe_user_scram_credentials().result(FLUSH_TIMEOUT_S) == {}
    described = admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")])
    (configs,) = (future.result(FLUSH_TIMEOUT_S) for future in described.values())
    assert configs["message.max.bytes"].value != "9999"


def test_a_reset_ends_faults_and_starts_stopped_brokers(shared: SyncCluster) -> None:
    shared.lose_answers("Produce", count=1_000)
    shared.slow(1, 60)
    shared.stop(1)

    shared.reset()

    assert produce(shared, "orders", b"one") == 0


def test_a_lost_response_of_produce_makes_no_duplicate(shared: SyncCluster) -> None:
    shared.reset()
    lost = shared.lose_answers("Produce")
    producer = Producer({**shared.client_settings, "enable.idempotence": True})
    producer.produce("orders", b"one")
    assert producer.flush(FLUSH_TIMEOUT_S) == 0

    assert lost.lost == 1
    assert produce(shared, "orders", b"two") == 1


def test_a_paused_broker_serves_after_the_block(shared: SyncCluster) -> None:
    shared.reset()
    offsets: list[int | None] = []
    thread = threading.Thread(target=lambda: offsets.append(produce(shared, "orders", b"one")))
    with shared.paused(1), shared.refusing(1):
        thread.start()
    thread.join(FLUSH_TIMEOUT_S)

    assert offsets == [0]


def test_an_unknown_broker_is_refused_with_the_known_ones(shared: SyncCluster) -> None:
    with pytest.raises(ValueError, match="there is no broker 7; there are 1"):
        shared.stop(7)


def test_three_brokers_replicate(tmp_path: Path) -> None:
    with cluster(broker_count=3, directory=tmp_path) as running:
        assert produce(running, "orders", b"one") == 0
        running.stop(2)
        assert produce(running, "orders", b"two") is not None
    with cluster(broker_count=3, directory=tmp_path) as running:
        assert consume_one(running, "orders", "billing") == b"one"


def test_a_secure_cluster_requires_a_login(tmp_path: Path) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    for _ in range(2):  # the second one continues with the files and users of the first
        with cluster(is_secure=True, directory=tmp_path) as running:
            assert produce(running, "orders", b"one") is not None
            admin = AdminClient(running.client_settings)
            for future in admin.create_acls([binding]).values():
                future.result(FLUSH_TIMEOUT_S)
            running.reset()
            anonymous = AdminClient({"bootstrap.servers": running.bootstrap})
            with pytest.raises(KafkaException, match=r"_TRANSPORT|_TIMED_OUT"):
                anonymous.list_topics(timeout=1)


def test_the_error_of_a_start_is_raised() -> None:
    with (
        pytest.raises(Exception, match=r"num\.partitions"),
        cluster(settings={"num.partitions": "none"}),
    ):
        pass


def test_a_closed_cluster_is_named() -> None:
    with cluster() as running:
        pass

    with pytest.raises(RuntimeError, match="the cluster is not running; was it closed"):
        running.reset()


async def test_a_trio_test_is_refused_with_the_trio_form(shared: SyncCluster) -> None:
    await trio.lowlevel.checkpoint()
    with pytest.raises(RuntimeError, match=r"ottla\.client\.testing"):
        shared.reset()
