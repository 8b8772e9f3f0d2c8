"""Secrets of a node's file are shown by no configuration and by no error about it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config

HUSH = "hush-hush-hush-hush"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
COMMON = {
    "controller.quorum.voters": "101@localhost:9093",
    "delegation.token.secret.key": HUSH,
    "telemetry.otlp.endpoint": "grpc://h",
    "telemetry.otlp.headers": f"authorization=Bearer {HUSH}",
}
BROKER = {
    **COMMON,
    "node.id": "1",
    "listeners": "PLAINTEXT://:1,OUT://:2",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.out.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_al="{HUSH}";',
}
CONTROLLER = {**COMMON, "node.id": "101"}
LOADED = [(load_broker_config, BROKER), (load_controller_config, CONTROLLER)]


@pytest.mark.parametrize(("load", "texts"), LOADED)
def test_a_configuration_shows_no_secret(
    load: Callable[[Mapping[str, str]], Any], texts: Mapping[str, str]
) -> None:
    config, unknown = load(texts)
    assert not unknown
    assert HUSH not in repr(config)
    assert HUSH not in str(config)


@pytest.mark.parametrize(
    "wrong",
    [
        {"telemetry.otlp.headers": HUSH},
        {"ssl.keystore.key": HUSH},
        {"listener.name.out.plain.sasl.jaas.config": HUSH},
        {"listener.name.out.plain.sasl.jaas.config": f'x.Y required user_al="{HUSH}";'},
        {"listener.name.out.plain.sasl.jaas.config": f"{PLAIN_MODULE} required user_al={HUSH}"},
        {"delegation.token.secret.key": "hush", "password.encoder.secret": HUSH},
    ],
)
def test_an_error_about_a_secret_does_not_repeat_it(wrong: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_broker_config({**BROKER, **wrong})
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
