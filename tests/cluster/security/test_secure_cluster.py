"""`ottla up --secure`: nodes, clients and commands that know each other; entries that decide."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

COMMAND_S = 60.0


class SecureCluster:
    """A running `ottla up --secure`, by its directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def settings(self) -> dict[str, str]:
        """The settings of the user admin, by librdkafka's keys."""
        lines = (self.directory / "client.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def settings_of(self, user: str, password: str) -> dict[str, str]:
        """Return the settings of another user."""
        return {**self.settings, "sasl.username": user, "sasl.password": password}

    def ottla(self, *words: str, code: int = 0, password: str = "") -> str:
        """Run a command as the directory's admin; return its output."""
        done = subprocess.run(
            [sys.executable, "-m", "ottla.cli", *words, "--dir", str(self.directory)],
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
            env={**os.environ, "OTTLA_PASSWORD": password},
        )
        assert done.returncode == code, f"{words}: {done}"
        return done.stdout


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    directory = tmp_path_factory.mktemp("secure") / "data"
    command = [sys.executable, "-m", "ottla.cli", "up", "--secure", "--dir", str(directory)]
    command += ["--port", "0", "--controllers", "3", "--brokers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Logs:"):
                break
        assert process.poll() is None
        yield SecureCluster(directory)
        process.send_signal(signal.SIGINT)
        process.wait(COMMAND_S)


def create(cluster: SecureCluster, topic: str) -> None:
    admin = AdminClient(cluster.settings)
    admin.create_topics([NewTopic(topic, 1, replication_factor=2)])[topic].result(COMMAND_S)


def outcome_of_send(producer: Producer, topic: str) -> str:
    """Send one record; return the name of its error, or nothing."""
    errors: list[KafkaError | None] = []
    try:
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    except KafkaException as refused:
        # It is refused where it stands if the metadata came with the refusal before.
        return str(refused.args[0].name())
    assert producer.flush(COMMAND_S) == 0
    return "" if errors[0] is None else errors[0].name()


def test_commands_of_the_directory_are_its_admin(cluster: SecureCluster) -> None:
    assert json.loads(cluster.ottla("status", "--format", "json"))["healthy"]
    cluster.ottla("topic", "create", "commanded", "--partitions", "1")
    assert "commanded" in cluster.ottla("topic", "list")


def test_secrets_are_readable_by_their_owner_alone(cluster: SecureCluster) -> None:
    private = [*cluster.directory.glob("*.properties"), *cluster.directory.glob("security/*")]
    assert {path.name for path in private} >= {"broker-1.properties", "ca-key.pem", "users.json"}
    open_to_others = [path.name for path in private if path.stat().st_mode & 0o077]
    assert open_to_others == ["ca.pem"]
    passwords = json.loads((cluster.directory / "security" / "users.json").read_text()).values()
    for log in cluster.directory.glob("logs/*"):
        assert not any(password in log.read_text() for password in passwords)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"security.protocol": "PLAINTEXT"}, {"_TRANSPORT", "_ALL_BROKERS_DOWN"}),
        ({"sasl.password": "wrong"}, {"_AUTHENTICATION"}),
        ({"sasl.username": "stranger"}, {"_AUTHENTICATION"}),
        ({"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}, {"_SSL"}),
    ],
)
def test_an_unauthenticated_client_gets_the_reason_of_its_refusal(
    cluster: SecureCluster, change: dict[str, str], error: set[str]
) -> None:
    seen: list[str] = []
    settings = {**cluster.settings, **change, "error_cb": lambda one: seen.append(one.name())}
    producer = Producer({**settings, "log_level": 0})
    deadline = time.monotonic() + COMMAND_S
    while not error.intersection(seen):
        assert time.monotonic() < deadline, seen
        producer.poll(0.1)


def test_an_entry_decides_at_once_also_on_open_connections(cluster: SecureCluster) -> None:
    create(cluster, "decided")
    cluster.ottla("user", "add", "alice", password="alice-secret")
    settings = cluster.settings_of("alice", "alice-secret")
    alice, admin = Producer({**settings, "log_level": 0}), Producer(cluster.settings)
    assert outcome_of_send(alice, "decided") == "TOPIC_AUTHORIZATION_FAILED"

    cluster.ottla("acl", "create", "--allow", "alice", "--producer", "--topic", "decided")
    explained = cluster.ottla("acl", "explain", "alice", "write", "--topic", "decided")
    assert "an entry allows User:alice to write on topic decided" in explained
    deadline = time.monotonic() + COMMAND_S
    while outcome_of_send(alice, "decided"):
        assert time.monotonic() < deadline

    cluster.ottla("acl", "delete", "--principal", "alice", "--yes")
    began = time.monotonic()
    while outcome_of_send(alice, "decided") != "TOPIC_AUTHORIZATION_FAILED":
        assert time.monotonic() - began < COMMAND_S
    print(f"refused {time.monotonic() - began:.3f} s after the answer")
    assert outcome_of_send(admin, "decided") == ""
    cluster.ottla("acl", "explain", "alice", "write", "--topic", "decided", code=2)


def test_a_consumer_needs_its_group_and_its_topic(cluster: SecureCluster) -> None:
    create(cluster, "read")
    assert outcome_of_send(Producer(cluster.settings), "read") == ""
    cluster.ottla("user", "add", "ben", password="ben-secret")
    cluster.ottla(
        *("acl", "create", "--allow", "ben", "--consumer", "--topic", "rea", "--group", "b"),
        "--prefixed",
    )
    settings = cluster.settings_of("ben", "ben-secret")
    consumer = Consumer(
        {**settings, "group.id": "bens", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe(["read"])
    message = consumer.poll(COMMAND_S)
    assert message is not None
    assert message.error() is None
    consumer.close()
    stranger = Consumer({**settings, "group.id": "others", "log_level": 0})
    stranger.subscribe(["read"])
    refused = stranger.poll(COMMAND_S)
    assert refused is not None
    assert refused.error().name() == "GROUP_AUTHORIZATION_FAILED"
    stranger.close()
