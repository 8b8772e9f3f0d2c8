"""TLS settings of a client, under the keys of Kafka's Java clients and of librdkafka."""

from collections.abc import Mapping
from dataclasses import replace

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.settings.security.tls import (
    CERTIFICATE_CHAIN,
    CIPHER_SUITES,
    ENABLED_PROTOCOLS,
    ENDPOINT_IDENTIFICATION,
    KEY,
    KEY_PASSWORD,
    KEYSTORE_LOCATION,
    KEYSTORE_TYPE,
    NEWEST_PROTOCOL,
    PEM,
    TLS_1_3,
    TRUSTED_CERTIFICATES,
    TRUSTSTORE_LOCATION,
    TRUSTSTORE_TYPE,
    VERSIONS,
    TlsConfig,
    TlsSettings,
    config_of,
    parse_cipher_suites,
    parse_endpoint_identification,
    parse_keystore_type,
    parse_pem,
    parse_truststore_type,
    parse_versions,
)
from ottla.model.values import frozen

KEY_LOCATION = "ssl.key.location"
"""Key of librdkafka's setting for a file that contains only the private key. In Kafka, the file
with the certificate contains the key as well."""

LIBRDKAFKA_TLS_KEYS = {
    "ssl.ca.location": TRUSTSTORE_LOCATION,
    "ssl.ca.pem": TRUSTED_CERTIFICATES,
    "ssl.certificate.location": KEYSTORE_LOCATION,
    "ssl.certificate.pem": CERTIFICATE_CHAIN,
    "ssl.key.pem": KEY,
}
"""TLS settings by librdkafka's key, each with Kafka's key for the same setting."""


@frozen(kw_only=True)
class ClientTls:
    """TLS settings of a client: the certificates that it trusts, and its own certificate."""

    ssl_truststore_location: str | None = setting(
        None,
        key=TRUSTSTORE_LOCATION,
        kind=SettingKind.STRING,
        doc="PEM file with the certificates of the trusted CAs (librdkafka: ssl.ca.location); by "
        "default those of the system.",
    )
    ssl_truststore_certificates: str | None = setting(
        None,
        key=TRUSTED_CERTIFICATES,
        kind=SettingKind.PASSWORD,
        parse=parse_pem,
        doc="Certificates of the trusted CAs, as PEM text (librdkafka: ssl.ca.pem).",
    )
    ssl_truststore_type: str = setting(
        PEM,
        key=TRUSTSTORE_TYPE,
        parse=parse_truststore_type,
        doc="Format of the trusted certificates; only PEM is supported.",
    )
    ssl_keystore_location: str | None = setting(
        None,
        key=KEYSTORE_LOCATION,
        kind=SettingKind.STRING,
        doc="PEM file with the client's certificate and its private key (librdkafka: "
        "ssl.certificate.location).",
    )
    ssl_key_location: str | None = setting(
        None,
        key=KEY_LOCATION,
        kind=SettingKind.STRING,
        doc="PEM file with the private key, if it is not in the certificate's file.",
    )
    ssl_keystore_certificate_chain: str | None = setting(
        None,
        key=CERTIFICATE_CHAIN,
        kind=SettingKind.PASSWORD,
        parse=parse_pem,
        doc="The client's certificate, as PEM text (librdkafka: ssl.certificate.pem).",
    )
    ssl_keystore_key: str | None = setting(
        None,
        key=KEY,
        kind=SettingKind.PASSWORD,
        parse=parse_pem,
        doc="The private key of the certificate, as PEM text (librdkafka: ssl.key.pem).",
    )
    ssl_key_password: str | None = setting(
        None, key=KEY_PASSWORD, kind=SettingKind.PASSWORD, doc="Password of the private key."
    )
    ssl_keystore_type: str = setting(
        PEM,
        key=KEYSTORE_TYPE,
        parse=parse_keystore_type,
        doc="Format of the client's certificate; only PEM is supported.",
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        key=ENDPOINT_IDENTIFICATION,
        parse=parse_endpoint_identification,
        doc="Check that a broker's certificate belongs to the host connected to: https, or empty "
        "for no check.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        VERSIONS, key=ENABLED_PROTOCOLS, parse=parse_versions, doc="Enabled TLS versions."
    )
    ssl_protocol: str = setting(
        TLS_1_3, key=NEWEST_PROTOCOL, one_of=VERSIONS, doc="Newest TLS version that is used."
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (),
        key=CIPHER_SUITES,
        parse=parse_cipher_suites,
        doc="Cipher suites that may be negotiated; empty means OpenSSL's defaults.",
    )

    def tls_config(self, spellings: Mapping[str, str]) -> TlsConfig:
        """Return the TLS settings of the client's connections. Raises ConfigError if they
        contradict each other.

        `spellings` contains the names of settings as the user wrote them, for error messages.
        """
        given = TlsSettings(
            keystore_location=self.ssl_keystore_location,
            certificate_chain=self.ssl_keystore_certificate_chain,
            key=self.ssl_keystore_key,
            key_password=self.ssl_key_password,
            truststore_location=self.ssl_truststore_location,
            trusted_certificates=self.ssl_truststore_certificates,
            enabled_protocols=self.ssl_enabled_protocols,
            newest_protocol=self.ssl_protocol,
            cipher_suites=self.ssl_cipher_suites,
            endpoint_identification=self.ssl_endpoint_identification_algorithm,
        )
        config = config_of(given, spellings)
        if self.ssl_key_location is None:
            return config
        if not self.ssl_keystore_location:
            raise ConfigError(
                KEY_LOCATION, f"is set, and {KEYSTORE_LOCATION} (ssl.certificate.location) is not"
            )
        return replace(config, key_location=self.ssl_key_location)

    @property
    def has_tls_settings(self) -> bool:
        """True if any setting of TLS differs from its default."""
        default = ClientTls()
        return any(getattr(self, name) != getattr(default, name) for name in _NAMES)


_NAMES = tuple(ClientTls.__dataclass_fields__)
