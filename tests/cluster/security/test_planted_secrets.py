"""Secrets are planted at every place of a secure cluster, and searched for in all its output.

Nodes log at DEBUG; clients fail in ways that make nodes and commands print their input.
"""

import json
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.cli.cluster.cluster_file import properties_of
from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.security.client_security import access_of
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.model.tls.certificate import certificates_in, pem_blocks
from ottla.node.local.local_nodes_driver import free_ports
from ottla.node.properties import parse_properties
from tests.cluster.conftest import Processes
from tests.cluster.security.certificates import write_settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

HOST = "127.0.0.1"
TIMEOUT_S = 60
NAMES = (
    *("plain.admin", "plain.node", "plain.other", "scram", "wrong", "key.password"),
    *("tokens", "bearer", "basic", "header", "oauth"),
)
Authority = Any  # the class of the fixture, in tests/conftest.py


class PlantedSecrets:
    """The secrets by kind, and all output by source."""

    def __init__(self) -> None:
        self.secrets = {name: f"planted-{secrets.token_hex(12)}" for name in NAMES}
        self.said: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self.secrets[name]

    def found(self) -> list[str]:
        """Return each secret that is in an output, with the output's name."""
        return [
            f"{name} in {where}"
            for where, text in self.said.items()
            for name, secret in self.secrets.items()
            if secret in text
        ]


def encrypted_key(path: Path, password: str) -> tuple[str, str]:
    """Return the key of a PEM file encrypted, and its certificates; PEM text in one line each."""
    text = path.read_text()
    key = load_pem_private_key(text.encode(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode()))
    pem = key.private_bytes(*form).decode()
    chain = "".join(f"{block}\n" for label, block in pem_blocks(text) if label == "CERTIFICATE")
    assert certificates_in(chain)
    return pem.strip().replace("\n", "\\n"), chain.strip().replace("\n", "\\n")


@pytest.fixture
def planted() -> PlantedSecrets:
    return PlantedSecrets()


@pytest.fixture
def ports() -> list[int]:
    return free_ports(3, HOST)


@pytest.fixture
def nodes(
    plan_cluster: Callable[..., Processes],
    planted: PlantedSecrets,
    ports: list[int],
    authority: Authority,
) -> Iterator[Processes]:
    both = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:admin",
        "log.level": "DEBUG",
        "delegation.token.secret.key": planted["tokens"],
        "telemetry.otlp.endpoint": f"http://{HOST}:{ports[1]}",
        "telemetry.otlp.headers": f"authorization={planted['header']}",
    }
    processes = plan_cluster(controllers=1, brokers=1)
    users = " ".join(f'user_{user}="{planted["plain." + user]}"' for user in ("admin", "node"))
    login = f'{PLAIN_MODULE} required username=node password="{planted["plain.node"]}" {users}'
    key, chain = encrypted_key(authority.issue(HOST, common_name="node"), planted["key.password"])
    planted.secrets["key"] = key.split("\\n")[3]
    write_settings(processes, "controller 101", both)
    write_settings(
        processes,
        "broker 1",
        both
        | {
            "listeners": f"LOGIN://{HOST}:{ports[0]}",
            "advertised.listeners": f"LOGIN://{HOST}:{ports[0]}",
            "inter.broker.listener.name": "LOGIN",
            "listener.security.protocol.map": "LOGIN:SASL_SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.login.plain.sasl.jaas.config": (
                f'{login} user_other="{planted["plain.other"]}";'
            ),
            "ssl.keystore.key": key.replace("\\", "\\\\"),
            "ssl.keystore.certificate.chain": chain.replace("\\", "\\\\"),
            "ssl.key.password": planted["key.password"],
            "ssl.truststore.location": str(authority.file),
            "metrics.prometheus.port": str(ports[2]),
            "metrics.prometheus.bearer.token": planted["bearer"],
            "metrics.prometheus.basic.users": f"scraper:{planted['basic']}",
        },
    )
    processes.client = client(planted, ports, authority, "admin", planted["plain.admin"])
    processes.start("controller", "broker")
    yield processes
    processes.stop_all()


def client(
    planted: PlantedSecrets,
    ports: list[int],
    authority: Authority,
    user: str,
    password: str,
    **more: str,
) -> dict[str, str]:
    return {
        "bootstrap.servers": f"{HOST}:{ports[0]}",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.file),
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
        **more,
    }


def all_commands(nodes: Processes, planted: PlantedSecrets) -> None:
    """Run the commands that describe the cluster, with the whole output of a process of its own."""
    nodes.are_commands_in_children = True
    nodes.ottla("user", "add", "al", password=planted["scram"])
    (token,) = json.loads(nodes.ottla("token", "create", "--format", "json").stdout)
    planted.secrets["hmac"] = next(text for key, text in token.items() if "hmac" in key.lower())
    for words in (
        ("status", "--format", "json"),
        ("user", "list"),
        ("token", "list", "--format", "json"),
        ("config", "get", "--broker", "1", "--all"),
        ("config", "get", "--broker", "1", "--all", "--format", "json"),
        ("config", "diff", "--broker", "1"),
        ("broker", "describe", "1", "--format", "json"),
    ):
        done = nodes.ottla(*words, code=None)
        planted.said[" ".join(words)] = done.stdout + done.stderr


def ottla_alone(planted: PlantedSecrets, *words: str) -> str:
    """Run a command that asks no cluster."""
    done = subprocess.run(
        [sys.executable, "-m", "ottla.cli", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    planted.said[" ".join(words)] = done.stdout + done.stderr
    return done.stdout


def failing_clients(
    nodes: Processes, planted: PlantedSecrets, ports: list[int], authority: Authority
) -> None:
    """Cause log lines and errors about wrong passwords and invalid tokens."""
    for name, changes in (
        ("PLAIN", {}),
        ("SCRAM", {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "al"}),
    ):
        settings = client(planted, ports, authority, "other", planted["wrong"], **changes)
        errors: list[object] = []
        admin = AdminClient({**settings, "log_level": 0, "error_cb": errors.append})
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            admin.list_topics(timeout=1)
        planted.said[f"librdkafka, {name}"] = f"{errors} {caught.value}"
        admin_before, nodes.client = nodes.client, settings
        done = nodes.ottla("topic", "list", code=None)
        nodes.client = admin_before
        assert done.returncode
        planted.said[f"ottla topic list, {name}"] = done.stdout + done.stderr
    oauth = client(planted, ports, authority, "", "")
    del oauth["sasl.username"], oauth["sasl.password"]
    oauth |= {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"https://{HOST}:{ports[1]}/token",
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.client.secret": planted["oauth"],
        "sasl.login.retry.backoff.max.ms": "1",
    }
    before, nodes.client = nodes.client, oauth
    done = nodes.ottla("topic", "list", code=None)
    nodes.client = before
    assert done.returncode
    planted.said["ottla topic list, OAUTHBEARER"] = done.stdout + done.stderr
    for settings in (before, oauth):
        texts = {key: text for key, text in settings.items() if key != "bootstrap.servers"}
        planted.said[f"repr of a client, {texts['sasl.mechanism']}"] = repr(access_of(texts))


def faulty_settings(nodes: Processes, planted: PlantedSecrets) -> None:
    """Load a broker's settings with slips around each secret."""
    path = properties_of("broker", nodes.node("broker 1"))
    texts = dict(parse_properties(path.read_text()))
    planted.said["repr of a broker's settings"] = repr(load_broker_config(texts)[0])
    keys = [key for key, text in texts.items() if any(map(text.count, planted.secrets.values()))]
    assert len(keys) >= 6
    for key in keys:
        for slip in (f"x{key}", key[:-1], key.replace("login", "nowhere"), f"{key}.more"):
            rest = {one: text for one, text in texts.items() if one != key}
            _say_refusal(planted, f"{slip} for {key}", rest | {slip: texts[key]})
        for text in (f'"{texts[key]}', texts[key][:-1], f"{texts[key]};{texts[key]}"):
            _say_refusal(planted, f"{key} spoilt", texts | {key: text})


def _say_refusal(planted: PlantedSecrets, where: str, texts: dict[str, str]) -> None:
    try:
        _, unknown = load_broker_config(texts)
    except ConfigError as error:
        planted.said[where] = f"{planted.said.get(where, '')}{error}{error!r}"
    else:
        planted.said[where] = f"{planted.said.get(where, '')}{unknown}"


def asked_for_metrics(port: int, token: str) -> str:
    asked = urllib.request.Request(
        f"http://{HOST}:{port}/metrics", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        with error:
            return f"{error.headers}{error.read().decode()}"


def test_secrets_are_said_nowhere(
    nodes: Processes, planted: PlantedSecrets, ports: list[int], authority: Authority
) -> None:
    all_commands(nodes, planted)
    failing_clients(nodes, planted, ports, authority)
    faulty_settings(nodes, planted)
    admin = AdminClient(nodes.client)
    admin.create_topics([NewTopic("t", 1, replication_factor=1)])["t"].result(TIMEOUT_S)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    configs = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    assert configs["ssl.keystore.key"].is_sensitive
    planted.said["DescribeConfigs"] = str({key: one.value for key, one in configs.items()})

    for shown in (planted["bearer"], planted["wrong"]):
        planted.said[f"/metrics{shown == planted['bearer']}"] = asked_for_metrics(ports[2], shown)
    assert "ottla_" in planted.said["/metricsTrue"]

    properties = properties_of("broker", nodes.node("broker 1"))
    ottla_alone(planted, "doctor", "certificates", str(properties))
    for directory in nodes.plan.directory.rglob("__cluster_metadata-0"):
        dumped = ottla_alone(
            planted, "log", "dump", "--records", "--format", "json", str(directory)
        )
        assert "user_scram_credential" in dumped
        ottla_alone(planted, "log", "dump", "--records", str(directory))
        for hidden in ("stored_key", "server_key"):
            assert f'"{hidden}": "(hidden)"' in dumped
    for name in nodes.names:
        written = nodes.plan.directory / "logs" / nodes.log_of(name).name
        assert " DEBUG " in written.read_text()
        planted.said[f"log of {name}"] = written.read_text() + nodes.log_of(name).read_text()
    assert planted.found() == []
    assert any(planted.said.values())
