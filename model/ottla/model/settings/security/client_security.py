"""Encryption and login of a client, configured by the keys of Kafka's Java clients and of
librdkafka."""

from collections.abc import Callable, Mapping
from typing import Any, Self

from ottla.model.errors import ConfigError
from ottla.model.security.oauthbearer import OAUTHBEARER
from ottla.model.settings.declare import SettingKind, check_texts, definitions, load, setting
from ottla.model.settings.kafka_clients import config_from_kafka
from ottla.model.settings.security.client_tls import LIBRDKAFKA_TLS_KEYS, ClientTls
from ottla.model.settings.security.jaas import JaasLogin, parse_jaas
from ottla.model.settings.security.oauth import (
    ALLOWED_URLS,
    CLIENT_ID,
    CLIENT_SECRET,
    JWT_RETRIEVERS,
    LOGIN_HANDLER,
    LOGIN_HANDLERS,
    LOGIN_REFRESH_KEYS,
    LOGIN_REFRESH_REASON,
    PREFIX,
    TOKEN_URL,
    connect_timeout_setting,
    grant_of,
    read_timeout_setting,
    retry_backoff_max_setting,
    retry_backoff_setting,
)
from ottla.model.settings.security.sasl import (
    MODULES,
    SASL_PLAINTEXT,
    SASL_SSL,
    SERVED_MECHANISMS,
    SaslLogin,
    TokenProvider,
    asks_for_token,
)
from ottla.model.settings.security.tls import (
    ENDPOINT_IDENTIFICATION,
    SSL,
    TRUSTSTORE_LOCATION,
    TlsConfig,
    reason_tls_refused,
)
from ottla.model.settings.security.tls import REFUSED_KEYS as TLS_REFUSED_KEYS
from ottla.model.values import frozen

PROTOCOLS = ("PLAINTEXT", SSL, SASL_PLAINTEXT, SASL_SSL)
LOGIN_PROTOCOLS = (SASL_PLAINTEXT, SASL_SSL)
LIBRDKAFKA_KEYS = {
    "sasl.mechanisms": "sasl.mechanism",
    f"{PREFIX}client.id": CLIENT_ID,
    f"{PREFIX}client.secret": CLIENT_SECRET,
    f"{PREFIX}token.endpoint.url": TOKEN_URL,
    **LIBRDKAFKA_TLS_KEYS,
}
"""Security settings by librdkafka's key, each with Kafka's key for the same setting."""
SECURITY_PREFIXES = ("sasl.", "ssl.", "security.")


@frozen(kw_only=True)
class ClientSecurity(ClientTls):
    """Settings of a client for encryption and login."""

    security_protocol: str = setting(
        "PLAINTEXT",
        key="security.protocol",
        one_of=PROTOCOLS,
        doc="Security protocol of connections to brokers: plain or encrypted (SSL), with a login "
        "(SASL) or without.",
    )
    sasl_mechanism: str | None = setting(
        None,
        key="sasl.mechanism",
        kind=SettingKind.STRING,
        one_of=SERVED_MECHANISMS,
        doc="SASL mechanism of the client's login.",
    )
    sasl_username: str | None = setting(
        None, key="sasl.username", kind=SettingKind.STRING, doc="User name of the client."
    )
    sasl_password: str | None = setting(
        None, key="sasl.password", kind=SettingKind.PASSWORD, doc="Password of the user."
    )
    sasl_jaas_config: JaasLogin | None = setting(
        None,
        key="sasl.jaas.config",
        kind=SettingKind.PASSWORD,
        parse=parse_jaas,
        doc="Login module with username and password, in the Java client's format, in place of "
        "sasl.username and sasl.password.",
    )

    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None,
        key=TOKEN_URL,
        kind=SettingKind.STRING,
        doc="Source of OAUTHBEARER tokens: an https:// URL that grants them for client id and "
        "secret, or file:///… of a token that is renewed externally.",
    )
    sasl_oauthbearer_client_id: str | None = setting(
        None, key=CLIENT_ID, kind=SettingKind.STRING, doc="Client id for the token URL."
    )
    sasl_oauthbearer_client_secret: str | None = setting(
        None, key=CLIENT_SECRET, kind=SettingKind.PASSWORD, doc="Secret of this client id."
    )
    sasl_oauthbearer_scope: str | None = setting(
        None, key=f"{PREFIX}scope", kind=SettingKind.STRING, doc="Scope to request."
    )
    sasl_login_callback_handler_class: str | None = setting(
        None,
        key=LOGIN_HANDLER,
        kind=SettingKind.CLASS,
        one_of=LOGIN_HANDLERS,
        doc="Source of tokens; only one value is supported.",
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = setting(
        None,
        key=f"{PREFIX}jwt.retriever.class",
        kind=SettingKind.CLASS,
        one_of=JWT_RETRIEVERS,
        doc="Source of tokens, which is already determined by the URL.",
    )
    sasl_oauthbearer_method: str | None = setting(
        None,
        key=f"{PREFIX}method",
        kind=SettingKind.STRING,
        one_of=("oidc",),
        doc="librdkafka's name for the token URL's method.",
    )
    sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        (),
        key=ALLOWED_URLS,
        kind=SettingKind.LIST,
        doc="URLs from which tokens may come, each complete and exactly as configured; empty for "
        "any. The environment variable OTTLA_OAUTHBEARER_ALLOWED_URLS applies to the whole process "
        "in addition, as Kafka's JVM property does.",
    )
    sasl_login_connect_timeout_ms: int | None = connect_timeout_setting()
    sasl_login_read_timeout_ms: int | None = read_timeout_setting()
    sasl_login_retry_backoff_ms: int = retry_backoff_setting()
    sasl_login_retry_backoff_max_ms: int = retry_backoff_max_setting()
    https_ca_location: str | None = setting(
        None,
        key="https.ca.location",
        kind=SettingKind.STRING,
        doc="PEM file with the certificates of the CAs that are trusted for the token URL, as in "
        "librdkafka (Kafka: the option ssl.truststore.location in sasl.jaas.config); by default "
        "those of the system.",
    )
    sasl_token_provider: TokenProvider | None = None
    """Function that returns a BearerToken for OAUTHBEARER. It replaces the token URL.

    An async function is awaited in trio's event loop. A synchronous function is called in a worker
    thread and may block. Clients of `ottla.client.aio` accept only a synchronous function.
    """

    def __post_init__(self) -> None:
        check_texts(self)

    @classmethod
    def from_kafka(cls, settings: Mapping[str, object]) -> Self:
        """Return the configuration for a dict with the keys of Kafka's Java clients or librdkafka.

        `bootstrap.servers` is ignored, because the addresses are the first argument of
        `open_producer`, `open_consumer` and `open_admin`. Settings that only tune another
        implementation are named in one warning. Raises ConfigError for an invalid value. If keys
        are unknown or unsupported, one ConfigError names all of them. Settings that are not given
        have the defaults of the Java clients. For example, the default `partitioner` is Java's, not
        librdkafka's `consistent_random`.
        """
        return config_from_kafka(cls, settings, LIBRDKAFKA_KEYS)

    def login(self) -> SaslLogin | None:
        """Return the credentials and the mechanism with which the client logs in, or None if it
        does not log in. Raises ConfigError if the settings do not allow a login."""
        if self.security_protocol not in PROTOCOLS:
            raise ConfigError(
                "security.protocol",
                f"is {self.security_protocol!r}; it must be one of {', '.join(PROTOCOLS)}",
            )
        if self.security_protocol not in LOGIN_PROTOCOLS:
            if (
                self.sasl_mechanism
                or self.sasl_username
                or self.sasl_jaas_config
                or self.sasl_token_provider
                or self.sasl_oauthbearer_token_endpoint_url
            ):
                raise ConfigError(
                    "security.protocol",
                    f"is {self.security_protocol}, and settings of sasl. are given; "
                    f"{' and '.join(LOGIN_PROTOCOLS)} log in",
                )
            return None
        mechanism = self.sasl_mechanism
        if mechanism not in SERVED_MECHANISMS:
            raise ConfigError(
                "sasl.mechanism",
                f"is {mechanism or 'not set'}; it must be one of {', '.join(SERVED_MECHANISMS)}",
            )
        username, password = self.sasl_username, self.sasl_password
        options: Mapping[str, str] = {}
        if self.sasl_jaas_config is not None:
            if self.sasl_jaas_config.module != MODULES[mechanism]:
                raise ConfigError("sasl.jaas.config", f"must be of {MODULES[mechanism]}")
            options = self.sasl_jaas_config.options
            username, password = options.get("username"), options.get("password")
        if mechanism == OAUTHBEARER:
            if self.sasl_token_provider is not None:
                return SaslLogin(mechanism, provider=self.sasl_token_provider)
            return SaslLogin(
                mechanism,
                grant=grant_of(
                    self._oauth_value(), options, self._endpoint_tls(), must_be_listed=False
                ),
            )
        if not username or not password:
            raise ConfigError("sasl.username", "is not set; give sasl.username and sasl.password")
        return SaslLogin(mechanism, username, password, is_token=asks_for_token(options))

    def tls(self, spellings: Mapping[str, str] | None = None) -> TlsConfig | None:
        """Return the TLS settings of the client's connections, or None if they are not encrypted.

        Raises ConfigError if the settings contradict each other. `spellings` contains the names of
        settings as the user wrote them, for error messages.
        """
        if self.security_protocol in (SSL, SASL_SSL):
            return self.tls_config(spellings or {})
        if self.has_tls_settings:
            raise ConfigError(
                "security.protocol",
                f"is {self.security_protocol}, and settings of ssl. are given; {SSL} and "
                f"{SASL_SSL} encrypt",
            )
        return None

    def _endpoint_tls(self) -> TlsConfig | None:
        """Return the TLS settings for the token URL, or None to trust the machine's
        certificates."""
        location = self.https_ca_location
        if location is None:
            return None
        spellings = {TRUSTSTORE_LOCATION: "https.ca.location"}
        return TlsConfig(trust_location=location, spellings=spellings)

    def _oauth_value(self) -> Callable[[str], Any]:
        """Return a function that looks up an OAUTHBEARER setting by its key."""
        known = definitions(ClientSecurity)
        return lambda key: getattr(self, known[key].field_name)


@frozen
class ClientAccess:
    """Encryption and login of a client's connections."""

    login: SaslLogin | None
    """Credentials and mechanism with which the client logs in, or None if it does not log in."""
    tls: TlsConfig | None
    """TLS settings of the connections, or None if they are not encrypted."""


def access_of(texts: Mapping[str, str]) -> ClientAccess:
    """Return the encryption and login of a client from settings with the keys of Kafka or
    librdkafka.

    Raises ConfigError for settings that are invalid or contradict each other. The error never
    contains a value that may be a password.
    """
    spellings = {LIBRDKAFKA_KEYS.get(key, key): key for key in texts}
    texts = in_kafkas_keys(texts)
    try:
        security, unknown = load(ClientSecurity, texts)
    except ConfigError as error:
        if error.setting == "sasl.jaas.config":
            raise ConfigError(error.setting, "is no login module") from None
        raise ConfigError(spellings.get(error.setting, error.setting), error.problem) from None
    for key in sorted(unknown):
        reason = reason_tls_refused(key, texts[key])
        if reason is not None:
            raise ConfigError(key, f"is set, and {reason}; remove it")
        if key in LOGIN_REFRESH_KEYS:
            raise ConfigError(key, f"is set, and {LOGIN_REFRESH_REASON}; remove it")
        raise ConfigError(key, "is no setting of a client's login that can be honoured")
    return ClientAccess(security.login(), security.tls(spellings))


def in_kafkas_keys(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the security settings under Kafka's keys. Settings that only request Ottla's usual
    behaviour are left out.

    Raises ConfigError for a setting that disables the verification of certificates.
    """
    texts = {LIBRDKAFKA_KEYS.get(key, key): text for key, text in texts.items()}
    if texts.get(VERIFICATION, "true").strip().lower() != "true":
        reason = "is not true; a client that verifies no certificate trusts all"
        raise ConfigError(VERIFICATION, reason)
    if texts.get(ENDPOINT_IDENTIFICATION, "").strip().lower() == "none":
        texts[ENDPOINT_IDENTIFICATION] = ""  # librdkafka's notation
    return {
        key: text
        for key, text in texts.items()
        if key != VERIFICATION and not _is_default_of_java(key, text)
    }


def login_of(texts: Mapping[str, str]) -> SaslLogin | None:
    """Return the credentials and mechanism of a client's login from settings with the keys of Kafka
    or librdkafka. Returns None if the client does not log in. Raises ConfigError like `access_of`.
    """
    return access_of(texts).login


VERIFICATION = "enable.ssl.certificate.verification"
"""Key of librdkafka's setting that enables the verification of certificates. Kafka has no such
setting."""


def _is_default_of_java(key: str, text: str) -> bool:
    """Return whether a TLS setting of the JVM has a value without effect."""
    return key in TLS_REFUSED_KEYS and reason_tls_refused(key, text) is None
