"""Kafka's own clients and tools, by each way of being known over TLS.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ottla.bench.kafka.kafka_server import java_program
from ottla.model.settings.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from tests.cluster.security.secured_listeners import (
    TIMEOUT_S,
    TOKEN_URLS,
    TOPIC,
    WAYS,
    SecuredCluster,
    Way,
    open_secured,
    witness,
)

if TYPE_CHECKING:
    from tests.conftest import CertificateAuthority

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

TOKEN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
TOOLS = "org.apache.kafka.tools"


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory,
    authority: "CertificateAuthority",
    new_authority: Callable[[str], "CertificateAuthority"],
) -> Iterator[SecuredCluster]:
    """A controller and a broker with ACLs that listens in all ways."""
    with open_secured(tmp_path_factory.mktemp("matrix"), authority, new_authority) as found:
        yield found


class Kafka:
    """Kafka's own classes, with settings of a way."""

    def __init__(self, jars: str, directory: Path) -> None:
        self._jars = jars
        self._directory = directory

    def settings(self, way: Way, *, is_token: bool = False) -> Path:
        """Write the settings of a client."""
        texts = {
            "bootstrap.servers": way.bootstrap,
            "security.protocol": way.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": way.ca,
            "max.block.ms": "8000",
        }
        if way.certificate is not None:
            texts |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self._pkcs8(way)}
        if way.mechanism is not None:
            texts["sasl.mechanism"] = way.mechanism
        if way.mechanism == "OAUTHBEARER":
            self.token.write_text(way.password)
            texts["sasl.jaas.config"] = f"{OAUTHBEARER_MODULE} required;"
            texts["sasl.login.callback.handler.class"] = TOKEN_HANDLER
            texts["sasl.oauthbearer.token.endpoint.url"] = f"file://{self.token}"
        elif way.mechanism is not None:
            module = PLAIN_MODULE if way.mechanism == "PLAIN" else SCRAM_MODULE
            login = f'{module} required username="{way.user}" password="{way.password}"'
            texts["sasl.jaas.config"] = login + (' tokenauth="true";' if is_token else ";")
        path = self._directory / "java.properties"
        path.write_text("".join(f"{key}={text}\n" for key, text in texts.items()))
        return path

    def _pkcs8(self, way: Way) -> str:
        """Return a file of a certificate and its key in the only form that Java takes."""
        assert way.certificate is not None
        text = Path(way.certificate).read_bytes()
        key = load_pem_private_key(text, None).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
        path = self._directory / "java.pem"
        path.write_bytes(key + text[text.index(b"-----BEGIN CERTIFICATE") :])
        return str(path)

    @property
    def token(self) -> Path:
        """The file of the token."""
        return self._directory / "token"

    def run(self, tool: str, *words: str, code: int | None = 0) -> str:
        """Run a class of Kafka's; return its output."""
        command = [java_program(os.environ), f"-D{TOKEN_URLS}=file://{self.token}"]
        command += ["-Xmx256m", "-cp", f"{self._jars}/*", tool, *words]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False
        )
        printed = done.stdout + done.stderr
        assert code is None or done.returncode == code, printed
        return printed

    def produce(self, way: Way, *, is_token: bool = False, count: int = 100) -> str:
        """Send some records with the producer of ProducerPerformance."""
        config = self.settings(way, is_token=is_token)
        words = f"--topic {TOPIC} --num-records {count} --record-size 10 --throughput -1"
        words += f" --command-config {config}"
        return self.run(f"{TOOLS}.ProducerPerformance", *words.split(), code=None)

    def consume(self, way: Way) -> str:
        """Read some records with the consumer of kafka-console-consumer."""
        words = f"--topic {TOPIC} --partition 0 --offset earliest --max-messages 3"
        words += f" --timeout-ms 20000 --command-config {self.settings(way)}"
        words += f" --bootstrap-server {way.bootstrap}"
        return self.run(f"{TOOLS}.consumer.ConsoleConsumer", *words.split())


@pytest.fixture
def java(tmp_path: Path) -> Kafka:
    jars = os.environ.get("OTTLA_KAFKA_JARS")
    if not jars:
        pytest.skip("LOUD: OTTLA_KAFKA_JARS is not set; Kafka's own clients were NOT run here")
    return Kafka(jars, tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_kafkas_own_client_sends_and_reads(secured: SecuredCluster, java: Kafka, way: str) -> None:
    printed = java.produce(secured.ways[way])
    assert "100 records sent" in printed, printed
    assert "Processed a total of 3 messages" in java.consume(secured.ways[way])


JAVA_WORDS = {
    "wrong CA": "PKIX path",
    "expired certificate": "CertificateExpiredException",
    "wrong name": "No subject alternative names matching IP address 127.0.0.1 found",
    "wrong password": "invalid credentials with SASL mechanism SCRAM-SHA-512",
    "wrong password of PLAIN": "Invalid username or password",
    "bad token": "invalid_token",
    "no certificate": "certificate_required",
}


def test_kafkas_own_client_gets_the_reason_and_other_clients_are_undisturbed(
    secured: SecuredCluster, java: Kafka
) -> None:
    missing: dict[str, str] = {}
    with witness(secured):
        for what, way in secured.wrong_ways().items():
            printed = java.produce(way, count=1)
            if os.environ.get("OTTLA_SHOW_MATRIX"):
                print(f"java | {what} | {printed[:700]}")
            if JAVA_WORDS[what] not in printed:
                missing[what] = printed[:3_000]
    assert missing == {}


def test_kafkas_own_tools_work_over_tls(secured: SecuredCluster, java: Kafka) -> None:
    way = secured.ways["SCRAM-SHA-512"]
    admin = replace(secured.ways["PLAIN"], user="admin")

    def tool(name: str, *words: str, by: Way = admin) -> str:
        options = ("--bootstrap-server", by.bootstrap, "--command-config", str(java.settings(by)))
        return java.run(f"{name}", *options, *words)

    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", "made", "--partitions", "1")
    assert "made" in tool(f"{TOOLS}.TopicCommand", "--list")
    users = ("--entity-type", "users", "--entity-name", "zoe")
    config = "SCRAM-SHA-256=[iterations=8192,password=zoes]"
    tool("kafka.admin.ConfigCommand", "--alter", *users, "--add-config", config)
    shown = tool("kafka.admin.ConfigCommand", "--describe", *users)
    assert "SCRAM-SHA-256=iterations=8192" in shown
    zoe = replace(secured.ways["SCRAM-SHA-256"], user="zoe", password="zoes")
    refused = java.produce(zoe, count=1)
    assert "TopicAuthorizationException" in refused, refused
    entry = ("--allow-principal", "User:zoe", "--operation", "Write", "--topic", TOPIC)
    tool(f"{TOOLS}.AclCommand", "--add", *entry)
    assert "100 records sent" in java.produce(zoe)
    tool(f"{TOOLS}.AclCommand", "--remove", "--force", *entry)

    tokens = f"{TOOLS}.DelegationTokenCommand"
    made = tool(tokens, "--create", "--max-life-time-period", "-1", by=way)
    found = re.search(r"\n(\S+)\s+(\S+==)\s+User:al", made)
    assert found is not None, made
    token_id, hmac = found.groups()
    token = replace(way, user=token_id, password=hmac)
    assert "100 records sent" in java.produce(token, is_token=True)
    assert token_id in tool(tokens, "--describe", "--owner-principal", "User:al", by=way)
    tool(tokens, "--expire", "--expiry-time-period", "-1", "--hmac", hmac, by=way)
    assert "invalid credentials" in java.produce(token, is_token=True, count=1)
