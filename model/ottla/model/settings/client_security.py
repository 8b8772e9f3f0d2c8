"""How a client reaches brokers and says who it is, in the keys of Kafka and of librdkafka."""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.oauthbearer import OAUTHBEARER
from ottla.model.settings.client_tls import LIBRDKAFKA_TLS_KEYS, ClientTls
from ottla.model.settings.declare import SettingKind, check_texts, definitions, load, setting
from ottla.model.settings.jaas import JaasLogin, parse_jaas
from ottla.model.settings.oauth import (
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
from ottla.model.settings.sasl import (
    MODULES,
    SASL_PLAINTEXT,
    SASL_SSL,
    SERVED_MECHANISMS,
    SaslLogin,
    TokenProvider,
    asks_for_token,
)
from ottla.model.settings.tls import (
    ENDPOINT_IDENTIFICATION,
    SSL,
    TRUSTSTORE_LOCATION,
    TlsConfig,
    reason_tls_refused,
)
from ottla.model.settings.tls import REFUSED_KEYS as TLS_REFUSED_KEYS
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
"""librdkafka's names of settings, and Kafka's."""
SECURITY_PREFIXES = ("sasl.", "ssl.", "security.")


@frozen(kw_only=True)
class ClientSecurity(ClientTls):
    """How a client reaches brokers: encrypted or not, and what it says of itself."""

    security_protocol: str = setting(
        "PLAINTEXT",
        key="security.protocol",
        one_of=PROTOCOLS,
        doc="How brokers are reached: plain or encrypted (SSL), with a login (SASL) or without.",
    )
    sasl_mechanism: str | None = setting(
        None,
        key="sasl.mechanism",
        kind=SettingKind.STRING,
        one_of=SERVED_MECHANISMS,
        doc="How the client logs in.",
    )
    sasl_username: str | None = setting(
        None, key="sasl.username", kind=SettingKind.STRING, doc="Who the client is."
    )
    sasl_password: str | None = setting(
        None, key="sasl.password", kind=SettingKind.PASSWORD, doc="The user's password."
    )
    sasl_jaas_config: JaasLogin | None = setting(
        None,
        key="sasl.jaas.config",
        kind=SettingKind.PASSWORD,
        parse=parse_jaas,
        doc="A login module with username and password, as the Java client has it, in place of "
        "sasl.username and sasl.password.",
    )

    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None,
        key=TOKEN_URL,
        kind=SettingKind.STRING,
        doc="Where tokens of OAUTHBEARER come from: an https:// URL that grants them for client id "
        "and secret, or file:///… of a token that others renew.",
    )
    sasl_oauthbearer_client_id: str | None = setting(
        None, key=CLIENT_ID, kind=SettingKind.STRING, doc="The client id for the token URL."
    )
    sasl_oauthbearer_client_secret: str | None = setting(
        None, key=CLIENT_SECRET, kind=SettingKind.PASSWORD, doc="The secret of this client id."
    )
    sasl_oauthbearer_scope: str | None = setting(
        None, key=f"{PREFIX}scope", kind=SettingKind.STRING, doc="The scope to ask for."
    )
    sasl_login_callback_handler_class: str | None = setting(
        None,
        key=LOGIN_HANDLER,
        kind=SettingKind.CLASS,
        one_of=LOGIN_HANDLERS,
        doc="What gets tokens; there is one way only.",
    )
    sasl_oauthbearer_jwt_retriever_class: str | None = setting(
        None,
        key=f"{PREFIX}jwt.retriever.class",
        kind=SettingKind.CLASS,
        one_of=JWT_RETRIEVERS,
        doc="Where tokens come from; the URL says it already.",
    )
    sasl_oauthbearer_method: str | None = setting(
        None,
        key=f"{PREFIX}method",
        kind=SettingKind.STRING,
        one_of=("oidc",),
        doc="librdkafka's name for the token URL's way.",
    )
    sasl_oauthbearer_allowed_urls: tuple[str, ...] = setting(
        (),
        key=ALLOWED_URLS,
        kind=SettingKind.LIST,
        doc="The URLs that tokens may come from, whole and as they are set; empty for any. The "
        "environment's OTTLA_OAUTHBEARER_ALLOWED_URLS holds for a whole process besides, as "
        "Kafka's property of the JVM does.",
    )
    sasl_login_connect_timeout_ms: int | None = connect_timeout_setting()
    sasl_login_read_timeout_ms: int | None = read_timeout_setting()
    sasl_login_retry_backoff_ms: int = retry_backoff_setting()
    sasl_login_retry_backoff_max_ms: int = retry_backoff_max_setting()
    https_ca_location: str | None = setting(
        None,
        key="https.ca.location",
        kind=SettingKind.STRING,
        doc="A PEM file with the certificates of the CAs that the token URL is trusted by, as "
        "librdkafka has it (Kafka: the option ssl.truststore.location in sasl.jaas.config); "
        "without one those of the system.",
    )
    sasl_token_provider: TokenProvider | None = None
    """A function that returns a BearerToken for OAUTHBEARER, in place of a URL.

    An async function is awaited on trio's loop; any other is called in a worker thread, and may
    block.  With `ottla.client.aio` it must be one of the latter.
    """

    def __post_init__(self) -> None:
        check_texts(self)

    def login(self) -> SaslLogin | None:
        """Return how the client logs in, None where it does not; ConfigError where it cannot."""
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
        """Return how connections are encrypted, None where they are not.

        Raises ConfigError where that cannot be done; `spellings` says how settings are written.
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
        """Return how the token URL is trusted, None for what the machine trusts."""
        location = self.https_ca_location
        if location is None:
            return None
        spellings = {TRUSTSTORE_LOCATION: "https.ca.location"}
        return TlsConfig(trust_location=location, spellings=spellings)

    def _oauth_value(self) -> Callable[[str], Any]:
        """Return what looks a setting of OAUTHBEARER up by its key."""
        known = definitions(ClientSecurity)
        return lambda key: getattr(self, known[key].field_name)


@frozen
class ClientAccess:
    """How a client connects, all in all."""

    login: SaslLogin | None
    """How it logs in, None where it does not."""
    tls: TlsConfig | None
    """How its connections are encrypted, None where they are not."""


def access_of(texts: Mapping[str, str]) -> ClientAccess:
    """Return how a client connects, from settings of Kafka or librdkafka.

    Raises ConfigError for what cannot be honoured, without showing what may be a password.
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
            raise ConfigError(key, f"is set, and {reason}; take it out")
        if key in LOGIN_REFRESH_KEYS:
            raise ConfigError(key, f"is set, and {LOGIN_REFRESH_REASON}; take it out")
        raise ConfigError(key, "is no setting of a client's login that can be honoured")
    return ClientAccess(security.login(), security.tls(spellings))


def in_kafkas_keys(texts: Mapping[str, str]) -> dict[str, str]:
    """Return settings of a login in Kafka's keys, without those that say what holds anyway.

    Raises ConfigError where one asks to verify no certificate.
    """
    texts = {LIBRDKAFKA_KEYS.get(key, key): text for key, text in texts.items()}
    if texts.get(VERIFICATION, "true").strip().lower() != "true":
        reason = "is not true; a client that verifies no certificate trusts all"
        raise ConfigError(VERIFICATION, reason)
    if texts.get(ENDPOINT_IDENTIFICATION, "").strip().lower() == "none":
        texts[ENDPOINT_IDENTIFICATION] = ""  # as librdkafka writes it
    return {
        key: text
        for key, text in texts.items()
        if key != VERIFICATION and not _is_default_of_java(key, text)
    }


def login_of(texts: Mapping[str, str]) -> SaslLogin | None:
    """Return how a client logs in, from settings of Kafka or librdkafka; see `access_of`."""
    return access_of(texts).login


VERIFICATION = "enable.ssl.certificate.verification"
"""librdkafka's own."""


def _is_default_of_java(key: str, text: str) -> bool:
    """Return whether a setting of the JVM's TLS is one that says nothing."""
    return key in TLS_REFUSED_KEYS and reason_tls_refused(key, text) is None
