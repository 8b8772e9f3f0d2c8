"""Slips of the keyboard in keys of settings."""

import json
from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.kafka_keys import UNKEPT_PROMISES
from ottla.model.settings.misspelt import meant_key
from ottla.model.settings.security.security_keys import is_of_security_family

ANSWERS = Path(__file__).parents[2] / "broker/cluster/settings/kafka_settings/kafka-4.4.0.json"
KAFKA_KEYS = json.loads(ANSWERS.read_text())["broker"].keys()

KNOWN = ("default.replication.factor", "log.dirs")


@pytest.mark.parametrize(
    "key",
    [
        "defualt.replication.factor",
        "default.replication.factr",
        "default.replication.factorr",
        "default.replication.fxctor",
    ],
)
def test_one_slip_names_the_key_that_was_meant(key: str) -> None:
    assert meant_key(key, KNOWN) == "default.replication.factor"


def test_another_key_is_left_alone() -> None:
    assert meant_key("zookeeper.connect", KNOWN) is None
    assert meant_key("log.dirs", KNOWN) is None


@pytest.mark.parametrize("address", ["0.0.0.0:9092", "[::]:9092", ":9092", "host:0"])
def test_an_address_that_no_client_reaches_is_not_advertised(address: str) -> None:
    texts = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        load_broker_config({**texts, "advertised.listeners": f"PLAINTEXT://{address}"})


def test_an_address_of_a_listener_that_is_none_is_not_advertised() -> None:
    texts = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
    texts |= {"listeners": "SASL_SSL://:9092", "sasl.enabled.mechanisms": "PLAIN"}
    with pytest.raises(ConfigError) as caught:
        load_broker_config({**texts, "advertised.listeners": "PLAINTEXT://host:9092"})
    assert str(caught.value) == (
        "advertised.listeners: has PLAINTEXT://host:9092, and listeners has no PLAINTEXT; "
        "name one of SASL_SSL, or add it there"
    )


SECURITY_FAMILY = sorted(
    key
    for key in KAFKA_KEYS
    if is_of_security_family(key) and key != "security.inter.broker.protocol"
)


@pytest.mark.parametrize("key", SECURITY_FAMILY)
def test_a_key_of_security_is_never_ignored(key: str) -> None:
    texts = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093", key: "1"}
    with pytest.raises(ConfigError):
        load_broker_config(texts)
    with pytest.raises(ConfigError):
        load_controller_config({**texts, "node.id": "101"})


@pytest.mark.parametrize("key", UNKEPT_PROMISES)
def test_a_promise_that_is_not_kept_is_refused(key: str) -> None:
    texts = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
    with pytest.raises(ConfigError, match="remove it"):
        load_broker_config({**texts, key: "true"})
    load_broker_config({**texts, key: "false"})
