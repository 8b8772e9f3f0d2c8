"""SASL settings of a listener: read from Kafka's own settings, or refused by name."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.model.settings.security.jaas import PLAIN_MODULE, SCRAM_MODULE, parse_jaas

MINIMAL = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
PLAIN_USERS = f'{PLAIN_MODULE} required username="broker" password="b" user_broker="b" user_al="a";'
SCRAM_LOGIN = f'{SCRAM_MODULE} required username="broker" password="s";'
SCRAM_USERS = f'{SCRAM_MODULE} required user_a="b";'
USERS_ALONE = f'{PLAIN_MODULE} required user_a="b";'
OUT = {
    "listeners": "IN://:9091,OUT://:9092",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "IN",
}
ALL = {
    "listeners": "SASL_PLAINTEXT://:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
}
OUT_JAAS = "listener.name.out.plain.sasl.jaas.config"


def loaded(*parts: dict[str, str]) -> BrokerConfig:
    texts = dict(MINIMAL)
    for part in parts:
        texts.update(part)
    config, unknown = load_broker_config(texts)
    assert unknown == set()
    return config


def test_a_listener_takes_its_protocol_from_the_map_else_from_its_name() -> None:
    config = loaded(OUT, {"sasl.enabled.mechanisms": "PLAIN", OUT_JAAS: PLAIN_USERS})
    assert [one.protocol for one in config.listeners] == ["PLAINTEXT", "SASL_PLAINTEXT"]
    assert [one.protocol for one in loaded(ALL).listeners] == ["SASL_PLAINTEXT"]
    assert loaded(ALL).inter_broker_listener == "SASL_PLAINTEXT"


def test_users_and_login_are_those_of_kafkas_own_files() -> None:
    sasl = loaded(ALL).sasl
    listener = sasl.listeners["SASL_PLAINTEXT"]
    assert listener.mechanisms == ("PLAIN",)
    assert listener.plain_users == {"broker": "b", "al": "a"}
    assert sasl.login is not None
    assert (sasl.login.mechanism, sasl.login.username, sasl.login.password) == (
        "PLAIN",
        "broker",
        "b",
    )


def test_passwords_are_not_shown_with_a_configuration() -> None:
    jaas = f'{PLAIN_MODULE} required username="me" password="hush" user_me="hush";'
    key = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    sasl = loaded(ALL, {key: jaas}).sasl
    assert "hush" not in repr(sasl)
    assert "hush" not in repr(parse_jaas(jaas))


@pytest.mark.parametrize(
    "key", ["listener.name.out.sasl.jaas.config", "plain.sasl.jaas.config", "sasl.jaas.config"]
)
def test_a_login_module_may_stand_for_more_than_one_listener(key: str) -> None:
    config = loaded(OUT, {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", key: PLAIN_USERS})
    assert config.sasl.listeners["OUT"].plain_users == {"broker": "b", "al": "a"}
    assert config.sasl.login is None


def test_the_strongest_spelling_of_a_setting_holds() -> None:
    config = loaded(
        OUT,
        {
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.out.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            OUT_JAAS: PLAIN_USERS,
            "connections.max.reauth.ms": "1",
            "listener.name.out.connections.max.reauth.ms": "2",
            "listener.name.out.plain.connections.max.reauth.ms": "3",
            "listener.name.out.sasl.server.max.receive.size": "2048",
            "connection.failed.authentication.delay.ms": "7",
        },
    )
    listener = config.sasl.listeners["OUT"]
    assert listener.mechanisms == ("PLAIN", "SCRAM-SHA-256")
    assert listener.session_ms_max == {"PLAIN": 3, "SCRAM-SHA-256": 2}
    assert listener.receive_bytes_max == 2048
    assert config.sasl.failure_delay_ms == 7


REFUSED = [
    (OUT, "sasl.enabled.mechanisms: is not set, which means GSSAPI, and that is not served; OUT"),
    (
        {**OUT, "sasl.enabled.mechanisms": "GSSAPI,PLAIN"},
        "sasl.enabled.mechanisms: is 'GSSAPI,PLAIN'; it must be a list of any of PLAIN, SCRAM-",
    ),
    (
        {**OUT, "listener.name.out.sasl.enabled.mechanisms": "NTLM"},
        "listener.name.out.sasl.enabled.mechanisms: is 'NTLM'; it must be a list of any of",
    ),
    (
        {**OUT, "sasl.enabled.mechanisms": "PLAIN"},
        f"{OUT_JAAS}: must give the users of PLAIN on OUT",
    ),
    (
        {**OUT, "sasl.enabled.mechanisms": "PLAIN", OUT_JAAS: "hush"},
        f"{OUT_JAAS}: is no login module; it must be ",
    ),
    (
        {**OUT, "sasl.enabled.mechanisms": "PLAIN", OUT_JAAS: SCRAM_LOGIN},
        f"{OUT_JAAS}: has {SCRAM_MODULE}; PLAIN is {PLAIN_MODULE}",
    ),
    (
        {
            **OUT,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.out.scram-sha-256.sasl.jaas.config": SCRAM_USERS,
        },
        "listener.name.out.scram-sha-256.sasl.jaas.config: has user_a; the users of SCRAM-SHA-256",
    ),
    (
        {**OUT, "sasl.enabled.mechanisms": "PLAIN", "listener.name.typo.sasl.jaas.config": "x"},
        "listener.name.typo.sasl.jaas.config: is for TYPO; the listeners with SASL are OUT",
    ),
    (
        {**OUT, "sasl.enabled.mechanisms": "SCRAM-SHA-256", "connections.max.reauth.ms": "-1"},
        "connections.max.reauth.ms: is '-1'; it must be ",
    ),
    (
        {
            **OUT,
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        },
        "sasl.mechanism.inter.broker.protocol: is set, but brokers reach each other by IN",
    ),
    (
        {**ALL, "sasl.mechanism.inter.broker.protocol": ""},
        "sasl.mechanism.inter.broker.protocol: is ''; it must be one of PLAIN",
    ),
    (
        {**ALL, "sasl.mechanism.inter.broker.protocol": "GSSAPI"},
        "sasl.mechanism.inter.broker.protocol: is 'GSSAPI'; it must be one of PLAIN",
    ),
    (
        {**ALL, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
        "sasl.mechanism.inter.broker.protocol: is SCRAM-SHA-512, which sasl.enabled.mechanisms "
        "does not have on SASL_PLAINTEXT: PLAIN",
    ),
    (
        {
            **ALL,
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS_ALONE,
        },
        "listener.name.sasl_plaintext.plain.sasl.jaas.config: must give username and password",
    ),
    (
        {**ALL, "connections.max.idle.ms": "100"},
        "connection.failed.authentication.delay.ms: is 100; it must be below connections.max.idle",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), REFUSED)
def test_what_cannot_be_served_stops_the_start(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(texts)
    assert str(caught.value).startswith(sentence)
    assert "hush" not in str(caught.value)


def test_a_missing_mechanism_between_brokers_stops_the_start() -> None:
    texts = {k: v for k, v in ALL.items() if k != "sasl.mechanism.inter.broker.protocol"}
    with pytest.raises(ConfigError) as caught:
        loaded(texts)
    assert str(caught.value).startswith(
        "sasl.mechanism.inter.broker.protocol: is not set, which means GSSAPI"
    )


def test_a_controller_authenticates_no_clients() -> None:
    texts = {**MINIMAL, "node.id": "101", "sasl.enabled.mechanisms": "PLAIN"}
    with pytest.raises(ConfigError) as caught:
        load_controller_config(texts)
    assert str(caught.value).startswith("sasl.enabled.mechanisms: is set, and ")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f"{PLAIN_MODULE} required;", {}),
        (f"{PLAIN_MODULE} Required ;", {}),
        (f"{PLAIN_MODULE} required a=b c='d;e' ;", {"a": "b", "c": "d;e"}),
        (
            f'{PLAIN_MODULE} required\n  username="u"\n  password="p\\"q=";',
            {"username": "u", "password": 'p"q='},
        ),
    ],
)
def test_a_login_module_is_read_as_java_reads_it(text: str, options: dict[str, str]) -> None:
    found = parse_jaas(text)
    assert found.module == PLAIN_MODULE
    assert found.options == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        PLAIN_MODULE,
        f"{PLAIN_MODULE} sometimes;",
        f"{PLAIN_MODULE} required a=b",
        f'{PLAIN_MODULE} required a="b;',
        f"{PLAIN_MODULE} required a=b a=c;",
        f"{PLAIN_MODULE} required; {PLAIN_MODULE} required;",
    ],
)
def test_what_is_no_login_module_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_jaas(text)
