"""A setting that demands missing protection stops the start, with one sentence."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config

BROKER = {"node.id": "1", "controller.quorum.voters": "101@localhost:9093"}
CONTROLLER = {**BROKER, "node.id": "101"}

PROTOCOL_MAP = "listener.security.protocol.map"

REFUSED = [
    (
        {"listeners": "IN://:1,OUT://:2", PROTOCOL_MAP: "IN:PLAINTEXT"},
        f"{PROTOCOL_MAP}: has no protocol for OUT, which listeners names",
    ),
    ({PROTOCOL_MAP: "PLAINTEXT:TLS"}, f"{PROTOCOL_MAP}: has 'PLAINTEXT:TLS'; it must be "),
    ({PROTOCOL_MAP: "PLAINTEXT"}, f"{PROTOCOL_MAP}: has 'PLAINTEXT'; it must be "),
    (
        {"controller.listener.names": "CONTROLLER", PROTOCOL_MAP: "CONTROLLER:SASL_PLAINTEXT"},
        f"controller.listener.names: has CONTROLLER, which {PROTOCOL_MAP} says is SASL_PLAINTEXT; "
        "only PLAINTEXT, SSL and SASL_SSL are served there: nodes know each other by certificates",
    ),
    (
        {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
        "security.inter.broker.protocol: is set, and so is inter.broker.listener.name; ",
    ),
    (
        {"sasl.mechanism.controller.protocol": "PLAIN"},
        "sasl.mechanism.controller.protocol: is set, and this part of authentication",
    ),
    ({"listener.name.out.gssapi.sasl.jaas.config": "x"}, "listener.name.out.gssapi.sasl.jaas.con"),
    ({"authorizer.class.name": "org.acme.Mine"}, "authorizer.class.name"),
    ({"super.users": "User:admin"}, "super.users: is set, but authorizer.class.name is not"),
    (
        {"allow.everyone.if.no.acl.found": "false"},
        "allow.everyone.if.no.acl.found: is set, but authorizer.class.name is not",
    ),
    ({"sasl.enabled.mechanisms": "PLAIN"}, "sasl.enabled.mechanisms: is set, and "),
    ({"sasl.oauthbearer.jwks.endpoint.url": "x"}, "sasl.oauthbearer.jwks.endpoint.url: is set"),
    ({"ssl.keystore.location": "/k"}, "ssl.keystore.location: is set, and no listener"),
    ({"ssl.client.auth": "required"}, "ssl.client.auth: is set, and no listener"),
    ({"principal.builder.class": "x"}, "principal.builder.class: is set, and principals are"),
    ({"security.providers": "x"}, "security.providers: is set, and "),
    ({"connections.max.reauth.ms": "1"}, "connections.max.reauth.ms: is set, and "),
    ({"delegation.token.secret.key": "x"}, "delegation.token.secret.key: is too short; it must"),
    (
        {"delegation.token.expiry.time.ms": "5"},
        "delegation.token.expiry.time.ms: is set, and delegation.token.secret.key is not",
    ),
    (
        {"delegation.token.secret.key": "x" * 16, "delegation.token.nosuch": "5"},
        "delegation.token.nosuch: is set; the settings of tokens are ",
    ),
    ({"password.encoder.secret": "x"}, "password.encoder.secret: is set, and "),
    ({"listener.name.out.ssl.keystore.location": "/k"}, "listener.name.out.ssl.keystore.loc"),
    (
        {"listener.name.out.plain.sasl.jaas.config": "x"},
        "listener.name.out.plain.sasl.jaas.config: is set, and ",
    ),
    (
        {"listener.name.out.principal.builder.class": "x"},
        "listener.name.out.principal.builder.class: is set, and principals are",
    ),
]


REFUSED_OF_BROKERS = [
    (
        {"listeners": "SSL://:9092"},
        "listener.name.ssl.ssl.keystore.location: is not set, and SSL encrypts; give a PEM file",
    ),
    (
        {"listeners": "ssl://:9092", "ssl.keystore.location": "/k", "ssl.client.auth": "required"},
        "listener.name.ssl.ssl.truststore.location: is not set, and ssl.client.auth is required; ",
    ),
    (
        {"security.inter.broker.protocol": "SSL"},
        "inter.broker.listener.name: is SSL; it must be one of listeners: PLAINTEXT",
    ),
    ({"listeners": "SSL://:9092", "ssl.typo": "1"}, "ssl.typo: is set, and there is no such "),
    (
        {"listeners": "IN://:1,SSL://:2", "listener.name.in.ssl.keystore.location": "/k"},
        "listener.name.in.ssl.keystore.location: is for IN; the listeners with TLS are SSL",
    ),
    (
        {"controller.listener.names": "CONTROLLER", PROTOCOL_MAP: "CONTROLLER:SSL"},
        "listener.name.controller.ssl.keystore.location: is not set, and CONTROLLER encrypts; ",
    ),
    (
        {
            "controller.listener.names": "CONTROLLER",
            PROTOCOL_MAP: "CONTROLLER:SSL",
            "ssl.keystore.location": "/k",
            "ssl.client.auth": "requested",
        },
        "ssl.client.auth: is requested, but nodes always present certificates to each other; set "
        "listener.name.controller.ssl.client.auth=required, or remove it",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), REFUSED_OF_BROKERS)
def test_encryption_that_a_broker_cannot_give_stops_its_start(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config({**BROKER, **texts})
    assert str(caught.value).startswith(sentence)


REFUSED_OF_CONTROLLERS = [
    (
        {"listeners": "PLAINTEXT://:9092,SASL_PLAINTEXT://:9093"},
        "listeners: has SASL_PLAINTEXT; ",
    ),
    (
        {"listeners": "OUT://:9092", PROTOCOL_MAP: "OUT:SASL_PLAINTEXT"},
        f"listeners: has OUT, which {PROTOCOL_MAP} says is SASL_PLAINTEXT; ",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), REFUSED_OF_CONTROLLERS)
def test_logins_that_a_controller_cannot_ask_for_stop_its_start(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_controller_config({**CONTROLLER, **texts})
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(("texts", "sentence"), REFUSED)
def test_protection_that_is_not_served_stops_the_start(
    texts: dict[str, str], sentence: str
) -> None:
    for load, minimal in ((load_broker_config, BROKER), (load_controller_config, CONTROLLER)):
        with pytest.raises(ConfigError) as caught:
            load({**minimal, **texts})
        assert str(caught.value).startswith(sentence)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "texts",
    [
        {"listeners": "PLAINTEXT://:9092", "security.inter.broker.protocol": "PLAINTEXT"},
        {"listeners": "IN://:1,OUT://:2"},
        {"listeners": "IN://:1,OUT://:2", PROTOCOL_MAP: "in:plaintext, OUT:PLAINTEXT"},
        # Kafka's own files map protocols that no listener of theirs uses.
        {
            "listeners": "PLAINTEXT://:9092",
            "controller.listener.names": "CONTROLLER",
            PROTOCOL_MAP: "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        },
        {"authorizer.class.name": "", "super.users": " "},
    ],
)
def test_what_asks_for_nothing_more_than_there_is_is_let_through(texts: dict[str, str]) -> None:
    config, unknown = load_broker_config({**BROKER, **texts})
    assert {one.protocol for one in config.listeners} == {"PLAINTEXT"}
    assert not [key for key in unknown if texts[key].strip()]
