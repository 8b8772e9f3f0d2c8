"""Two brokers that authenticate clients and each other by OAuth tokens, with unmodified clients."""

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest
import trio

from ottla.bench.kafka.kafka_server import java_program
from ottla.client import (
    ConsumerConfig,
    ProducerConfig,
    RefusedError,
    TopicPartition,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.network import bearer_tokens
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.security.oauthbearer import BearerToken
from ottla.model.settings.security.client_security import ClientSecurity, login_of
from ottla.model.settings.security.jaas import OAUTHBEARER_MODULE
from ottla.model.settings.security.oauth import VALIDATOR
from ottla.node.authentication import jwks_driver
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster

USERS = "USERS"
TIMEOUT_S = 60
PAUSE_S = 0.005
"""Seconds between two sends: some sends meet a renewal, and the load is not for measuring."""
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"

pytestmark = pytest.mark.timeout(300)


class Provider:
    """An identity provider behind a web server: keys at /keys, tokens at /token."""

    def __init__(self, issuer: Any) -> None:
        self.issuer = issuer
        self.published = ["RS256"]
        self.lasts_s = 3_600.0
        self.key_reads = 0
        self.grants: list[dict[str, list[str]]] = []
        self._server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.url = f"http://{HOST}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def token(self, user: str = "al", **claims: Any) -> str:
        return str(self.issuer.token(user, **{"lasts_s": self.lasts_s, **claims}))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self, code: int, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                if code == 302:
                    self.send_header("Location", f"{provider.url}/keys")
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                if self.path == "/moved":
                    return self.answer(302, b"")
                if self.path == "/large":
                    return self.answer(200, b" " * (2 << 20))
                provider.key_reads += 1
                return self.answer(200, provider.issuer.jwks(*provider.published))

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                asked = parse_qs(self.rfile.read(length).decode())
                # broker:s 3 in Base64, each part encoded as a form is.
                if self.headers["Authorization"] != "Basic YnJva2VyOnMlMjAz":
                    return self.answer(401, b"")
                provider.grants.append(asked)
                answer = {
                    "access_token": provider.token("broker"),
                    "expires_in": provider.lasts_s,
                    "token_type": "Bearer",
                }
                return self.answer(200, json.dumps(answer).encode())

            def log_message(self, format: str, *args: object) -> None: ...

        return Handler


@pytest.fixture
def provider(issuer: Any) -> Iterator[Provider]:
    found = Provider(issuer)
    yield found
    found.close()


def settings_of(url: str) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://{HOST}:0,{USERS}://{HOST}:0",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT",
        "inter.broker.listener.name": USERS,
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.users.oauthbearer.sasl.server.callback.handler.class": VALIDATOR,
        "listener.name.users.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required "
        'clientId="broker" clientSecret="s 3" scope="ottla";',
        "sasl.oauthbearer.jwks.endpoint.url": f"{url}/keys",
        "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
        URLS: f"{url}/keys,{url}/token",
        "sasl.oauthbearer.expected.audience": "ottla",
        "sasl.oauthbearer.expected.issuer": "https://issuer.example",
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connections.max.reauth.ms": "60000",
    }


class Users:
    """The cluster, and its issuer of tokens."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.cluster = cluster
        addresses = [broker.addresses[USERS] for broker in cluster.brokers.values()]
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)

    @property
    def metrics(self) -> dict[str, float]:
        """The counts of all brokers together."""
        found: dict[str, float] = {}
        for broker in self.cluster.brokers.values():
            for key, value in broker.core.authenticators.metrics.items():
                found[key] = found.get(key, 0) + value
        return found


@pytest.fixture
async def users(sessions_end_late: None, provider: Provider) -> AsyncIterator[Users]:
    settings = settings_of(provider.url)
    async with open_in_process_cluster(broker_count=2, broker_settings=settings) as cluster:
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic("t", partition_count=2, replication_factor=2)
        yield Users(cluster)


def confluent_settings(users: Users, token: Callable[[], str], lasts_s: float) -> dict[str, Any]:
    return {
        "bootstrap.servers": users.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda config: (token(), time.time() + lasts_s),
    }


def confluent_round(users: Users, token: Callable[[], str]) -> None:
    """Produce with acks=all and consume with librdkafka."""
    settings = confluent_settings(users, token, 3_600)
    producer = confluent_kafka.Producer(settings)
    producer.produce("t", b"confluent", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g"})
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    message = consumer.poll(TIMEOUT_S)
    assert message is not None
    assert message.error() is None
    consumer.close()


def confluent_failure(users: Users, token: str) -> str:
    """Return librdkafka's error for a token that is refused."""
    found: list[str] = []

    def note(error: Any) -> None:
        # A broker that does not serve yet closes the connection, which is no answer to a token.
        if error.name() == "_AUTHENTICATION" and "transport failure" not in error.str():
            found.append(error.str())

    producer = confluent_kafka.Producer(
        {**confluent_settings(users, lambda: token, 3_600), "error_cb": note}
    )
    while not found:
        producer.poll(0.2)
    return found[0]


class TokenProvider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self.value = value

    def token(self) -> str:
        return self.value


def kafka_python_round(users: Users, token: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=users.bootstrap.split(","),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=TokenProvider(token),
        acks="all",
    )
    producer.send("t", b"kafka-python", partition=1).get(TIMEOUT_S)
    producer.close()


class AsyncTokenProvider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, value: str) -> None:
        self.value = value

    async def token(self) -> str:
        return self.value


def aiokafka_round(users: Users, token: str) -> None:
    async def body() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=users.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=AsyncTokenProvider(token),
            acks="all",
        )
        async with producer:
            await producer.send_and_wait("t", b"aiokafka", partition=1)

    asyncio.run(body())


async def test_clients_that_are_not_ours_log_in_with_tokens(
    users: Users, provider: Provider
) -> None:
    with trio.fail_after(2 * TIMEOUT_S):
        await trio.to_thread.run_sync(confluent_round, users, provider.token)
        await trio.to_thread.run_sync(kafka_python_round, users, provider.token())
        await trio.to_thread.run_sync(aiokafka_round, users, provider.token())
    for broker in users.cluster.brokers.values():
        # acks=all: the other broker has logged in here and followed.
        for partition in broker.table:
            if partition.topic == "t":
                assert partition.isr == {NodeId(1), NodeId(2)}
    assert provider.grants != []
    assert all(one["scope"] == ["ottla"] for one in provider.grants)


async def test_a_token_that_is_not_taken_is_refused_and_others_are_served_on(
    users: Users, provider: Provider
) -> None:
    bad = {
        "issuer": provider.token(iss="https://other.example"),
        "audience": provider.token(aud="other"),
        "expired": provider.token(lasts_s=-5),
        "unknown-key": provider.token(key_id="nosuch"),
        "signature": f"{provider.token()[:-8]}AAAAAAAA",
    }
    good = ProducerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_token_provider=partial(given, provider.token("ben")),
    )
    with trio.fail_after(3 * TIMEOUT_S):
        async with open_producer(users.bootstrap, good) as producer:
            for token in bad.values():
                error = await trio.to_thread.run_sync(confluent_failure, users, token)
                assert "invalid_token" in error
                await (await producer.send("t", b"meanwhile", partition=0))
    for fault in bad:
        assert users.metrics[f"authentication.users.token.{fault}"] >= 1


async def given(token: str) -> BearerToken:
    return BearerToken(token)


async def test_our_own_client_reports_that_its_token_was_refused(
    users: Users, provider: Provider
) -> None:
    security = ClientSecurity(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_token_provider=partial(given, provider.token(aud="other")),
    )
    with trio.fail_after(TIMEOUT_S), pytest.raises(RefusedError, match="invalid_token") as caught:
        async with open_admin(users.bootstrap, security=security) as admin:
            await admin.describe_users()
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_our_own_clients_get_tokens_from_a_url_and_from_a_file(
    users: Users, provider: Provider, tmp_path: Path
) -> None:
    common = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    file = tmp_path / "token"
    file.write_text(f"{provider.token()}\n")
    by_file = {**common, "sasl.oauthbearer.token.endpoint.url": f"file://{file}"}
    by_url = {
        **common,
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "sasl.oauthbearer.client.credentials.client.id": "broker",
        "sasl.oauthbearer.client.credentials.client.secret": "s 3",
    }
    for texts in (by_file, by_url):
        assert login_of(texts) is not None
    config = ProducerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"{provider.url}/token",
        sasl_oauthbearer_client_id="broker",
        sasl_oauthbearer_client_secret="s 3",
    )
    reader = ConsumerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"file://{file}",
    )
    with trio.fail_after(TIMEOUT_S):
        async with open_producer(users.bootstrap, config) as producer:
            await (await producer.send("t", b"ours", partition=0))
        async with open_consumer(users.bootstrap, reader) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.seek_to_beginning()
            async for record in consumer:
                assert record.value == b"ours"
                break


async def test_a_new_key_is_read_when_a_token_names_it_and_not_for_each_stranger(
    users: Users, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = provider.key_reads
    provider.published.append("ES256")
    token = provider.token(algorithm="ES256")
    with trio.fail_after(TIMEOUT_S):
        while users.metrics["authentication.users.failed"] < 20:
            await trio.to_thread.run_sync(confluent_failure, users, provider.token(key_id="x"))
    assert provider.key_reads - reads <= 2 * len(users.cluster.brokers)
    with trio.fail_after(TIMEOUT_S):
        await until_read(users, "ES256")
        await trio.to_thread.run_sync(kafka_python_round, users, token)


async def until_read(users: Users, name: str) -> None:
    def knows(broker: Any) -> bool:
        (plan,) = broker.core.authenticators.key_plans
        return name in {one.key_id for one in plan.source.keys}

    while not all(map(knows, users.cluster.brokers.values())):
        await trio.sleep(0.1)


def confluent_load(users: Users, provider: Provider, for_s: float) -> int:
    """Produce record by record while sessions are renewed; return how many were delivered."""
    delivered, failed = [0], []

    def note(error: Any, message: Any) -> None:
        delivered[0] += 1
        if error is not None:
            failed.append(error)

    settings = confluent_settings(users, provider.token, provider.lasts_s)
    producer = confluent_kafka.Producer({**settings, "retries": 0, "enable.idempotence": False})
    end_s = time.monotonic() + for_s
    sent = 0
    while time.monotonic() < end_s:
        producer.produce("t", b"x", partition=sent % 2, on_delivery=note)
        sent += 1
        producer.poll(0.002)
        time.sleep(PAUSE_S)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert delivered == [sent]
    return sent


async def own_load(users: Users, provider: Provider, for_s: float) -> int:
    """Do the same with our own client; return how many tokens it asked for."""
    asked = 0

    async def token() -> BearerToken:
        nonlocal asked
        asked += 1
        # Refreshed as one that ends in two seconds is; a busy machine does not let it end.
        return BearerToken(provider.token("own"), time.time() + 2)

    config = ProducerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_token_provider=token,
        request_timeout_ms=5_000,
        delivery_timeout_ms=10_000,
    )
    with trio.move_on_after(for_s):
        async with open_producer(users.bootstrap, config) as producer:
            number = 0
            while True:
                await (await producer.send("t", b"y", partition=number % 2))
                await trio.sleep(PAUSE_S)
                number += 1
    return asked


async def test_sessions_are_renewed_under_load_without_a_failed_send(
    users: Users, provider: Provider
) -> None:
    for_s = float(os.environ.get("OTTLA_REAUTH_S", "5"))
    asked = 0

    async def own() -> None:
        nonlocal asked
        asked = await own_load(users, provider, for_s)

    with trio.fail_after(for_s + TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(own)
            await trio.to_thread.run_sync(confluent_load, users, provider, for_s)
    assert asked >= 2
    metrics = users.metrics
    assert metrics["authentication.users.repeated"] >= 4
    assert metrics["authentication.users.expired"] == 0
    assert metrics["authentication.users.failed"] == 0


@pytest.fixture(scope="module")
def jars() -> Path:
    found = os.environ.get("OTTLA_KAFKA_JARS")
    if not found:
        pytest.skip("LOUD: OTTLA_KAFKA_JARS is not set; Kafka's own client was NOT run here")
    return Path(found)


async def test_kafkas_own_client_logs_in_with_a_token(
    users: Users, provider: Provider, jars: Path, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(provider.token())
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers={users.bootstrap}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTHBEARER_MODULE} required;\nmax.block.ms=3000\n"
        f"sasl.login.callback.handler.class={HANDLER}\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{file}\n"
    )

    def perform(count: int) -> "subprocess.CompletedProcess[str]":
        command = [java_program(os.environ), f"-D{URLS}=file://{file}", "-cp", f"{jars}/*"]
        words = f"--topic t --num-records {count} --record-size 10 --throughput -1"
        return subprocess.run(
            [*command, PERFORMANCE, *words.split(), "--command-config", str(config)],
            capture_output=True,
            text=True,
            timeout=2 * TIMEOUT_S,
            check=False,
        )

    with trio.fail_after(5 * TIMEOUT_S):
        done = await trio.to_thread.run_sync(perform, 500)
        assert "500 records sent" in done.stdout, done.stderr[:3000]
        file.write_text(provider.token(aud="other"))
        done = await trio.to_thread.run_sync(perform, 1)
        assert "SaslAuthenticationException" in done.stdout + done.stderr, done
        assert "invalid_token" in done.stdout + done.stderr


async def test_keys_are_never_read_elsewhere_nor_without_bound(provider: Provider) -> None:
    from ottla.client.network.web_fetch import WebFetchError, fetch

    for path, reason in (("moved", "302"), ("large", "longer than")):
        with pytest.raises(WebFetchError, match=reason):
            await trio.to_thread.run_sync(partial(fetch, f"{provider.url}/{path}", bytes_max=1000))
    assert provider.key_reads == 0
    assert jwks_driver.FORCED_PAUSE_S >= 5
    assert bearer_tokens.REFRESH_AT < 0.85
