"""Nodes and clients that log in by SCRAM, from the first start on, as processes of their own."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from ottla.cli.cluster.cluster_file import make_plan, properties_of
from ottla.model.settings.security.jaas import SCRAM_MODULE
from tests.cluster.conftest import COMMAND_TIMEOUT_S, Processes

pytestmark = pytest.mark.cluster

SCRAM = "SCRAM-SHA-512"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": SCRAM,
    "sasl.mechanism.inter.broker.protocol": SCRAM,
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required "
    'username="node" password="between";',
}
COUNT = 500
READ_S = 60


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A controller and two brokers, formatted with the user by whom brokers log in."""
    directory = tmp_path_factory.mktemp("cluster")
    plan = make_plan(directory, host="127.0.0.1", port=0, controllers=1, brokers=2)
    plan.settings = SETTINGS
    plan.write_properties()
    (node,) = plan.controllers
    subprocess.run(
        [
            *(sys.executable, "-m", "ottla.cli", "storage", "format"),
            *("-c", str(properties_of("controller", node)), "-t", plan.cluster_id),
            *("--initial-controllers", f"{node.id}@{node.address}:{node.directory_id}"),
            *("--add-scram", f"{SCRAM}=[name=node,password=between]"),
        ],
        check=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    processes = Processes(plan)
    try:
        processes.start()
        yield processes
    finally:
        processes.stop_all()


def login(directory: Path, user: str, password: str) -> tuple[str, str]:
    """Return the option by which a command logs in."""
    path = directory / f"{user}-{password}.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={SCRAM}\n"
        f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" password="{password}";\n'
    )
    path.chmod(0o600)
    return "--command-config", str(path)


def as_al(bootstrap: str, **settings: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": SCRAM,
        "sasl.username": "al",
        "sasl.password": "word",
        **{key.replace("_", "."): value for key, value in settings.items()},
    }


def produce(guarded: Processes) -> list[bytes]:
    """Have records acknowledged by both brokers; return their values."""
    errors: list[KafkaError] = []
    values = [str(number).encode() for number in range(COUNT)]
    producer = Producer(as_al(guarded.bootstrap, acks="all"))
    for value in values:
        producer.produce(
            "t", value, on_delivery=lambda error, _: errors.append(error) if error else None
        )
    assert producer.flush(READ_S) == 0
    assert errors == []
    return values


def read(bootstrap: str, group: str) -> list[bytes | None]:
    """Return the values that a new group finds."""
    consumer = Consumer(as_al(bootstrap, group_id=group, auto_offset_reset="earliest"))
    consumer.subscribe(["t"])
    found = [message.value() for message in consumer.consume(COUNT, READ_S)]
    consumer.close()
    return found


@pytest.mark.parametrize(
    ("user", "password"), [("al", "another"), ("absent", "word"), ("node", "word")]
)
def test_a_wrong_login_is_one_sentence(
    guarded: Processes, tmp_path: Path, user: str, password: str
) -> None:
    done = guarded.ottla("topic", "list", *login(tmp_path, user, password), code=None)
    assert done.returncode != 0
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert "password" in sentence or "SASL_AUTHENTICATION_FAILED" in sentence


def test_a_client_without_credentials_gets_an_error_that_asks_for_them(guarded: Processes) -> None:
    done = guarded.ottla("topic", "list", code=None)
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1


def test_what_brokers_copied_by_scram_outlives_one_of_them(
    guarded: Processes, tmp_path: Path
) -> None:
    node, al = login(tmp_path, "node", "between"), login(tmp_path, "al", "word")
    (tmp_path / "word").write_text("word\n")
    guarded.ottla("user", "add", "al", "--password-file", str(tmp_path / "word"), *node)
    assert "al" in guarded.ottla("user", "list", *al).stdout
    wanted = ("-p", "1", "-r", "2", "--config", "min.insync.replicas=2")
    guarded.ottla("topic", "create", "t", *wanted, *al)

    sent = produce(guarded)

    assert read(guarded.bootstrap, "g") == sent
    guarded.kill("broker 1")
    assert read(guarded.plan.brokers[1].address, "h") == sent
