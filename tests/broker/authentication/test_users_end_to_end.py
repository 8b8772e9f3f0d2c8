"""Two brokers that authenticate each other and their clients by SCRAM, with unmodified clients."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import confluent_kafka
import kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient

from ottla.broker.broker_driver import Broker
from ottla.client import (
    ClientSecurity,
    ConnectionLostError,
    ConsumerConfig,
    ProducerConfig,
    RefusedError,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.admin_parts.admin_quotas import QuotaChange
from ottla.client.network.connection import open_connection
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.settings.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse

USERS = "USERS"
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:0,{USERS}://{HOST}:0",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT",
    "inter.broker.listener.name": USERS,
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.users.plain.sasl.jaas.config": f"{PLAIN_MODULE} required "
    'user_al="plain" user_ben="plain";',
    "listener.name.users.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required "
    'username="broker" password="between";',
}
PASSWORDS = {"PLAIN": "plain", "SCRAM-SHA-256": "small", "SCRAM-SHA-512": "large"}
TIMEOUT_S = 60

pytestmark = pytest.mark.timeout(300)


class Users:
    """The cluster, and its SCRAM users."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        addresses = [broker.addresses[USERS] for broker in cluster.brokers.values()]
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(TIMEOUT_S):
        while not holds():
            await trio.sleep(0.05)


@pytest.fixture
async def users() -> AsyncIterator[Users]:
    """Two brokers; al may log in by every mechanism, and topics are replicated by SCRAM."""
    async with open_in_process_cluster(broker_count=2, broker_settings=SETTINGS) as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.set_password("broker", "SCRAM-SHA-512", "between")
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                await admin.set_password("al", mechanism, PASSWORDS[mechanism])
            await admin.create_topic("t", partition_count=2, replication_factor=2)
        await until(lambda: all(map(_knows_users, cluster.brokers.values())))
        yield Users(cluster)


def _knows_users(broker: Broker) -> bool:
    credentials = broker.member.image.scram_credentials
    known = {number: sorted(found) for number, found in credentials.items()}
    return known == {1: ["al"], 2: ["al", "broker"]}


def security(mechanism: str, password: str) -> ClientSecurity:
    return ClientSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="al",
        sasl_password=password,
    )


def confluent_settings(bootstrap: str, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "al",
        "sasl.password": password,
    }


def confluent_round(bootstrap: str, mechanism: str) -> list[bytes | None]:
    """Produce with acks=all and consume with librdkafka."""
    settings = confluent_settings(bootstrap, mechanism, PASSWORDS[mechanism])
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", mechanism.encode(), partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": mechanism})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes | None] = []
    while mechanism.encode() not in found:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return found


def confluent_failure(bootstrap: str, mechanism: str) -> set[str]:
    """Return which errors librdkafka reports with a wrong password."""
    found: set[str] = set()
    settings = confluent_settings(bootstrap, mechanism, "wrong")
    admin = AdminClient({**settings, "error_cb": lambda error: found.add(error.name())})
    while "_AUTHENTICATION" not in found:
        admin.poll(0.2)
    return found


def kafka_python_settings(bootstrap: str, mechanism: str, password: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap.split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "al",
        "sasl_plain_password": password,
    }


def kafka_python_round(bootstrap: str, mechanism: str) -> None:
    settings = kafka_python_settings(bootstrap, mechanism, PASSWORDS[mechanism])
    producer = kafka.KafkaProducer(**settings, acks="all")
    producer.send("t", mechanism.encode(), partition=1).get(TIMEOUT_S)
    producer.close()


def samples_of(broker: Broker) -> dict[str, Any]:
    """Return the samples of the listener USERS at /metrics."""
    return {
        family.name: sample[1]
        for family in broker.registry.collect()
        if family is not None
        for sample in family.samples
        if sample is not None and sample[0] == (USERS,)
    }


async def test_clients_that_are_not_ours_log_in(users: Users) -> None:
    with trio.fail_after(2 * TIMEOUT_S):
        for mechanism in PASSWORDS:
            await trio.to_thread.run_sync(confluent_round, users.bootstrap, mechanism)
            await trio.to_thread.run_sync(kafka_python_round, users.bootstrap, mechanism)
            await trio.to_thread.run_sync(confluent_failure, users.bootstrap, mechanism)
    shown = [samples_of(broker) for broker in users.cluster.brokers.values()]
    prefix = "kafka_server_socket_server_metrics"
    assert all(one[f"{prefix}_successful_authentication_total"] >= 3 for one in shown)
    assert sum(one[f"{prefix}_failed_authentication_total"] for one in shown) >= 3
    for broker in users.cluster.brokers.values():
        # acks=all: the other broker has logged in here and followed.
        for partition in broker.table:
            if partition.topic == "t":
                assert partition.isr == {NodeId(1), NodeId(2)}


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_our_own_clients_log_in(users: Users, mechanism: str) -> None:
    login: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": "al",
        "sasl_password": PASSWORDS[mechanism],
    }
    with trio.fail_after(TIMEOUT_S):
        async with open_producer(users.bootstrap, ProducerConfig(**login)) as producer:
            await (await producer.send("t", b"ours", partition=0))
        async with open_consumer(users.bootstrap, ConsumerConfig(**login)) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            async for record in consumer:
                assert record.value == b"ours"
                break
        member = ConsumerConfig(**login, group_id="g", auto_offset_reset="earliest")
        async with open_consumer(users.bootstrap, member) as consumer:
            consumer.subscribe(["t"])
            async for record in consumer:
                assert record.value == b"ours"
                break
        async with open_admin(
            users.bootstrap, security=security(mechanism, PASSWORDS[mechanism])
        ) as admin:
            assert sorted(await admin.describe_users()) == ["al", "broker"]


@pytest.mark.parametrize("mechanism", PASSWORDS)
async def test_a_wrong_password_is_refused_by_its_code(users: Users, mechanism: str) -> None:
    async def ask(user: str, password: str) -> RefusedError:
        who = ClientSecurity(
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        )
        with pytest.raises(RefusedError) as caught:
            async with open_admin(users.bootstrap, security=who) as admin:
                await admin.describe_users()
        return caught.value

    with trio.fail_after(TIMEOUT_S):
        wrong, unknown = await ask("al", "wrong"), await ask("nosuch", "wrong")
    assert wrong.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (wrong.code, wrong.message) == (unknown.code, unknown.message)


async def test_who_does_not_log_in_is_not_served(users: Users) -> None:
    host, _, port = users.bootstrap.partition(",")[0].rpartition(":")
    with trio.fail_after(TIMEOUT_S):
        async with open_connection(host, int(port)) as connection:
            with pytest.raises(ConnectionLostError):
                await connection.request(MetadataRequest(topics=None), MetadataResponse)


def produce_throttled(bootstrap: str, user: str, count: int) -> list[int]:
    """Produce records of 10 kB, one by one; return the throttle times of the responses."""
    throttles: list[int] = []
    settings = confluent_settings(bootstrap, "PLAIN", "plain")
    producer = confluent_kafka.Producer(
        {
            **settings,
            "sasl.username": user,
            "linger.ms": 0,
            "throttle_cb": lambda event: throttles.append(round(event.throttle_time * 1_000)),
        }
    )
    for _ in range(count):
        producer.produce("t", bytes(10_000), partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    return [each for each in throttles if each]


async def test_a_quota_of_a_user_holds_for_who_logged_in(users: Users) -> None:
    owner = (QuotaEntity("user", False, "al"),)
    with trio.fail_after(2 * TIMEOUT_S):
        async with open_admin(users.cluster.bootstrap) as admin:
            change = QuotaChange(owner, {"producer_byte_rate": 10_000.0})
            assert await admin.alter_quotas([change]) == [None]
        await until(
            lambda: all(
                owner in broker.member.image.client_quotas
                for broker in users.cluster.brokers.values()
            )
        )
        assert await trio.to_thread.run_sync(produce_throttled, users.bootstrap, "ben", 12) == []
        assert await trio.to_thread.run_sync(produce_throttled, users.bootstrap, "al", 12) != []
