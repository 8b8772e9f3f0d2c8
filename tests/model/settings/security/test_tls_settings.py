"""TLS settings of a listener: read from Kafka's own settings, or refused by name."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, definitions
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.tls import (
    SECRET_KEYS,
    TLS_KEYS,
    TlsConfig,
    TlsSettings,
    check_server,
    is_tls_key,
    tls_of,
)
from ottla.model.settings.security.tls_ciphers import TLS_1_2_SUITES, TLS_1_3_SUITES

OUT = ListenAddress("OUT", "", 9092, "SSL")
LOGIN = ListenAddress("LOGIN", "", 9093, "SASL_SSL")
PLAIN = ListenAddress("PLAIN", "", 9094, "PLAINTEXT")
ALL = (OUT, LOGIN, PLAIN)
FILE = {"ssl.keystore.location": "/etc/ottla/server.pem"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n"


def tls(*parts: dict[str, str]) -> dict[str, TlsConfig]:
    return tls_of({key: text for part in parts for key, text in part.items()}, ALL)


def test_each_listener_that_encrypts_has_what_its_prefix_says_else_what_holds_for_all() -> None:
    found = tls(
        FILE,
        {
            "listener.name.login.ssl.keystore.location": "/login.pem",
            "listener.name.login.ssl.key.password": "hush",
            "ssl.truststore.location": "/ca.pem",
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:CN=(.*)/$1/,DEFAULT",
        },
    )
    assert set(found) == {"OUT", "LOGIN"}
    out, login = found["OUT"], found["LOGIN"]
    assert (out.certificate_location, login.certificate_location) == (
        "/etc/ottla/server.pem",
        "/login.pem",
    )
    assert (out.key_password, login.key_password) == (None, "hush")
    assert out.files == ("/etc/ottla/server.pem", "/ca.pem")
    assert out.principal_rules.user_of("CN=me") == "me"
    assert login.spelling("ssl.keystore.location") == "listener.name.login.ssl.keystore.location"
    assert out.spelling("ssl.keystore.location") == "ssl.keystore.location"


def test_for_clients_that_log_in_only_the_prefixed_setting_asks_for_a_certificate() -> None:
    trust = {"ssl.truststore.location": "/ca.pem"}
    found = tls(FILE, trust, {"ssl.client.auth": "required"})
    assert (found["OUT"].client_auth, found["LOGIN"].client_auth) == ("required", "none")
    found = tls(FILE, trust, {"listener.name.login.ssl.client.auth": "requested"})
    assert (found["OUT"].client_auth, found["LOGIN"].client_auth) == ("none", "requested")
    with pytest.raises(ConfigError, match=r"write listener\.name\.login\.ssl\.client\.auth"):
        tls_of({**FILE, **trust, "ssl.client.auth": "required"}, (LOGIN, PLAIN))


def test_certificates_may_stand_in_the_settings_themselves() -> None:
    one_line = {
        "ssl.keystore.certificate.chain": CERTIFICATE.replace("\n", "\\n"),
        "ssl.keystore.key": KEY.replace("\n", "\\n  "),
        "ssl.truststore.certificates": CERTIFICATE,
    }
    config = tls(one_line)["OUT"]
    assert (config.certificate_chain, config.key) == (CERTIFICATE, KEY)
    assert config.trusted_certificates == CERTIFICATE
    assert config.has_certificate
    assert config.has_trust
    assert config.files == ()


def test_secrets_are_not_shown_with_a_configuration() -> None:
    config = tls(
        {
            "ssl.keystore.certificate.chain": CERTIFICATE,
            "ssl.keystore.key": KEY,
            "ssl.key.password": "hush",
        }
    )["OUT"]
    assert "hush" not in repr(config)
    assert {
        key for key, one in definitions(TlsSettings).items() if one.kind is SettingKind.PASSWORD
    } == SECRET_KEYS


def test_versions_are_those_enabled_up_to_the_newest_that_have_a_suite() -> None:
    assert tls(FILE)["OUT"].versions == ("TLSv1.2", "TLSv1.3")
    older = {"ssl.protocol": "TLSv1.2"}
    assert tls(FILE, older)["OUT"].versions == ("TLSv1.2",)
    newer = {"ssl.enabled.protocols": "TLSv1.3"}
    assert tls(FILE, newer)["OUT"].versions == ("TLSv1.3",)
    suites = {
        "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,ECDHE-RSA-AES256-GCM-SHA384"
    }
    config = tls(FILE, suites)["OUT"]
    assert config.versions == ("TLSv1.2",)
    assert config.ciphers == "ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384"
    config = tls(FILE, {"ssl.cipher.suites": ",".join(TLS_1_3_SUITES)})["OUT"]
    assert (config.versions, config.ciphers) == (("TLSv1.3",), "")


def test_an_empty_endpoint_identification_is_a_value() -> None:
    key = "ssl.endpoint.identification.algorithm"
    assert tls(FILE)["OUT"].checks_names
    assert not tls(FILE, {key: ""})["OUT"].checks_names
    found = tls(FILE, {key: "", "listener.name.out.ssl.endpoint.identification.algorithm": "https"})
    assert (found["OUT"].checks_names, found["LOGIN"].checks_names) == (True, False)


REFUSED = [
    ({"ssl.keystore.type": "JKS"}, "ssl.keystore.type: is 'JKS'; only PEM is read. Convert it: k"),
    ({"listener.name.out.ssl.truststore.type": "PKCS12"}, "listener.name.out.ssl.truststore.type:"),
    (
        {"ssl.keystore.password": "hush"},
        "ssl.keystore.password: is set, and a PEM file has no pass",
    ),
    ({"ssl.truststore.password": "hush"}, "ssl.truststore.password: is set, and a PEM file of cer"),
    ({"ssl.provider": "BC"}, "ssl.provider: is set, and TLS is provided by OpenSSL"),
    (
        {"ssl.keymanager.algorithm": "PKIX"},
        "ssl.keymanager.algorithm: is set, and TLS is provided by OpenSSL",
    ),
    ({"ssl.secure.random.implementation": "SHA1PRNG"}, "ssl.secure.random.implementation: is set"),
    ({"ssl.engine.factory.class": "a.B"}, "ssl.engine.factory.class: is set, and code of the JVM"),
    ({"ssl.typo": "1"}, "ssl.typo: is set, and there is no such setting of TLS; remove it"),
    ({"listener.name.out.ssl.typo": "1"}, "listener.name.out.ssl.typo: is set, and there is no s"),
    ({"ssl.client.auth": "yes"}, "ssl.client.auth: is 'yes'; it must be one of none, requested,"),
    ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, "ssl.enabled.protocols: is 'TLSv1.1,TLSv1.2'; "),
    ({"ssl.protocol": "TLS"}, "ssl.protocol: is 'TLS'; it must be one of TLSv1.2, TLSv1.3"),
    (
        {"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
        "ssl.protocol: is TLSv1.2, which ssl.enabled.protocols does not have",
    ),
    (
        {"ssl.cipher.suites": "TLS_RSA_WITH_NULL_MD5"},
        "ssl.cipher.suites: has 'TLS_RSA_WITH_NULL_MD5",
    ),
    (
        {"ssl.cipher.suites": TLS_1_3_SUITES[0]},
        "ssl.cipher.suites: has some suites of TLSv1.3 and ",
    ),
    (
        {"ssl.cipher.suites": next(iter(TLS_1_2_SUITES)), "ssl.enabled.protocols": "TLSv1.3"},
        "ssl.cipher.suites: has no suite of TLSv1.3",
    ),
    (
        {"ssl.endpoint.identification.algorithm": "ldaps"},
        "ssl.endpoint.identification.algorithm: is 'ldaps'; it must be https, or empty",
    ),
    (
        {"ssl.principal.mapping.rules": "RULE:(/a/"},
        "ssl.principal.mapping.rules: is 'RULE:(/a/'; it must be a list of DEFAULT or RULE:",
    ),
    (
        {"listener.name.plain.ssl.client.auth": "none"},
        "listener.name.plain.ssl.client.auth: is for",
    ),
    ({"ssl.keystore.key": "hush"}, "ssl.keystore.key: is not readable; it must be PEM text"),
    (
        {"ssl.keystore.key": KEY},
        "ssl.keystore.key: is set, and so is ssl.keystore.location; remove one of them",
    ),
    (
        {"ssl.keystore.location": "", "ssl.keystore.key": KEY},
        "listener.name.out.ssl.keystore.certificate.chain: is not set, and ssl.keystore.key is; ",
    ),
    (
        {"ssl.keystore.location": "", "ssl.key.password": "hush"},
        "ssl.key.password: is set, and there is no listener.name.out.ssl.keystore.location",
    ),
    (
        {"ssl.truststore.location": "/ca.pem", "ssl.truststore.certificates": CERTIFICATE},
        "ssl.truststore.certificates: is set, and so is ssl.truststore.location",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), REFUSED)
def test_what_cannot_be_honoured_is_refused_with_the_reason(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        tls(FILE, texts)
    assert str(caught.value).startswith(sentence)
    assert "hush" not in str(caught.value)


def test_kafkas_defaults_pass_where_they_say_nothing() -> None:
    passing = {
        "ssl.keymanager.algorithm": "SunX509",
        "ssl.trustmanager.algorithm": "PKIX",
        "ssl.keystore.password": "",
        "ssl.keystore.type": "pem",
    }
    assert tls(FILE, passing) == tls(FILE)


def test_a_setting_of_tls_without_a_listener_that_encrypts_is_refused() -> None:
    with pytest.raises(ConfigError, match="no listener has TLS"):
        tls_of(FILE, (PLAIN,))
    assert tls_of({"ssl.keystore.location": " "}, (PLAIN,)) == {}


def test_a_server_needs_a_certificate_and_knows_whose_clients_it_asks() -> None:
    check_server(tls(FILE)["OUT"], "OUT")
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.ssl\.keystore\.location: is not"):
        check_server(tls({})["OUT"], "OUT")
    with pytest.raises(ConfigError, match=r"listener\.name\.out\.ssl\.truststore\.location: is no"):
        check_server(tls(FILE, {"ssl.client.auth": "required"})["OUT"], "OUT")


@pytest.mark.parametrize("key", sorted(TLS_KEYS))
def test_every_setting_may_be_of_one_listener(key: str) -> None:
    assert is_tls_key(key)
    assert is_tls_key(f"listener.name.out.{key}")
    assert not is_tls_key(f"{key}.more")
