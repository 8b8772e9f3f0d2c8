"""Third-party clients with each way of authentication over TLS, and the ways that must fail.

Each client has to send a record and to read it. kcat is run where it is installed.
"""

import asyncio
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import aiokafka
import aiokafka.abc
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pytest
from aiokafka.helpers import create_ssl_context
from confluent_kafka.admin import (
    AclBindingFilter,
    ResourceType,
)

from tests.cluster.security.secured_listeners import (
    OUT,
    TIMEOUT_S,
    TOPIC,
    WAYS,
    SecuredCluster,
    Way,
    binding,
    librdkafka,
    open_secured,
    witness,
)

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SHORT_S = 10
"""Time for a client that must fail to report the reason."""
NO_FATAL_S = 1.5
"""The same for kafka-python, which retries after every error, and logs the reason."""


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory,
    authority: "CertificateAuthority",
    new_authority: Callable[[str], "CertificateAuthority"],
) -> Iterator[SecuredCluster]:
    """A controller and a broker with ACLs that listens in all ways."""
    with open_secured(tmp_path_factory.mktemp("matrix"), authority, new_authority) as found:
        yield found


# ---- one round of each client: raises, with its own words, what it reports


def confluent_round(way: Way, value: bytes, timeout_s: float) -> None:
    said: list[str] = []
    settings = {**librdkafka(way), "error_cb": lambda error: said.append(error.str())}
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": int(timeout_s * 1_000)})
    reported: list[Any] = []
    producer.produce(
        TOPIC, value, on_delivery=lambda error, message: reported.append((error, message))
    )
    deadline = time.monotonic() + timeout_s
    while not reported and time.monotonic() < deadline and not any(map(is_reason, said)):
        producer.poll(0.1)
    if not reported or reported[0][0] is not None:
        producer.purge()
        raise AssertionError("; ".join(said) or str(reported))
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, reported[0][1].offset())])
    message = consumer.poll(timeout_s)
    assert message is not None, said
    assert message.value() == value
    consumer.close()


def is_reason(text: str) -> bool:
    """Return whether a message of librdkafka has a reason beyond a failed connection."""
    return any(word in text for word in ("SSL handshake", "SASL", "ssl", "certificate"))


class TokenProvider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self.value = value

    def token(self) -> str:
        return self.value


class AsyncTokenProvider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self.value = value

    async def token(self) -> str:
        return self.value


def python_settings(way: Way, provider: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings that kafka-python and aiokafka share."""
    found: dict[str, Any] = {
        "bootstrap_servers": [way.bootstrap],
        "security_protocol": way.protocol,
        "ssl_context": create_ssl_context(
            cafile=way.ca, certfile=way.certificate, keyfile=way.certificate
        ),
    }
    if way.mechanism is not None:
        found["sasl_mechanism"] = way.mechanism
    if way.mechanism == "OAUTHBEARER":
        found["sasl_oauth_token_provider"] = provider(way.password)
    elif way.mechanism is not None:
        found |= {"sasl_plain_username": way.user, "sasl_plain_password": way.password}
    return found


def kafka_python_round(way: Way, value: bytes, timeout_s: float) -> None:
    settings = python_settings(way, TokenProvider)
    timeout_ms = int(timeout_s * 1_000)
    producer = kafka.KafkaProducer(**settings, bootstrap_timeout_ms=timeout_ms, acks="all")
    try:
        sent = producer.send(TOPIC, value).get(timeout_s)
    finally:
        producer.close(1)
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=int(timeout_s * 1_000))
    partition = kafka.TopicPartition(TOPIC, 0)
    consumer.assign([partition])
    consumer.seek(partition, sent.offset)
    assert next(consumer).value == value
    consumer.close()


def aiokafka_round(way: Way, value: bytes, timeout_s: float) -> None:
    async def body() -> None:
        settings = python_settings(way, AsyncTokenProvider)
        producer = aiokafka.AIOKafkaProducer(**settings, acks="all")
        try:
            await producer.start()
            sent = await producer.send_and_wait(TOPIC, value)
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        partition = aiokafka.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, sent.offset)
        assert (await consumer.getone()).value == value
        await consumer.stop()

    async def bounded() -> None:
        await asyncio.wait_for(body(), timeout_s)

    asyncio.run(bounded())


def kcat_round(way: Way, value: bytes, timeout_s: float) -> None:
    settings = {**librdkafka(way), "message.timeout.ms": int(timeout_s * 1_000)}
    options = [f"-X{key}={text}" for key, text in settings.items() if key != "log_level"]

    def kcat(*words: str, given: bytes = b"") -> bytes:
        command = ["kcat", *options, "-t", TOPIC, "-p", "0", *words]
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=2 * timeout_s, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    kcat("-P", "-c", "1", given=value)
    assert value in kcat("-C", "-e", "-o", "-5")


CLIENTS: dict[str, Callable[[Way, bytes, float], None]] = {
    "confluent-kafka": confluent_round,
    "kafka-python": kafka_python_round,
    "aiokafka": aiokafka_round,
    "kcat": kcat_round,
}
VALUES = (b"value-%d" % number for number in count())


def check_runs(client: str, way: Way) -> None:
    """Skip the ways that a client on this machine supports with no broker at all."""
    if client != "kcat":
        return
    if shutil.which("kcat") is None:
        pytest.skip("LOUD: kcat is not installed; it was NOT run here")
    if way.mechanism == "OAUTHBEARER":
        pytest.skip("kcat has no way to be given a token")
    if "SCRAM" in str(way.mechanism) and librdkafka_of_kcat() < (2, 6, 1):
        pytest.skip("librdkafka before 2.6.1 sends a wrong nonce, which Kafka 4 refuses too")


def librdkafka_of_kcat() -> tuple[int, ...]:
    shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True)
    found = re.search(r"librdkafka (\d+)\.(\d+)\.(\d+)", shown.stdout + shown.stderr)
    assert found is not None
    return tuple(map(int, found.groups()))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_sends_and_reads(secured: SecuredCluster, client: str, way: str) -> None:
    check_runs(client, secured.ways[way])
    CLIENTS[client](secured.ways[way], next(VALUES), TIMEOUT_S)


WORDS = {
    "wrong CA": ("certificate verify failed",),
    "expired certificate": ("certificate verify failed",),
    "wrong name": ("certificate verify failed",),
    "wrong password": ("invalid credentials with SASL mechanism SCRAM-SHA-512",),
    "wrong password of PLAIN": ("Invalid username or password",),
    "bad token": ("invalid_token", "closed"),
    "no certificate": ("certificate required", "closed", "Connection reset"),
}
"""Errors by client, or one of these where clients differ: aiokafka does not show a token's
error nor an alert of TLS 1.3 that comes after the handshake."""


@pytest.mark.parametrize("client", CLIENTS)
def test_a_refused_handshake_has_an_alert_with_its_reason_and_disturbs_no_other_client(
    secured: SecuredCluster, client: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_runs(client, secured.ways["SSL"])
    with witness(secured):
        for what, way in secured.wrong_ways().items():
            if client == "kcat" and way.mechanism not in (None, "PLAIN"):
                continue
            caplog.clear()
            timeout_s = NO_FATAL_S if client == "kafka-python" else SHORT_S
            with pytest.raises(Exception) as caught:
                CLIENTS[client](way, next(VALUES), timeout_s)
            said = f"{type(caught.value).__name__}: {caught.value}"
            heard = f"{said}\n{caplog.text}"
            if os.environ.get("OTTLA_SHOW_MATRIX"):
                print(f"{client} | {what} | {heard}")
            words = WORDS[what]
            if client == "kafka-python" and way.listener != OUT:
                words += ("socket disconnected",)  # it drops an answer that comes with the end
            assert any(word in heard for word in words), heard


@pytest.mark.parametrize("client", ["kafka-python", "aiokafka"])
def test_an_entry_that_is_taken_back_ends_the_sends_of_a_connected_client(
    secured: SecuredCluster, client: str
) -> None:
    entry = binding("al", ResourceType.TOPIC, TOPIC)
    revoke = AclBindingFilter(
        *(entry.restype, entry.name, entry.resource_pattern_type, entry.principal, entry.host),
        *(entry.operation, entry.permission_type),
    )
    way, admin = secured.ways["mTLS"], secured.admin

    def take_back() -> None:
        for done in admin.delete_acls([revoke]).values():
            done.result(TIMEOUT_S)

    try:
        SENDERS[client](way, take_back)
    finally:
        admin.create_acls([entry])[entry].result(TIMEOUT_S)


def kafka_python_refused(way: Way, take_back: Callable[[], None]) -> None:
    producer = kafka.KafkaProducer(**python_settings(way, TokenProvider), acks="all")
    producer.send(TOPIC, b"x").get(TIMEOUT_S)
    take_back()
    deadline = time.monotonic() + TIMEOUT_S
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        while time.monotonic() < deadline:
            producer.send(TOPIC, b"x").get(TIMEOUT_S)
    producer.close(1)


def aiokafka_refused(way: Way, take_back: Callable[[], None]) -> None:
    async def body() -> None:
        settings = python_settings(way, AsyncTokenProvider)
        async with aiokafka.AIOKafkaProducer(**settings, acks="all") as producer:
            await producer.send_and_wait(TOPIC, b"x")
            await asyncio.to_thread(take_back)
            deadline = time.monotonic() + TIMEOUT_S
            with pytest.raises(aiokafka.errors.TopicAuthorizationFailedError):
                while time.monotonic() < deadline:
                    await producer.send_and_wait(TOPIC, b"x")

    asyncio.run(body())


SENDERS: dict[str, Callable[[Way, Callable[[], None]], None]] = {
    "kafka-python": kafka_python_refused,
    "aiokafka": aiokafka_refused,
}
