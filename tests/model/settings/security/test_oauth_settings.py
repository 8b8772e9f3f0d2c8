"""Settings of OAUTHBEARER: their values, and those that prevent a start."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.security.client_security import access_of, login_of
from ottla.model.settings.security.jaas import OAUTHBEARER_MODULE
from ottla.model.settings.security.oauth import UNSECURED_VALIDATOR, VALIDATOR, OAuthGrant
from ottla.model.settings.security.tls import TlsConfig

BROKER = {
    "node.id": "1",
    "controller.quorum.voters": "101@localhost:9093",
    "listeners": "PLAINTEXT://:1,OUT://:2",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "OAUTHBEARER",
}
URL = "https://issuer.example/keys"
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
JWKS = "sasl.oauthbearer.jwks.endpoint.url"
KEYS = {JWKS: URL, URLS: f"{URL},https://issuer.example/token"}
EXPECTED = {
    "sasl.oauthbearer.expected.audience": "a,b",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
}
TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"
BETWEEN = {
    "inter.broker.listener.name": "OUT",
    "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
}


def loaded(texts: dict[str, str]) -> BrokerConfig:
    config, unknown = load_broker_config({**BROKER, **texts})
    assert unknown == set()
    return config


def test_a_listener_takes_tokens_as_its_settings_say() -> None:
    handler = {"listener.name.out.oauthbearer.sasl.server.callback.handler.class": VALIDATOR}
    skew = {"listener.name.out.sasl.oauthbearer.clock.skew.seconds": "5"}
    rules = loaded(KEYS | EXPECTED | handler | skew).sasl.listeners["OUT"].oauth
    assert rules is not None
    assert (rules.jwks_url, rules.refresh_ms) == (URL, 3_600_000)
    assert (rules.claims.audiences, rules.claims.issuer) == (("a", "b"), "https://issuer.example")
    assert rules.claims.skew_ms == 5_000


def test_unsecured_tokens_are_asked_for_by_kafkas_class() -> None:
    rules = loaded({"sasl.server.callback.handler.class": UNSECURED_VALIDATOR})
    listener = rules.sasl.listeners["OUT"]
    assert listener.oauth is not None
    assert listener.oauth.jwks_url is None


REFUSED = [
    ({}, f"{JWKS}: is not set; OAUTHBEARER needs the keys"),
    ({JWKS: "http://issuer.example/keys"}, f"{JWKS}: is 'http://issuer.example/keys'; it must be"),
    ({JWKS: "https://u:p@issuer.example/"}, f"{JWKS}: is 'https://u:p@issuer.example/'; it must"),
    ({JWKS: "file://host/keys"}, f"{JWKS}: is 'file://host/keys'; it must be"),
    ({JWKS: URL}, f"{JWKS}: has a URL that {URLS} does not list"),
    ({**KEYS, URLS: f"{URL}/"}, f"{JWKS}: has a URL that {URLS} does not list"),
    ({JWKS: "file:///etc/keys"}, f"{JWKS}: has a URL that {URLS} does not list: file:///etc/keys"),
    (KEYS, "sasl.oauthbearer.expected.audience: is not set; set it, or sasl.oauthbearer.allow.un"),
    (
        {**KEYS, "sasl.oauthbearer.expected.audience": "a"},
        "sasl.oauthbearer.expected.issuer: is not set; set it, or sasl.oauthbearer.allow.unverifi",
    ),
    (
        {**KEYS, "sasl.server.callback.handler.class": UNSECURED_VALIDATOR},
        f"{JWKS}: is set, and sasl.server.callback.handler.class verifies no signature",
    ),
    (
        {**KEYS, **EXPECTED, "sasl.server.callback.handler.class": "com.example.Mine"},
        "sasl.server.callback.handler.class: is 'com.example.Mine'; it must be one of",
    ),
    (
        {**KEYS, **EXPECTED, "sasl.oauthbearer.jwt.validator.class": "com.example.Mine"},
        "sasl.oauthbearer.jwt.validator.class: is 'com.example.Mine'; it must be one of",
    ),
    (
        {**KEYS, **EXPECTED, "sasl.enabled.mechanisms": "SCRAM-SHA-256"},
        f"{JWKS}: is set, and no listener has the mechanism OAUTHBEARER",
    ),
    ({**KEYS, **EXPECTED, "sasl.login.read.timeout.ms": "1"}, "sasl.login.read.timeout.ms: is set"),
    (
        {**KEYS, **EXPECTED, "sasl.login.refresh.window.factor": "0.9"},
        "sasl.login.refresh.window.factor: is set, and a token is renewed at the first login "
        "after 80 % of its life",
    ),
    ({**KEYS, **EXPECTED, **BETWEEN}, f"{TOKEN_URL}: is not set; a login by OAUTHBEARER needs"),
    (
        {**KEYS, **EXPECTED, **BETWEEN, TOKEN_URL: "https://other.example/token"},
        f"{TOKEN_URL}: has a URL that {URLS} does not list: https://other.example/token",
    ),
    (
        {**KEYS, **EXPECTED, **BETWEEN, TOKEN_URL: "https://issuer.example/token"},
        "sasl.oauthbearer.client.credentials.client.id: is not set; https://issuer.example/token",
    ),
    (
        {**KEYS, **EXPECTED, TOKEN_URL: "https://issuer.example/token"},
        f"{TOKEN_URL}: is set, and this broker does not log in by OAUTHBEARER",
    ),
    (
        {**KEYS, **EXPECTED, f"plain.{JWKS}": URL},
        f"plain.{JWKS}: is set, and this part of authentication",
    ),
]

JAAS = "listener.name.out.oauthbearer.sasl.jaas.config"
REFUSED += [
    ({**KEYS, **EXPECTED, JAAS: f"{OAUTHBEARER_MODULE} required {option};"}, sentence)
    for option, sentence in (
        ('unsecuredLoginStringClaim_sub="al"', "sasl.jaas.config: has unsecuredLoginStringClaim"),
        ('ssl.client.auth="required"', "sasl.jaas.config: has ssl.client.auth; the options"),
        ('ssl.truststore.password="x"', "sasl.jaas.config: has ssl.truststore.password; a PEM "),
        (
            'ssl.truststore.type="JKS"',
            "sasl.jaas.config (option ssl.truststore.type): is 'JKS'; only PEM is read",
        ),
    )
]
REFUSED += [
    (
        {
            JWKS: "file:///keys",
            URLS: "file:///keys",
            **EXPECTED,
            JAAS: f'{OAUTHBEARER_MODULE} required ssl.truststore.location="/ca.pem";',
        },
        f"{JAAS}: has options of TLS, and neither ",
    ),
    (
        {**KEYS, **EXPECTED, "sasl.login.retry.backoff.ms": "5"},
        "sasl.login.retry.backoff.ms: is set, and this broker does not log in by OAUTHBEARER",
    ),
]


@pytest.mark.parametrize(("texts", "sentence"), REFUSED)
def test_what_is_not_said_in_full_stops_the_start(texts: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(texts)
    assert str(caught.value).startswith(sentence)


def test_brokers_get_their_own_tokens_by_client_id_and_secret() -> None:
    token = {
        TOKEN_URL: "https://issuer.example/token",
        "listener.name.out.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required "
        'clientId="broker" clientSecret="s3" scope="ottla" ssl.truststore.location="/ca.pem";',
        "sasl.login.connect.timeout.ms": "5",
        "sasl.login.read.timeout.ms": "6",
        "sasl.login.retry.backoff.ms": "7",
        "sasl.login.retry.backoff.max.ms": "8",
    }
    login = loaded(KEYS | EXPECTED | BETWEEN | token).sasl.login
    assert login is not None
    assert login.grant == OAuthGrant(
        token_url="https://issuer.example/token",
        client_id="broker",
        client_secret="s3",
        scope="ottla",
        tls=TlsConfig(trust_location="/ca.pem"),
        connect_timeout_ms=5,
        read_timeout_ms=6,
        retry_backoff_ms=7,
        retry_backoff_max_ms=8,
    )
    listener = loaded(KEYS | EXPECTED | BETWEEN | token).sasl.listeners["OUT"]
    assert listener.oauth is not None
    assert listener.oauth.tls == TlsConfig(trust_location="/ca.pem")
    assert "s3" not in repr(login)


def test_clients_learn_the_source_of_tokens_in_either_clients_keys() -> None:
    common = {"security.protocol": "SASL_PLAINTEXT", TOKEN_URL: "https://issuer.example/token"}
    kafka = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.credentials.client.id": "c",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
    }
    librdkafka = {
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "c",
        "sasl.oauthbearer.client.secret": "s",
    }
    one, other = login_of(common | kafka), login_of(common | librdkafka)
    assert one == other
    assert one is not None
    assert one.grant is not None
    assert (one.grant.client_id, one.grant.client_secret) == ("c", "s")
    with pytest.raises(ConfigError, match=r"client\.id: is not set"):
        login_of(common | {"sasl.mechanism": "OAUTHBEARER"})


def test_a_client_may_list_where_its_tokens_come_from() -> None:
    texts = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        TOKEN_URL: "https://issuer.example/token",
        "sasl.oauthbearer.client.credentials.client.id": "c",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
    }
    assert login_of(texts | {URLS: f"{URL},https://issuer.example/token"}) is not None
    with pytest.raises(ConfigError, match=r"has a URL that .* does not list"):
        login_of(texts | {URLS: URL})


@pytest.mark.parametrize("what", ["window.factor", "window.jitter", "min.period.seconds"])
def test_a_client_learns_why_the_renewal_of_tokens_is_no_setting(what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        access_of({f"sasl.login.refresh.{what}": "0.8"})
    assert str(caught.value) == (
        f"sasl.login.refresh.{what}: is set, and a token is renewed at the first login after "
        "80 % of its life, which cannot be configured; no thread renews tokens periodically; "
        "remove it"
    )
