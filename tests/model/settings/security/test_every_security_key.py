"""Every key of Kafka's security configuration is served with an effect, or refused with its reason.

The names were read from Kafka's own classes once (data/security_keys.txt).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.kafka_keys import idle_definitions, keys_of_kafka
from ottla.model.settings.security.client_security import access_of
from ottla.model.settings.security.security_keys import KERBEROS_PREFIX

DATA = Path(__file__).parent / "data" / "security_keys.txt"
KEYS = [line for line in DATA.read_text().splitlines() if not line.startswith("#")]

OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOKEN = "https://issuer.example/token"
NODE = {
    "controller.quorum.voters": "101@localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "ssl.truststore.location": "/ca.pem",
    "ssl.keystore.location": "/node.pem",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "delegation.token.secret.key": "0123456789abcdef",
}
BROKER = NODE | {
    "node.id": "1",
    "listeners": "PLAINTEXT://:1,OUT://:2",
    "inter.broker.listener.name": "OUT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_SSL,CONTROLLER:SSL",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "https://issuer.example/keys",
    "sasl.oauthbearer.token.endpoint.url": TOKEN,
    "sasl.oauthbearer.client.credentials.client.id": "broker",
    "sasl.oauthbearer.client.credentials.client.secret": "s",
    "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"https://issuer.example/keys,{TOKEN}",
    "sasl.oauthbearer.expected.audience": "a",
    "sasl.oauthbearer.expected.issuer": "i",
}
CONTROLLER = NODE | {
    "node.id": "101",
    "listeners": "CONTROLLER://:9093",
    "listener.security.protocol.map": "CONTROLLER:SSL",
}
CLIENT = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "ssl.truststore.location": "/ca.pem",
    "ssl.keystore.location": "/me.pem",
    "sasl.oauthbearer.token.endpoint.url": TOKEN,
    "sasl.oauthbearer.client.credentials.client.id": "c",
    "sasl.oauthbearer.client.credentials.client.secret": "s",
}
OF_NODES_ALONE = (
    "authorizer.",
    "connection.",
    "connections.",
    "delegation.",
    "inter.broker.",
    "listener.",
    "principal.",
    "super.",
)
"""Families that a client's configuration does not have."""

NONSENSE = "\x01 no value of any setting ,,"


def outcome(load: Callable[[dict[str, str]], Any], base: dict[str, str], key: str) -> str:
    """Return the outcome for a key, with a meaningless value and with a plausible one."""
    plain = load(dict(base))
    for text in (NONSENSE, "7", "x"):
        try:
            found = load({**base, key: text})
        except ConfigError as error:
            assert str(error).strip()
            bare = key.removeprefix("sasl.oauthbearer.")
            said = str(error)
            assert key in said or bare in said, f"{key}={text!r} is refused as {said}"
            return "refused"
        if found != plain:
            return "served"
    return "ignored"


def of_broker(texts: dict[str, str]) -> Any:
    config, unknown = load_broker_config(texts)
    assert not unknown, f"{unknown} would be ignored with a warning"
    return {name: getattr(config, name) for name in config.__dataclass_fields__ if name != "texts"}


def of_controller(texts: dict[str, str]) -> Any:
    config, unknown = load_controller_config(texts)
    assert not unknown, f"{unknown} would be ignored with a warning"
    return config


def test_the_list_is_kafkas() -> None:
    assert len(KEYS) == len(set(KEYS)) >= 85
    assert {"ssl.provider", "sasl.login.class", "security.providers"} <= set(KEYS)


IDLE_KEYS = [key for key in KEYS if key.startswith(KERBEROS_PREFIX)]
"""Settings of GSSAPI, which no listener offers: they protect nothing, and are warned about."""
KEYS_OF_NODES = [key for key in KEYS if key not in IDLE_KEYS]


@pytest.mark.parametrize("key", IDLE_KEYS)
def test_a_key_of_kerberos_is_idle(key: str) -> None:
    value = idle_definitions()[key].default or "kafka"
    for load, base in ((load_broker_config, BROKER), (load_controller_config, CONTROLLER)):
        _, unknown = load({**base, key: value})
        assert keys_of_kafka(unknown) == [key]


@pytest.mark.parametrize("key", KEYS_OF_NODES)
def test_no_key_is_ignored_by_a_broker(key: str) -> None:
    assert outcome(of_broker, BROKER, key) in ("served", "refused")


@pytest.mark.parametrize("key", KEYS_OF_NODES)
def test_no_key_is_ignored_by_a_controller(key: str) -> None:
    assert outcome(of_controller, CONTROLLER, key) in ("served", "refused")


@pytest.mark.parametrize("key", [key for key in KEYS if not key.startswith(OF_NODES_ALONE)])
def test_no_key_is_ignored_by_a_client(key: str) -> None:
    assert outcome(access_of, CLIENT, key) in ("served", "refused")
