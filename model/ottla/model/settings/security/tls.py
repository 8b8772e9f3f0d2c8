"""TLS settings of a listener and of its clients: certificates, trust, protocol versions, cipher
suites.

Keys and meanings are Kafka's. Key stores must be PEM files. A setting may be written in two ways:
`listener.name.NAME.KEY`, which takes precedence, and `KEY`. A node with a setting that cannot be
applied does not start, and reports the reason. No TLS setting is ever ignored. Files are not opened
here: see `tls/context_driver.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, definitions, setting, values_of
from ottla.model.settings.endpoints import LISTENER_PREFIX, SASL_SSL, ListenAddress
from ottla.model.settings.security.tls_ciphers import TLS_1_3_SUITES, check_suites, openssl_name
from ottla.model.tls.principal_mapping import PrincipalRules, parse_principal_rules
from ottla.model.values import frozen

SSL = "SSL"
TLS_PROTOCOLS = (SSL, SASL_SSL)
"""Security protocols that use TLS: SSL and SASL_SSL."""

TLS_1_2 = "TLSv1.2"
TLS_1_3 = "TLSv1.3"
VERSIONS = (TLS_1_2, TLS_1_3)
"""Supported TLS versions, oldest first."""

PEM = "PEM"
NONE, REQUESTED, REQUIRED = CLIENT_AUTH = ("none", "requested", "required")

KEYSTORE_TYPE = "ssl.keystore.type"
KEYSTORE_LOCATION = "ssl.keystore.location"
CERTIFICATE_CHAIN = "ssl.keystore.certificate.chain"
KEY = "ssl.keystore.key"
KEY_PASSWORD = "ssl.key.password"
TRUSTSTORE_TYPE = "ssl.truststore.type"
TRUSTSTORE_LOCATION = "ssl.truststore.location"
TRUSTED_CERTIFICATES = "ssl.truststore.certificates"
CLIENT_AUTHENTICATION = "ssl.client.auth"
ENABLED_PROTOCOLS = "ssl.enabled.protocols"
NEWEST_PROTOCOL = "ssl.protocol"
CIPHER_SUITES = "ssl.cipher.suites"
ENDPOINT_IDENTIFICATION = "ssl.endpoint.identification.algorithm"
PRINCIPAL_RULES = "ssl.principal.mapping.rules"
ALLOW_DN_CHANGES = "ssl.allow.dn.changes"
ALLOW_SAN_CHANGES = "ssl.allow.san.changes"

KEY_TO_PEM = (
    "keytool -importkeystore -srckeystore server.jks -destkeystore server.p12 -deststoretype "
    "PKCS12, then openssl pkcs12 -in server.p12 -nodes -out server.pem"
)
TRUST_TO_PEM = "keytool -list -rfc -keystore trust.jks > trust.pem"
CONVERSIONS = {KEYSTORE_TYPE: KEY_TO_PEM, TRUSTSTORE_TYPE: TRUST_TO_PEM}

_NO_PROVIDER = "TLS is provided by OpenSSL, and the JVM's providers have no effect"
REFUSED_KEYS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ssl.keystore.password": (
        f"a PEM file has no password of its own; that of the private key is {KEY_PASSWORD}",
        (),
    ),
    "ssl.truststore.password": ("a PEM file of certificates has no password", ()),
    "ssl.provider": (_NO_PROVIDER, ()),
    "ssl.keymanager.algorithm": (_NO_PROVIDER, ("SunX509",)),
    "ssl.trustmanager.algorithm": (_NO_PROVIDER, ("PKIX",)),
    "ssl.secure.random.implementation": ("OpenSSL's own source of randomness is used", ()),
    "ssl.engine.factory.class": (
        "code of the JVM is not run here",
        ("org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",),
    ),
}
"""TLS settings that are refused: for each key the reason, and the values that are accepted because
they are Kafka's defaults."""


def parse_keystore_type(text: str) -> str:
    """PEM; a JKS or PKCS12 key store is converted with keytool and openssl.

    Checks the type of a key store and returns it. Raises ConfigError for any other type. Error
    messages quote the first line as the description of valid texts.
    """
    return _pem(text, KEYSTORE_TYPE)


def parse_truststore_type(text: str) -> str:
    """PEM; a JKS or PKCS12 trust store is converted with keytool.

    Checks the type of a trust store and returns it. Raises ConfigError for any other type. Error
    messages quote the first line as the description of valid texts.
    """
    return _pem(text, TRUSTSTORE_TYPE)


def parse_versions(text: str) -> tuple[str, ...]:
    """a list of any of TLSv1.2, TLSv1.3.

    Returns the TLS versions, the oldest first. Raises ValueError for any other text. Error messages
    quote the first line as the description of valid texts.
    """
    given = {part.strip() for part in text.split(",") if part.strip()}
    if not given or not given <= set(VERSIONS):
        raise ValueError(text)
    return tuple(version for version in VERSIONS if version in given)


def parse_endpoint_identification(text: str) -> str:
    """https, or empty.

    Checks the value of `ssl.endpoint.identification.algorithm` and returns it. Raises ValueError
    for any other text. Error messages quote the first line as the description of valid texts.
    """
    if text.lower() not in ("", "https"):
        raise ValueError(text)
    return text.lower()


def parse_cipher_suites(text: str) -> tuple[str, ...]:
    """a list of cipher suites, by the names of Java or of OpenSSL.

    Returns the names of the cipher suites. Raises ConfigError if one of them is not supported.
    Error messages quote the first line as the description of valid texts.
    """
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    check_suites(names, CIPHER_SUITES)
    return names


def parse_pem(text: str) -> str:
    r"""PEM text, from -----BEGIN to -----END; a properties file writes its line ends as \n.

    Returns the text with real line ends in place of \n. Raises ValueError if it is not PEM. Error
    messages quote the first line as the description of valid texts.
    """
    lines = [part.strip() for part in text.replace("\\n", "\n").splitlines() if part.strip()]
    if not lines or not lines[0].startswith("-----BEGIN ") or not lines[-1].startswith("-----END "):
        raise ValueError
    return "\n".join(lines) + "\n"


@frozen(kw_only=True)
class TlsSettings:
    """The TLS settings under Kafka's names, with values that apply to all listeners that use
    TLS."""

    keystore_type: str = setting(
        PEM,
        key=KEYSTORE_TYPE,
        parse=parse_keystore_type,
        doc="Format of the own certificate: PEM. Kafka's default, JKS, is not supported.",
    )
    keystore_location: str | None = setting(
        None,
        key=KEYSTORE_LOCATION,
        kind=SettingKind.STRING,
        doc="PEM file with the private key and the certificate chain up to the CA. It must not be "
        "readable by all users. A new file takes effect while the broker runs.",
    )
    certificate_chain: str | None = setting(
        None,
        key=CERTIFICATE_CHAIN,
        kind=SettingKind.PASSWORD,
        parse=parse_pem,
        doc="Certificate chain up to the CA, as PEM text in place of a file.",
    )
    key: str | None = setting(
        None,
        key=KEY,
        kind=SettingKind.PASSWORD,
        parse=parse_pem,
        doc="Private key of the own certificate, as PEM text in place of a file.",
    )
    key_password: str | None = setting(
        None,
        key=KEY_PASSWORD,
        kind=SettingKind.PASSWORD,
        doc="Password of an encrypted private key.",
    )
    truststore_type: str = setting(
        PEM,
        key=TRUSTSTORE_TYPE,
        parse=parse_truststore_type,
        doc="Format of the trusted certificates: PEM. Kafka's default, JKS, is not supported.",
    )
    truststore_location: str | None = setting(
        None,
        key=TRUSTSTORE_LOCATION,
        kind=SettingKind.STRING,
        doc="PEM file with the certificates of the trusted CAs, for clients that connect and for "
        "brokers that this one connects to.",
    )
    trusted_certificates: str | None = setting(
        None,
        key=TRUSTED_CERTIFICATES,
        kind=SettingKind.PASSWORD,
        parse=parse_pem,
        doc="Certificates of the trusted CAs, as PEM text in place of a file.",
    )
    client_auth: str = setting(
        NONE,
        key=CLIENT_AUTHENTICATION,
        one_of=CLIENT_AUTH,
        doc="Whether clients of an SSL listener must present a certificate: none, requested "
        "(optional), required. For a SASL_SSL listener only listener.name.NAME.ssl.client.auth has "
        "an effect.",
    )
    enabled_protocols: tuple[str, ...] = setting(
        VERSIONS,
        key=ENABLED_PROTOCOLS,
        parse=parse_versions,
        doc="Enabled TLS versions.",
    )
    newest_protocol: str = setting(
        TLS_1_3,
        key=NEWEST_PROTOCOL,
        one_of=VERSIONS,
        doc="Newest TLS version that is used.",
    )
    cipher_suites: tuple[str, ...] = setting(
        (),
        key=CIPHER_SUITES,
        parse=parse_cipher_suites,
        doc="Cipher suites that may be negotiated, by Java's or OpenSSL's names; empty means "
        "OpenSSL's secure defaults. The suites of TLSv1.3 can only be enabled together.",
    )
    endpoint_identification: str = setting(
        "https",
        key=ENDPOINT_IDENTIFICATION,
        parse=parse_endpoint_identification,
        doc="Check by this broker, as a client of others, that a certificate belongs to the host "
        "connected to: https, or empty for no check.",
    )
    principal_rules: PrincipalRules = setting(
        PrincipalRules(),
        key=PRINCIPAL_RULES,
        kind=SettingKind.STRING,
        parse=parse_principal_rules,
        doc="Mapping of a client certificate to a user: rules DEFAULT or "
        "RULE:PATTERN/REPLACEMENT/[L|U]. The first rule that matches the whole distinguished name "
        "(RFC 2253) applies; if none matches, the client is refused.",
    )
    allow_dn_changes: bool = setting(
        False,
        key=ALLOW_DN_CHANGES,
        doc="Whether a certificate that is replaced while the broker runs may have another "
        "distinguished name.",
    )
    allow_san_changes: bool = setting(
        False,
        key=ALLOW_SAN_CHANGES,
        doc="Whether a certificate that is replaced while the broker runs may lack names (SANs) of "
        "the old one.",
    )


TLS_KEYS = frozenset(definitions(TlsSettings))
"""Keys of all supported TLS settings, without prefixes."""

SECRET_KEYS = frozenset({CERTIFICATE_CHAIN, KEY, KEY_PASSWORD, TRUSTED_CERTIFICATES})
"""Keys of the TLS settings whose values are never shown, as in Kafka."""


@frozen(kw_only=True)
class TlsConfig:
    """TLS settings of one end of a connection: its certificate, the certificates that it trusts,
    and the versions and ciphers that it may negotiate.

    The certificate is given as a file, as text, or not at all, and so are the trusted certificates.
    A client without trusted certificates trusts the system's CAs.
    """

    certificate_location: str | None = None
    """Path of a PEM file with the certificate chain. The file also contains the private key, unless
    `key_location` is set."""
    key_location: str | None = None
    certificate_chain: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    trust_location: str | None = None
    trusted_certificates: str | None = field(default=None, repr=False)
    client_auth: str = NONE
    """Client authentication by certificate: none, requested or required."""
    versions: tuple[str, ...] = VERSIONS
    """The TLS versions that may be negotiated, oldest first."""
    ciphers: str = ""
    """Cipher suites that may be negotiated with TLS 1.2, as an OpenSSL cipher list. Empty for
    OpenSSL's defaults."""
    checks_names: bool = True
    """True if a client checks that the server's certificate contains the host name to which it
    connects."""
    principal_rules: PrincipalRules = field(default_factory=PrincipalRules)
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
    spellings: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """Full keys with which the settings were written, by key without prefix."""

    @property
    def has_certificate(self) -> bool:
        """True if this end of the connection presents a certificate."""
        return bool(self.certificate_location or self.certificate_chain)

    @property
    def has_trust(self) -> bool:
        """True if trusted certificates are configured. Otherwise the CAs of the operating system
        are trusted."""
        return bool(self.trust_location or self.trusted_certificates)

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of the certificate and key files, without duplicates."""
        given = (self.certificate_location, self.key_location, self.trust_location)
        return tuple(dict.fromkeys(path for path in given if path))

    def spelling(self, key: str) -> str:
        """Return the full key with which a setting was written, for error messages."""
        return self.spellings.get(key, key)


def is_tls_key(key: str) -> bool:
    """Return whether a key, with or without a listener's prefix, is a supported TLS setting."""
    return split_listener(key)[1] in TLS_KEYS


def split_listener(key: str) -> tuple[str, str]:
    """Split the key of a TLS setting into the listener and the key without prefix. The listener may
    be empty."""
    if not key.startswith(LISTENER_PREFIX):
        return "", key
    listener, _, bare = key.removeprefix(LISTENER_PREFIX).partition(".")
    return listener, bare


def reason_tls_refused(key: str, text: str) -> str | None:
    """Return the reason why a key that starts with `ssl.` is refused, or None if it is accepted."""
    _, bare = split_listener(key)
    if not bare.startswith("ssl.") or bare in TLS_KEYS or not text.strip():
        return None
    if bare not in REFUSED_KEYS:
        return "there is no such setting of TLS"
    reason, passing = REFUSED_KEYS[bare]
    return None if text.strip() in passing else reason


def tls_of(texts: Mapping[str, str], listeners: Iterable[ListenAddress]) -> dict[str, TlsConfig]:
    """Return the TLS settings by listener name, for the listeners that use TLS.

    `listeners` also contains the listeners to which this node only connects, because the settings
    of its connections have the same keys. Raises ConfigError if the settings are invalid or
    contradict each other.
    """
    encrypted = {one.name: one.protocol for one in listeners if one.protocol in TLS_PROTOCOLS}
    for key, text in texts.items():
        _check_place(key, text, encrypted)
    return {name: tls_of_listener(texts, name, protocol) for name, protocol in encrypted.items()}


def tls_of_listener(texts: Mapping[str, str], name: str, protocol: str) -> TlsConfig:
    """Return the TLS settings of one listener. Raises ConfigError if they are invalid or contradict
    each other.

    A node that accepts connections on the listener must also call `check_server`.
    """
    prefix = f"{LISTENER_PREFIX}{name.lower()}."
    found: dict[str, tuple[str, str]] = {}
    for key in sorted(texts, key=lambda key: key.startswith(LISTENER_PREFIX)):
        listener, bare = split_listener(key)
        if bare not in TLS_KEYS or listener.lower() not in ("", name.lower()):
            continue
        # An empty text is a value of this setting; for all others it means "not set".
        if texts[key].strip() or bare == ENDPOINT_IDENTIFICATION:
            found[bare] = key, texts[key]
    if protocol == SASL_SSL and not found.get(CLIENT_AUTHENTICATION, (prefix,))[0].startswith(
        LISTENER_PREFIX
    ):
        del found[CLIENT_AUTHENTICATION]
    values: dict[str, Any] = {}
    for bare, (key, text) in found.items():
        try:
            values |= values_of(TlsSettings, {bare: text})[0]
        except ConfigError as error:
            raise ConfigError(key, str(error).partition(": ")[2]) from None
    return config_of(
        TlsSettings(**values), {bare: key for bare, (key, _) in found.items()}, prefix=prefix
    )


def config_of(given: TlsSettings, spellings: Mapping[str, str], *, prefix: str = "") -> TlsConfig:
    """Return the TLS settings of one end of a connection. Raises ConfigError if they contradict
    each other.

    `spellings` contains the full keys with which the settings were written, for error messages.
    """
    config = TlsConfig(
        certificate_location=given.keystore_location,
        certificate_chain=given.certificate_chain,
        key=given.key,
        key_password=given.key_password,
        trust_location=given.truststore_location,
        trusted_certificates=given.trusted_certificates,
        client_auth=given.client_auth,
        versions=_versions(given, spellings),
        ciphers=":".join(
            openssl_name(name) for name in given.cipher_suites if name not in TLS_1_3_SUITES
        ),
        checks_names=bool(given.endpoint_identification),
        principal_rules=given.principal_rules,
        allow_dn_changes=given.allow_dn_changes,
        allow_san_changes=given.allow_san_changes,
        spellings=dict(spellings),
    )
    check_sources(config, prefix)
    return config


def check_sources(config: TlsConfig, prefix: str = "") -> None:
    """Raise ConfigError if certificate, key or trusted certificates are given both as a file and as
    text. Also raises ConfigError if only the certificate or only the key is given."""
    spelling = config.spelling
    if config.certificate_location and (config.certificate_chain or config.key):
        other = CERTIFICATE_CHAIN if config.certificate_chain else KEY
        raise ConfigError(
            spelling(other),
            f"is set, and so is {spelling(KEYSTORE_LOCATION)}; remove one of them",
        )
    if bool(config.certificate_chain) != bool(config.key):
        there, lacking = (
            (CERTIFICATE_CHAIN, KEY) if config.key is None else (KEY, CERTIFICATE_CHAIN)
        )
        raise ConfigError(prefix + lacking, f"is not set, and {spelling(there)} is; give both")
    if config.trust_location and config.trusted_certificates:
        raise ConfigError(
            spelling(TRUSTED_CERTIFICATES),
            f"is set, and so is {spelling(TRUSTSTORE_LOCATION)}; remove one of them",
        )
    if config.key_password and not config.has_certificate:
        raise ConfigError(
            spelling(KEY_PASSWORD), f"is set, and there is no {prefix}{KEYSTORE_LOCATION}"
        )


def check_server(config: TlsConfig, listener: str) -> None:
    """Raise ConfigError if a server has no certificate, or if it requests certificates of clients
    but trusts no CA."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    if not config.has_certificate:
        raise ConfigError(
            prefix + KEYSTORE_LOCATION,
            f"is not set, and {listener} encrypts; give a PEM file with its key and certificate",
        )
    if config.client_auth != NONE and not config.has_trust:
        raise ConfigError(
            prefix + TRUSTSTORE_LOCATION,
            f"is not set, and {config.spelling(CLIENT_AUTHENTICATION)} is {config.client_auth}; "
            "give a PEM file with the certificates of the CAs of your clients",
        )


def _pem(text: str, key: str) -> str:
    if text.upper() != PEM:
        raise ConfigError(
            key, f"is {text!r}; only PEM is read. Convert it: {CONVERSIONS[key]}"
        ) from None
    return PEM


def _versions(given: TlsSettings, spellings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the enabled TLS versions that have a cipher suite."""
    versions = given.enabled_protocols
    if given.newest_protocol == TLS_1_2:
        versions = tuple(version for version in versions if version == TLS_1_2)
        if not versions:
            raise ConfigError(
                spellings.get(NEWEST_PROTOCOL, NEWEST_PROTOCOL),
                f"is {TLS_1_2}, which {spellings.get(ENABLED_PROTOCOLS, ENABLED_PROTOCOLS)} does "
                "not have",
            )
    if not given.cipher_suites:
        return versions
    of_1_3 = any(name in TLS_1_3_SUITES for name in given.cipher_suites)
    of_1_2 = any(name not in TLS_1_3_SUITES for name in given.cipher_suites)
    has_suite = {TLS_1_2: of_1_2, TLS_1_3: of_1_3}
    versions = tuple(version for version in versions if has_suite[version])
    if not versions:
        raise ConfigError(
            spellings.get(CIPHER_SUITES, CIPHER_SUITES),
            f"has no suite of {' or '.join(given.enabled_protocols)}",
        )
    return versions


def _check_place(key: str, text: str, encrypted: Mapping[str, str]) -> None:
    """Raise ConfigError if a TLS setting is not supported, is for a listener without TLS, or would
    apply to no listener."""
    reason = reason_tls_refused(key, text)
    if reason is not None:
        raise ConfigError(key, f"is set, and {reason}; remove it")
    listener, bare = split_listener(key)
    if bare not in TLS_KEYS or not text.strip():
        return
    if not encrypted:
        raise ConfigError(
            key,
            "is set, and no listener has TLS; give one SSL or SASL_SSL in "
            "listener.security.protocol.map, or remove the setting",
        )
    if listener and listener.upper() not in encrypted:
        raise ConfigError(
            key, f"is for {listener.upper()}; the listeners with TLS are {', '.join(encrypted)}"
        )
    is_for_all = bare == CLIENT_AUTHENTICATION and not listener
    if is_for_all and text.strip() != NONE and SSL not in encrypted.values():
        name = next(iter(encrypted))
        raise ConfigError(
            key,
            f"does not apply to SASL_SSL listeners, as in Kafka; write "
            f"{LISTENER_PREFIX}{name.lower()}.{key}, or remove it",
        )
