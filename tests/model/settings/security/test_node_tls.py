"""Nodes connect to the controllers' listeners with the certificate configured for them."""

from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config

BROKER = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
CONTROLLER = {**BROKER, "node.id": "101"}
PEM = {"ssl.keystore.location": "/node.pem", "ssl.truststore.location": "/ca.pem"}
BOTH = {"listener.security.protocol.map": "PLAIN:PLAINTEXT,SAFE:SSL,PLAINTEXT:PLAINTEXT", **PEM}


def test_a_broker_dials_with_the_tls_of_the_first_listener_of_controllers() -> None:
    config, unknown = load_broker_config({**BROKER, **BOTH, "controller.listener.names": "SAFE"})
    assert unknown == set()
    assert config.dial_tls is not None
    assert config.dial_tls.certificate_location == "/node.pem"
    assert config.dial_tls.client_auth == "required"

    names = {"controller.listener.names": "PLAIN,SAFE"}
    assert load_broker_config({**BROKER, **BOTH, **names})[0].dial_tls is None


def test_a_controller_may_listen_on_both_while_a_cluster_changes_over() -> None:
    texts = {
        **CONTROLLER,
        **BOTH,
        "listeners": "PLAIN://:9093,SAFE://:9094",
        "controller.listener.names": "SAFE,PLAIN",
        "listener.name.safe.ssl.keystore.location": "/own.pem",
    }
    config, unknown = load_controller_config(texts)
    assert unknown == set()
    assert set(config.tls) == {"SAFE"}
    assert config.tls["SAFE"].certificate_location == "/own.pem"
    assert config.dial_tls == config.tls["SAFE"]

    turned = load_controller_config({**texts, "controller.listener.names": "PLAIN,SAFE"})[0]
    assert turned.dial_tls is None
    assert set(turned.tls) == {"SAFE"}


def test_a_controller_without_listed_names_dials_what_it_listens_on() -> None:
    config = load_controller_config({**CONTROLLER, **PEM, "listeners": "SSL://:9093"})[0]
    assert config.dial_tls is not None
