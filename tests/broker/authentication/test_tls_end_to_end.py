"""Three brokers with TLS on all connections, among themselves and with unmodified clients."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiokafka
import confluent_kafka
import kafka
import pytest
import trio
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import AdminClient

from ottla.client import (
    ClientSecurity,
    ConnectionLostError,
    ConsumerConfig,
    ProducerConfig,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.node.network.tls import certificates_driver
from ottla.node.network.tls.served_tls_driver import ServedTls
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

TIMEOUT_S = 60
RECORD_COUNT = 200
OUT, KNOWN, LOGIN = "OUT", "KNOWN", "LOGIN"
"""Listeners: without authentication, with client certificates, with logins."""

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, kw_only=True)
class TlsCluster:
    """The cluster, and the certificates of its clients."""

    cluster: InProcessCluster
    ca: str
    server_file: Path
    own_file: str
    """The certificate and key of a client named Al, of the unit staff."""
    stranger_file: str
    """Those of a client of another CA."""
    foreign_ca: str

    def bootstrap(self, listener: str) -> str:
        """Return where a listener is reached."""
        found = [broker.addresses[listener] for broker in self.cluster.brokers.values()]
        return ",".join(f"{host}:{port}" for host, port in found)

    def tls(self, node: int, listener: str) -> ServedTls:
        """Return the TLS state of a broker's listener."""
        server: Any = self.cluster.brokers[NodeId(node)].server
        (found,) = [one for _, one in server._server_sockets.values() if one.name == listener]
        assert isinstance(found.tls, ServedTls)
        return found.tls


@pytest.fixture
async def encrypted(
    authority: "CertificateAuthority", new_authority: Callable[[str], "CertificateAuthority"]
) -> AsyncIterator[TlsCluster]:
    """Three brokers that reach each other by certificates alone."""
    server_file = authority.issue(common_name="broker")
    foreign = new_authority("foreign")
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,IN://{HOST}:0,{OUT}://{HOST}:0,{KNOWN}://{HOST}:0,"
        f"{LOGIN}://{HOST}:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,IN:SSL,{OUT}:SSL,{KNOWN}:SSL,"
        f"{LOGIN}:SASL_SSL",
        "inter.broker.listener.name": "IN",
        "ssl.keystore.location": str(server_file),
        "ssl.truststore.location": str(authority.file),
        "listener.name.in.ssl.client.auth": "required",
        "listener.name.known.ssl.client.auth": "required",
        "listener.name.known.ssl.principal.mapping.rules": "RULE:CN=([^,]*),OU=staff,.*/$1/L",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_al="plain";',
    }
    async with open_in_process_cluster(broker_count=3, broker_settings=settings) as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.set_password("al", "SCRAM-SHA-512", "large")
            await admin.create_topic("t", partition_count=3, replication_factor=3)
        with trio.fail_after(TIMEOUT_S):
            while not all(map(_knows_al, cluster.brokers.values())):
                await trio.sleep(0.05)
        yield TlsCluster(
            cluster=cluster,
            ca=str(authority.file),
            server_file=server_file,
            own_file=str(authority.issue("client", common_name="Al", unit="staff")),
            stranger_file=str(foreign.issue("client", common_name="Al", unit="staff")),
            foreign_ca=str(foreign.file),
        )


def _knows_al(broker: Any) -> bool:
    return any("al" in found for found in broker.member.image.scram_credentials.values())


# ---- clients that are not ours


def confluent_settings(encrypted: TlsCluster, listener: str, **more: str) -> dict[str, Any]:
    settings = {
        "bootstrap.servers": encrypted.bootstrap(listener),
        "security.protocol": "SASL_SSL" if listener == LOGIN else "SSL",
        "ssl.ca.location": encrypted.ca,
    }
    if listener == KNOWN:
        settings |= {
            "ssl.certificate.location": encrypted.own_file,
            "ssl.key.location": encrypted.own_file,
        }
    return settings | {key.replace("_", "."): value for key, value in more.items()}


def login(mechanism: str) -> dict[str, str]:
    password = {"PLAIN": "plain", "SCRAM-SHA-512": "large"}[mechanism]
    return {"sasl_mechanism": mechanism, "sasl_username": "al", "sasl_password": password}


def confluent_round(settings: dict[str, Any], value: bytes) -> None:
    """Produce with acks=all and consume with librdkafka."""
    producer = confluent_kafka.Producer(settings)
    for number in range(RECORD_COUNT):
        producer.produce("t", value + b"-%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": value.decode()})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: set[bytes | None] = set()
    while value + b"-%d" % (RECORD_COUNT - 1) not in found:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        found.add(message.value())
    consumer.close()
    assert {value + b"-%d" % number for number in range(RECORD_COUNT)} <= found


def kafka_python_round(encrypted: TlsCluster, listener: str, mechanism: str | None) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": encrypted.bootstrap(listener).split(","),
        "security_protocol": "SASL_SSL" if listener == LOGIN else "SSL",
        "ssl_cafile": encrypted.ca,
    }
    if listener == KNOWN:
        settings |= {"ssl_certfile": encrypted.own_file, "ssl_keyfile": encrypted.own_file}
    if mechanism is not None:
        values = login(mechanism)
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": values["sasl_username"],
            "sasl_plain_password": values["sasl_password"],
        }
    producer = kafka.KafkaProducer(**settings, acks="all")
    for number in range(RECORD_COUNT):
        last = producer.send("t", b"%d" % number, partition=1)
    last.get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=TIMEOUT_S * 1_000)
    consumer.assign([kafka.TopicPartition("t", 1)])
    consumer.seek(kafka.TopicPartition("t", 1), last.value.offset)
    assert next(consumer).value == b"%d" % (RECORD_COUNT - 1)
    consumer.close()


async def aiokafka_round(encrypted: TlsCluster, listener: str, mechanism: str | None) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": encrypted.bootstrap(listener),
        "security_protocol": "SASL_SSL" if listener == LOGIN else "SSL",
        "ssl_context": create_ssl_context(
            cafile=encrypted.ca,
            certfile=encrypted.own_file if listener == KNOWN else None,
            keyfile=encrypted.own_file if listener == KNOWN else None,
        ),
    }
    if mechanism is not None:
        values = login(mechanism)
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": values["sasl_username"],
            "sasl_plain_password": values["sasl_password"],
        }
    async with aiokafka.AIOKafkaProducer(**settings, acks="all") as producer:
        await producer.send_and_wait("t", b"from aiokafka", partition=2)
    consumer = aiokafka.AIOKafkaConsumer(**settings)
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition("t", 2)])
    await consumer.seek_to_beginning()
    assert (await consumer.getone()).value == b"from aiokafka"
    await consumer.stop()


CASES = ((OUT, None), (KNOWN, None), (LOGIN, "PLAIN"), (LOGIN, "SCRAM-SHA-512"))


async def test_clients_that_are_not_ours_speak_tls(encrypted: TlsCluster) -> None:
    with trio.fail_after(3 * TIMEOUT_S):
        for number, (listener, mechanism) in enumerate(CASES):
            more = {} if mechanism is None else login(mechanism)
            settings = confluent_settings(encrypted, listener, **more)
            await trio.to_thread.run_sync(confluent_round, settings, b"c%d" % number)
            await trio.to_thread.run_sync(kafka_python_round, encrypted, listener, mechanism)
            await trio.to_thread.run_sync(
                lambda *case: asyncio.run(aiokafka_round(*case)), encrypted, listener, mechanism
            )
    for broker in encrypted.cluster.brokers.values():
        # acks=all: the others have shown their certificates here and followed.
        for partition in broker.table:
            if partition.topic == "t":
                assert partition.isr == {NodeId(1), NodeId(2), NodeId(3)}
        assert not broker.errors.counts


def confluent_complaint(settings: dict[str, Any]) -> str:
    """Return librdkafka's error of settings that it refuses before it connects."""
    found: list[str] = []
    admin = AdminClient({**settings, "error_cb": lambda error: found.append(error.str())})
    deadline = time.monotonic() + TIMEOUT_S
    while not any("SSL" in one or "ssl" in one for one in found):
        assert time.monotonic() < deadline, found
        admin.poll(0.2)
    return "\n".join(found)


async def test_a_refused_handshake_has_an_alert_with_its_reason_and_disturbs_no_other_client(
    encrypted: TlsCluster,
) -> None:
    wrong = {
        "certificate verify failed": confluent_settings(
            encrypted, OUT, ssl_ca_location=encrypted.foreign_ca
        ),
        "certificate required": confluent_settings(
            encrypted, KNOWN, ssl_certificate_location="", ssl_key_location=""
        ),
        "unknown ca": confluent_settings(
            encrypted,
            KNOWN,
            ssl_certificate_location=encrypted.stranger_file,
            ssl_key_location=encrypted.stranger_file,
        ),
    }
    with trio.fail_after(3 * TIMEOUT_S):
        async with open_producer(
            encrypted.bootstrap(OUT),
            ProducerConfig(security_protocol="SSL", ssl_truststore_location=encrypted.ca),
        ) as other:
            await (await other.send("t", b"before", partition=0))
            for words, settings in wrong.items():
                texts = {key: text for key, text in settings.items() if text}
                said = await trio.to_thread.run_sync(confluent_complaint, texts)
                assert words in said, said
                await (await other.send("t", words.encode(), partition=0))
    for broker in encrypted.cluster.brokers.values():
        assert not broker.errors.counts


# ---- our own client


async def complaint(encrypted: TlsCluster, listener: str, **settings: str) -> str:
    """Return why our own client cannot connect."""
    values: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": encrypted.ca,
        **settings,
    }
    host, port = encrypted.cluster.brokers[NodeId(1)].addresses[listener]
    return await lost(f"{host}:{port}", ClientSecurity(**values))


async def lost(bootstrap: str, security: ClientSecurity | None = None) -> str:
    """Return why our own client cannot connect; on a busy machine, a second is not enough for the
    first failure."""
    for timeout_s in (1, 10, 60):
        with pytest.raises(ConnectionLostError) as caught:
            async with open_admin(bootstrap, security=security, timeout_s=timeout_s) as admin:
                await admin.describe_topic("t")
        if str(caught.value) != "no request was sent":
            break
    return str(caught.value)


async def test_our_own_client_speaks_tls(encrypted: TlsCluster) -> None:
    own = Path(encrypted.own_file).read_text()
    for listener, more in (
        (OUT, {}),
        (KNOWN, {"ssl_keystore_location": encrypted.own_file}),
        (KNOWN, {"ssl_keystore_certificate_chain": own, "ssl_keystore_key": own}),
        (LOGIN, login("SCRAM-SHA-512")),
    ):
        values: dict[str, Any] = {
            "security_protocol": "SASL_SSL" if listener == LOGIN else "SSL",
            "ssl_truststore_location": encrypted.ca,
            **more,
        }
        bootstrap = encrypted.bootstrap(listener)
        with trio.fail_after(TIMEOUT_S):
            async with open_producer(bootstrap, ProducerConfig(**values)) as producer:
                sent = [
                    await producer.send("t", bytes([number]) * 50_000, partition=2)
                    for number in range(100)
                ]
                placed = [await one for one in sent]
            async with open_consumer(bootstrap, ConsumerConfig(**values)) as consumer:
                consumer.assign([TopicPartition("t", 2)])
                consumer.seek(TopicPartition("t", 2), placed[0].offset)
                found: list[bytes | None] = []
                while len(found) < 100:
                    found += [record.value for record in await consumer.poll()]
        assert found == [bytes([number]) * 50_000 for number in range(100)]


async def test_our_own_client_says_in_one_sentence_what_is_wrong(encrypted: TlsCluster) -> None:
    with trio.fail_after(2 * TIMEOUT_S):
        said = await complaint(encrypted, OUT, ssl_truststore_location=encrypted.foreign_ca)
        assert "its certificate is not of a CA that is trusted here; set ssl.truststore" in said
        said = await complaint(encrypted, KNOWN)
        assert "it asks for a client's certificate; set ssl.keystore.location to" in said
        said = await complaint(encrypted, KNOWN, ssl_keystore_location=encrypted.stranger_file)
        assert "it does not trust the CA of our certificate; show one" in said
        said = await complaint(encrypted, "PLAINTEXT")
        assert "it does not speak TLS there; security.protocol must be PLAINTEXT" in said
        host, port = encrypted.cluster.brokers[NodeId(1)].addresses[OUT]
        assert "or does it ask for TLS (security.protocol)" in await lost(f"{host}:{port}")


# ---- certificates that change


async def test_a_new_certificate_is_taken_up_without_a_connection_ending(
    encrypted: TlsCluster,
    authority: "CertificateAuthority",
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(certificates_driver, "LOOKS_AGAIN_AFTER_S", 0.05)
    caplog.set_level(logging.INFO, "ottla.node.network")

    def logged_lines() -> list[str]:
        return caplog.text.splitlines()

    tls = encrypted.tls(1, OUT)
    before = tls.context
    config = ProducerConfig(security_protocol="SSL", ssl_truststore_location=encrypted.ca)
    with trio.fail_after(2 * TIMEOUT_S):
        async with open_producer(encrypted.bootstrap(OUT), config) as producer:
            await (await producer.send("t", b"before", partition=0))
            count = sum(b.server.metrics["network.connections"] for b in brokers(encrypted))
            good = encrypted.server_file.read_bytes()
            encrypted.server_file.write_bytes(good[:200])
            await until(lambda: "has a new" in caplog.text or "cannot be used" in caplog.text)
            assert tls.context is before
            renewed = authority.issue(common_name="broker").read_bytes()
            encrypted.server_file.write_bytes(renewed)
            await until(lambda: all(one.context is not before for one in [tls]))
            await (await producer.send("t", b"after", partition=0))
            assert count == sum(b.server.metrics["network.connections"] for b in brokers(encrypted))
            # Another host's file is not taken up.
            now = tls.context
            caplog.clear()
            encrypted.server_file.write_bytes(authority.issue("elsewhere").read_bytes())
            # Each listener says so for itself, in any order.
            refused = "the new certificate of listener OUT cannot be used, the old one stays"
            await until(
                lambda: any(refused in line and "ssl.allow." in line for line in logged_lines())
            )
            assert tls.context is now
            await (await producer.send("t", b"at last", partition=0))


def brokers(encrypted: TlsCluster) -> list[Any]:
    return list(encrypted.cluster.brokers.values())


async def until(holds: Callable[[], bool]) -> None:
    with trio.fail_after(TIMEOUT_S):
        while not holds():
            await trio.sleep(0.02)


async def test_brokers_that_would_not_accept_each_other_do_not_start(
    authority: "CertificateAuthority", new_authority: Callable[[str], "CertificateAuthority"]
) -> None:
    settings = {
        "listeners": f"SSL://{HOST}:0",
        "ssl.keystore.location": str(authority.issue()),
        "ssl.truststore.location": str(new_authority("foreign").file),
    }
    with pytest.raises(BaseExceptionGroup) as caught:
        async with open_in_process_cluster(broker_settings=settings):
            pass
    assert caught.group_contains(ConfigError, match="other nodes of the same settings do not acce")


async def test_an_expired_certificate_is_warned_of_and_refused_by_clients(
    authority: "CertificateAuthority", caplog: pytest.LogCaptureFixture
) -> None:
    day = timedelta(days=1)
    expired = authority.issue(starts_in=-3 * day, ends_in=-day)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,SSL://{HOST}:0",
        "ssl.keystore.location": str(expired),
    }
    security = ClientSecurity(security_protocol="SSL", ssl_truststore_location=str(authority.file))
    async with open_in_process_cluster(broker_settings=settings) as cluster:
        (broker,) = cluster.brokers.values()
        host, port = broker.addresses["SSL"]
        assert "has expired; renew it on the broker" in await lost(f"{host}:{port}", security)
        assert await lost(f"localhost:{port}", security)
    assert "listener SSL: the own certificate" in caplog.text
    assert "has expired on" in caplog.text
