"""Files that `ottla up --secure` writes for nodes and clients, without starting nodes."""

import json
from pathlib import Path

import pytest

from ottla.cli.cluster.cluster_file import ClusterPlan, make_plan, properties_of
from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.model.settings.security.client_security import access_of
from ottla.node.properties import parse_properties


def planned(directory: Path, *, is_secure: bool = True) -> ClusterPlan:
    plan = make_plan(
        directory, host="localhost", port=0, controllers=2, brokers=2, is_secure=is_secure
    )
    plan.write_properties()
    plan.write()
    return plan


def controllers_of(plan: ClusterPlan) -> list[ControllerConfig]:
    files = [properties_of("controller", node) for node in plan.controllers]
    return [load_controller_config(parse_properties(file.read_text()))[0] for file in files]


def brokers_of(plan: ClusterPlan) -> list[BrokerConfig]:
    files = [properties_of("broker", node) for node in plan.brokers]
    return [load_broker_config(parse_properties(file.read_text()))[0] for file in files]


def test_every_node_asks_who_others_are(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    nodes: list[ControllerConfig | BrokerConfig] = [*controllers_of(plan), *brokers_of(plan)]
    for config in nodes:
        assert config.dial_tls is not None
        assert config.dial_tls.client_auth == "required"
        assert config.authorizer.is_on
        assert config.authorizer.super_users == {
            *("User:admin", "User:broker", "User:CN=broker-1", "User:CN=broker-2"),
            *("User:CN=controller-101", "User:CN=controller-102"),
        }
    for broker in brokers_of(plan):
        assert [one.protocol for one in broker.listeners] == ["SASL_SSL"]
        assert broker.sasl.login is not None
        assert broker.sasl.login.username == "broker"
    own = {config.dial_tls.certificate_location for config in brokers_of(plan) if config.dial_tls}
    assert len(own) == 2


def test_clients_get_settings_in_the_keys_of_both_families(tmp_path: Path) -> None:
    planned(tmp_path)
    for name in ("client.properties", "client-java.properties"):
        texts = parse_properties((tmp_path / name).read_text())
        texts.pop("bootstrap.servers")
        access = access_of(texts)
        assert access.login is not None
        assert access.login.username == "admin"
        assert access.tls is not None
        assert access.tls.trust_location == str(tmp_path / "security" / "ca.pem")


def test_a_cluster_that_is_taken_up_again_keeps_its_secrets(tmp_path: Path) -> None:
    first = planned(tmp_path)
    again = planned(tmp_path, is_secure=False)
    assert first.secure is not None
    assert again.secure is not None
    assert again.secure.passwords == first.secure.passwords
    assert len({*first.secure.passwords.values()}) == 2


def test_a_cluster_that_was_begun_without_is_not_made_secure_by_a_flag(tmp_path: Path) -> None:
    planned(tmp_path, is_secure=False)
    with pytest.raises(ConfigError, match="was begun without; start another with --dir"):
        planned(tmp_path)


def test_a_file_of_users_that_is_damaged_is_named(tmp_path: Path) -> None:
    planned(tmp_path)
    users = tmp_path / "security" / "users.json"
    users.write_text(json.dumps({"admin": "x"}))
    with pytest.raises(ConfigError, match=r"users\.json was not written by 'ottla up'"):
        planned(tmp_path)
