"""Roles of a process, and the settings of each role in one file."""

from pathlib import Path

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.roles import roles_of
from tests.stock_files import broker_settings, controller_settings, server_settings

DIRECTORY = Path("/data")
STOCK = server_settings(DIRECTORY)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("broker", {"broker"}),
        ("controller", {"controller"}),
        ("broker,controller", {"broker", "controller"}),
        (" controller , broker", {"broker", "controller"}),
    ],
)
def test_roles_are_read_from_the_file(text: str, roles: set[str]) -> None:
    assert roles_of({"process.roles": text}) == roles


@pytest.mark.parametrize("text", ["zookeeper", "broker,broker", "broker;controller"])
def test_an_unknown_or_repeated_role_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="must be broker, controller or broker,controller"):
        roles_of({"process.roles": text})


def test_a_file_without_roles_is_refused_unless_the_command_names_one() -> None:
    with pytest.raises(ConfigError, match=r"process\.roles: is not set"):
        roles_of({})
    assert roles_of({}, "broker") == {"broker"}


def test_each_role_gets_its_own_listeners() -> None:
    broker, _ = load_broker_config(STOCK)
    controller, _ = load_controller_config(STOCK)

    assert broker.listeners == (ListenAddress("PLAINTEXT", "", 9092),)
    assert broker.advertised_listeners == (ListenAddress("PLAINTEXT", "localhost", 9092),)
    assert controller.listeners == (ListenAddress("CONTROLLER", "", 9093),)
    assert controller.advertised_addresses == (ListenAddress("CONTROLLER", "localhost", 9093),)


def test_the_metadata_log_is_in_the_first_log_directory() -> None:
    settings = {**STOCK, "log.dirs": "/one,/two"}

    assert load_broker_config(settings)[0].metadata_directory == "/one"
    assert load_controller_config(settings)[0].metadata_log_dir == "/one"
    alone = controller_settings(Path("/alone"))
    assert load_controller_config(alone)[0].metadata_log_dir == "/alone"
    named = {**STOCK, "metadata.log.dir": "/metadata"}
    assert load_broker_config(named)[0].metadata_directory == "/metadata"
    assert load_controller_config(named)[0].metadata_log_dir == "/metadata"


def test_only_a_process_with_both_roles_has_the_id_of_a_voter() -> None:
    static = {"controller.quorum.voters": "1@localhost:9093"}

    assert load_broker_config({**STOCK, **static})[0].is_controller
    with pytest.raises(ConfigError, match="give this broker a number of its own"):
        load_broker_config({**broker_settings(DIRECTORY), **static, "node.id": "1"})


@pytest.mark.parametrize(
    ("key", "text", "sentence"),
    [
        ("controller.listener.names", "", "is not set; name the listener of the controller role"),
        ("controller.listener.names", "OTHER", "has OTHER, which is not in listeners"),
        ("listeners", "CONTROLLER://:9093", "add one for the clients of the broker"),
        ("inter.broker.listener.name", "CONTROLLER", "name one of the others"),
    ],
)
def test_listeners_that_cannot_be_divided_are_refused(key: str, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_broker_config({**STOCK, key: text})


def test_logins_of_clients_are_no_matter_of_the_controller_role() -> None:
    secure = {
        **STOCK,
        "listeners": "SAFE://:9092,CONTROLLER://:9093",
        "advertised.listeners": "SAFE://localhost:9092,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "SAFE",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.safe.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain."
        'PlainLoginModule required username="a" password="b" user_a="b";',
    }

    broker, _ = load_broker_config(secure)
    controller, _ = load_controller_config(secure)

    assert broker.sasl.listeners.keys() == {"SAFE"}
    assert controller.listeners == (ListenAddress("CONTROLLER", "", 9093),)


def test_the_buffers_of_kafkas_files_are_those_of_both_roles() -> None:
    broker, _ = load_broker_config(STOCK)
    controller, _ = load_controller_config(controller_settings(DIRECTORY))

    assert broker.socket_send_buffer_bytes == controller.socket_send_buffer_bytes == 102_400
    assert broker.socket_receive_buffer_bytes == controller.socket_receive_buffer_bytes == 102_400
