"""Slips of the keyboard in keys of settings."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.misspelt import meant_key

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


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_an_address_that_no_client_reaches_is_not_advertised(host: str) -> None:
    texts = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
    with pytest.raises(ConfigError, match=r"advertised\.listeners"):
        load_broker_config({**texts, "advertised.listeners": f"PLAINTEXT://{host}:9092"})
