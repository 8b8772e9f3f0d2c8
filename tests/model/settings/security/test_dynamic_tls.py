"""TLS settings that a running broker accepts, and their combination with its file."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.security.dynamic_tls import (
    DYNAMIC_TLS_KEYS,
    check_listener,
    is_secret_key,
    listener_tls_definition,
    tls_in_force,
)
from ottla.model.settings.security.tls import TLS_KEYS

LOCATION = "listener.name.out.ssl.keystore.location"


@pytest.fixture
def config() -> BrokerConfig:
    found, _ = load_broker_config(
        {
            "node.id": "1",
            "controller.quorum.voters": "101@127.0.0.1:9093",
            "listeners": "OUT://127.0.0.1:9092,IN://127.0.0.1:9091,PLAINTEXT://127.0.0.1:9090",
            "listener.security.protocol.map": "OUT:SSL,IN:SSL,PLAINTEXT:PLAINTEXT",
            "ssl.keystore.location": "/all.pem",
            "log.dirs": "/data",
        }
    )
    return found


def test_dynamic_are_certificates_keys_and_trust_as_in_kafka() -> None:
    dynamic = {
        bare
        for bare in TLS_KEYS
        if (found := listener_tls_definition(f"listener.name.out.{bare}")) and found.is_dynamic
    }
    assert dynamic == DYNAMIC_TLS_KEYS
    assert "ssl.client.auth" not in dynamic and "ssl.allow.dn.changes" not in dynamic
    for key in ("ssl.keystore.location", "listener.name.out.max.connections", "retention.ms"):
        assert listener_tls_definition(key) is None


def test_a_listeners_own_setting_comes_before_the_file_and_other_listeners_keep_theirs(
    config: BrokerConfig,
) -> None:
    overrides = {LOCATION: "/new.pem", "max.connections": "5"}
    assert tls_in_force(config, "OUT", overrides).certificate_location == "/new.pem"
    assert tls_in_force(config, "IN", overrides) is config.listener_tls["IN"]
    assert tls_in_force(config, "OUT", {}) is config.listener_tls["OUT"]


def test_what_contradicts_the_file_is_refused(config: BrokerConfig) -> None:
    pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----"
    with pytest.raises(ConfigError, match="is set, and so is"):
        tls_in_force(config, "OUT", {"listener.name.out.ssl.keystore.certificate.chain": pem})


def test_a_listener_that_is_not_or_does_not_encrypt_has_no_certificate(
    config: BrokerConfig,
) -> None:
    check_listener(config, LOCATION)
    for name in ("plaintext", "absent", "OUT"):
        with pytest.raises(ConfigError, match="the listeners of this broker with TLS are out, in"):
            check_listener(config, f"listener.name.{name}.ssl.keystore.location")


@pytest.mark.parametrize(
    ("key", "is_secret"),
    [
        ("listener.name.out.ssl.keystore.key", True),
        ("listener.name.out.ssl.key.password", True),
        ("ssl.keystore.key", True),
        (LOCATION, False),
        ("retention.ms", False),
    ],
)
def test_secrets_are_known_with_and_without_prefix(key: str, is_secret: bool) -> None:
    assert is_secret_key(key) is is_secret
