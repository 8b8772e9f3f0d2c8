"""Sessions are renewed under load by clients that do not send again: no send fails."""

import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trio

from ottla.bench.kafka.kafka_server import java_program
from ottla.client import ProducerConfig, open_admin, open_producer
from ottla.model.settings.security.jaas import PLAIN_MODULE, SCRAM_MODULE
from ottla.testing.in_process import HOST, InProcessCluster, open_in_process_cluster

USERS = "USERS"
TIMEOUT_S = 60
FOR_S = float(os.environ.get("OTTLA_REAUTH_S", "5"))
PAUSE_S = 0.005
"""Seconds between two sends: some sends meet a renewal, and the load is not for measuring."""
SETTINGS = {
    "listeners": f"PLAINTEXT://{HOST}:0,{USERS}://{HOST}:0",
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{USERS}:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "listener.name.users.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_al="pw";',
    "connections.max.reauth.ms": "60000",
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def cluster(sessions_end_late: None) -> AsyncIterator[InProcessCluster]:
    """Return a broker whose sessions must be renewed within two seconds, with the user al."""
    async with open_in_process_cluster(broker_settings=SETTINGS) as found:
        async with open_admin(found.bootstrap) as admin:
            for mechanism in MECHANISMS[1:]:
                await admin.set_password("al", mechanism, "pw")
            await admin.create_topic("t", partition_count=3)
        (broker,) = found.brokers.values()
        with trio.fail_after(TIMEOUT_S):
            while len(broker.member.image.scram_credentials) < 2:
                await trio.sleep(0.02)
        yield found


def bootstrap_of(cluster: InProcessCluster) -> str:
    (broker,) = cluster.brokers.values()
    host, port = broker.addresses[USERS]
    return f"{host}:{port}"


def counts_of(cluster: InProcessCluster) -> Any:
    (broker,) = cluster.brokers.values()
    return broker.core.authenticators.counts[USERS]


def confluent_load(bootstrap: str, mechanism: str) -> int:
    """Produce record by record, without a second try; return how many were delivered."""
    failed: list[Any] = []
    delivered = 0

    def note(error: Any, message: Any) -> None:
        nonlocal delivered
        delivered += 1
        if error is not None:
            failed.append(error)

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "al",
            "sasl.password": "pw",
            "linger.ms": 0,
            "retries": 0,
        }
    )
    end_s = time.monotonic() + FOR_S
    sent = 0
    while time.monotonic() < end_s:
        producer.produce("t", b"x", partition=0, on_delivery=note)
        sent += 1
        producer.poll(0.002)
        time.sleep(PAUSE_S)
    assert producer.flush(TIMEOUT_S) == 0
    assert failed == []
    assert delivered == sent
    return sent


async def own_load(bootstrap: str, mechanism: str) -> None:
    config = ProducerConfig(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username="al",
        sasl_password="pw",
    )
    with trio.move_on_after(FOR_S):
        async with open_producer(bootstrap, config) as producer:
            while True:
                await (await producer.send("t", b"y", partition=1))
                await trio.sleep(PAUSE_S)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_no_send_fails_while_sessions_are_renewed(
    cluster: InProcessCluster, mechanism: str
) -> None:
    bootstrap = bootstrap_of(cluster)
    with trio.fail_after(FOR_S + TIMEOUT_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(own_load, bootstrap, mechanism)
            await trio.to_thread.run_sync(confluent_load, bootstrap, mechanism)
    counts = counts_of(cluster)
    assert counts.reauthentications >= 2
    assert (counts.failures, counts.reauthentication_failures, counts.expired) == (0, 0, 0)


async def test_no_send_of_kafkas_own_client_fails_while_sessions_are_renewed(
    cluster: InProcessCluster, tmp_path: Path
) -> None:
    jars = os.environ.get("OTTLA_KAFKA_JARS")
    if not jars:
        pytest.skip("LOUD: OTTLA_KAFKA_JARS is not set; Kafka's own client was NOT run here")
    config = tmp_path / "client.properties"
    config.write_text(
        f"bootstrap.servers={bootstrap_of(cluster)}\n"
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="al" password="pw";\n'
        "retries=0\nenable.idempotence=false\nacks=all\n"
    )
    count = round(300 * FOR_S)
    words = f"--topic t --num-records {count} --record-size 10 --throughput 300"

    tool = "org.apache.kafka.tools.ProducerPerformance"
    java = [java_program(os.environ), "-cp", f"{jars}/*", tool]

    def perform() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*java, *words.split(), "--command-config", str(config)],
            capture_output=True,
            text=True,
            timeout=FOR_S + 2 * TIMEOUT_S,
            check=False,
        )

    done = await trio.to_thread.run_sync(perform)
    assert f"{count} records sent" in done.stdout, done.stderr[:3_000]
    assert "Exception" not in done.stdout + done.stderr
    counts = counts_of(cluster)
    assert counts.reauthentications >= 2
    assert (counts.failures, counts.reauthentication_failures, counts.expired) == (0, 0, 0)
