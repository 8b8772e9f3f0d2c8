"""TLS settings of clients: Kafka's and librdkafka's keys have the same meaning, and none is
ignored."""

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.security.client_security import ClientSecurity, access_of

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n"
ENCRYPTED = {"security.protocol": "SSL"}


def test_librdkafkas_keys_mean_what_kafkas_do() -> None:
    kafka = {
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    librdkafka = {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
        "enable.ssl.certificate.verification": "true",
    }
    one, other = access_of(ENCRYPTED | kafka).tls, access_of(ENCRYPTED | librdkafka).tls
    assert one == other
    assert one is not None
    assert (one.trust_location, one.certificate_location) == ("/ca.pem", "/me.pem")
    assert not one.checks_names
    texts = {"ssl.ca.pem": CERTIFICATE, "ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY}
    given = access_of(ENCRYPTED | texts).tls
    assert given is not None
    assert (given.trusted_certificates, given.key) == (CERTIFICATE, KEY)
    apart = {"ssl.certificate.location": "/me.pem", "ssl.key.location": "/me.key"}
    found = access_of(ENCRYPTED | apart).tls
    assert found is not None
    assert found.files == ("/me.pem", "/me.key")


def test_names_are_checked_and_nothing_is_encrypted_unless_it_is_said() -> None:
    found = access_of(ENCRYPTED).tls
    assert found is not None
    assert found.checks_names
    assert access_of({}).tls is None
    assert "hush" not in repr(ClientSecurity(security_protocol="SSL", ssl_keystore_key=KEY))


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"ssl.ca.location": "/x"}, "security.protocol: is PLAINTEXT, and settings of ssl. are"),
        ({"security.protocol": "TLS"}, "security.protocol: is 'TLS'; it must be one of PLAINTEXT"),
        (ENCRYPTED | {"sasl.username": "al"}, "security.protocol: is SSL, and settings of sasl."),
        (
            ENCRYPTED | {"enable.ssl.certificate.verification": "false"},
            "enable.ssl.certificate.verification: is not true; a client that verifies no certifi",
        ),
        (ENCRYPTED | {"ssl.truststore.type": "JKS"}, "ssl.truststore.type: is 'JKS'; only PEM is "),
        (ENCRYPTED | {"ssl.truststore.password": "hush"}, "ssl.truststore.password: is set, and a"),
        (ENCRYPTED | {"ssl.typo": "1"}, "ssl.typo: is set, and there is no such setting of TLS"),
        (ENCRYPTED | {"ssl.key.pem": "hush"}, "ssl.key.pem: is not readable; it must be PEM text"),
        (ENCRYPTED | {"ssl.key.location": "/x"}, "ssl.key.location: is set, and ssl.keystore.loca"),
        (
            ENCRYPTED | {"ssl.ca.location": "/x", "ssl.ca.pem": CERTIFICATE},
            "ssl.ca.pem: is set, and so is ssl.ca.location; remove one of them",
        ),
    ],
)
def test_what_cannot_be_honoured_is_refused_as_it_was_written(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        access_of(texts)
    assert str(caught.value).startswith(sentence)
    assert "hush" not in str(caught.value)
