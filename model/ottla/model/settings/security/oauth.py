"""Settings of OAUTHBEARER: the tokens that brokers accept, and the source of the tokens with which
clients and brokers log in.

The keys are Kafka's. Class names of Kafka are accepted if Ottla behaves like the class. The
allow-list of URLs is a setting. In Kafka it is a JVM property of the same name.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from ottla.model.errors import ConfigError
from ottla.model.security.jwt_claims import ClaimRules
from ottla.model.settings.declare import SettingKind, noun_of, setting, values_of
from ottla.model.settings.security.tls import (
    ALLOW_DN_CHANGES,
    ALLOW_SAN_CHANGES,
    CLIENT_AUTHENTICATION,
    PRINCIPAL_RULES,
    TLS_KEYS,
    TlsConfig,
    TlsSettings,
    config_of,
    reason_tls_refused,
)
from ottla.model.values import frozen

PACKAGE = "org.apache.kafka.common.security.oauthbearer"
VALIDATOR = f"{PACKAGE}.OAuthBearerValidatorCallbackHandler"
OLD_VALIDATOR = f"{PACKAGE}.secured.OAuthBearerValidatorCallbackHandler"
UNSECURED_VALIDATOR = f"{PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
LOGIN_HANDLERS = (
    f"{PACKAGE}.OAuthBearerLoginCallbackHandler",
    f"{PACKAGE}.secured.OAuthBearerLoginCallbackHandler",
)
JWT_VALIDATORS = (f"{PACKAGE}.DefaultJwtValidator", f"{PACKAGE}.BrokerJwtValidator")
JWT_RETRIEVERS = tuple(
    f"{PACKAGE}.{name}JwtRetriever" for name in ("Default", "ClientCredentials", "File")
)

PREFIX = "sasl.oauthbearer."
JWT_RETRIEVER = f"{PREFIX}jwt.retriever.class"
JWKS_URL = f"{PREFIX}jwks.endpoint.url"
TOKEN_URL = f"{PREFIX}token.endpoint.url"
AUDIENCE = f"{PREFIX}expected.audience"
ISSUER = f"{PREFIX}expected.issuer"
CLIENT_ID = f"{PREFIX}client.credentials.client.id"
CLIENT_SECRET = f"{PREFIX}client.credentials.client.secret"
ANY_AUDIENCE = f"{PREFIX}allow.unverified.audience"
ANY_ISSUER = f"{PREFIX}allow.unverified.issuer"
SERVER_HANDLER = "sasl.server.callback.handler.class"
LOGIN_HANDLER = "sasl.login.callback.handler.class"
CONNECT_TIMEOUT = "sasl.login.connect.timeout.ms"
READ_TIMEOUT = "sasl.login.read.timeout.ms"
RETRY_BACKOFF = "sasl.login.retry.backoff.ms"
RETRY_BACKOFF_MAX = "sasl.login.retry.backoff.max.ms"
JAAS_CONFIG = "sasl.jaas.config"
LOGIN_REFRESH_KEYS = tuple(
    f"sasl.login.refresh.{what}"
    for what in ("window.factor", "window.jitter", "min.period.seconds", "buffer.seconds")
)
LOGIN_REFRESH_REASON = (
    "a token is renewed at the first login after 80 % of its life, which cannot be configured; no "
    "thread renews tokens periodically"
)
"""Reason why Ottla refuses Kafka's settings for the renewal of tokens."""
TIMEOUT_MS_MAX = 300_000
"""Maximum value of a timeout, in ms. A token server that does not answer in this time counts as
unavailable."""
ENDPOINT_TLS_KEYS = TLS_KEYS - {
    CLIENT_AUTHENTICATION,
    PRINCIPAL_RULES,
    ALLOW_DN_CHANGES,
    ALLOW_SAN_CHANGES,
}
"""Options of the login module that select the trusted certificates for connections to an identity
provider."""
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")


def parse_url(text: str) -> str:
    """an https:// URL, or file:///PATH."""
    found = urlsplit(text)
    is_near = found.scheme == "http" and found.hostname in LOOPBACK_HOSTS
    is_remote = (found.scheme == "https" or is_near) and found.hostname
    is_file = found.scheme == "file" and not found.netloc and found.path not in ("", "/")
    if not (is_remote or is_file) or found.username or found.password or found.fragment:
        raise ValueError(text)
    return text


# Timeouts of token requests: settings of clients, and of brokers that log in to each other.


def connect_timeout_setting() -> Any:
    """Declare the setting `sasl.login.connect.timeout.ms` as a dataclass field."""
    return _timeout_setting(
        CONNECT_TIMEOUT, "How long a connection to the token URL may take; 10 s if not set."
    )


def read_timeout_setting() -> Any:
    """Declare the setting `sasl.login.read.timeout.ms` as a dataclass field."""
    return _timeout_setting(
        READ_TIMEOUT, "How long the token URL may take to answer; 10 s if not set."
    )


def _timeout_setting(key: str, doc: str) -> Any:
    return setting(None, key=key, kind=SettingKind.INT, at_least=1, at_most=TIMEOUT_MS_MAX, doc=doc)


def retry_backoff_setting() -> Any:
    """Declare the setting `sasl.login.retry.backoff.ms` as a dataclass field."""
    return setting(
        100,
        key=RETRY_BACKOFF,
        kind=SettingKind.LONG,
        at_least=1,
        doc="Delay after the first failed token request; it doubles with each further failure.",
    )


def retry_backoff_max_setting() -> Any:
    """Declare the setting `sasl.login.retry.backoff.max.ms` as a dataclass field."""
    return setting(
        10_000,
        key=RETRY_BACKOFF_MAX,
        kind=SettingKind.LONG,
        at_least=0,
        doc="Time after the first failure for which a token request is retried.",
    )


@frozen(kw_only=True)
class OAuthSettings:
    """The OAUTHBEARER settings under Kafka's names, with values that apply to all listeners."""

    jwks_url: str | None = setting(
        None,
        key=JWKS_URL,
        kind=SettingKind.STRING,
        parse=parse_url,
        doc="URL of the signing keys of tokens, as a JWKS: https://… or file:///…. The URL must be "
        "listed in org.apache.kafka.sasl.oauthbearer.allowed.urls.",
    )
    refresh_ms: int = setting(
        3_600_000,
        key=f"{PREFIX}jwks.endpoint.refresh.ms",
        kind=SettingKind.LONG,
        at_least=1_000,
        doc="Interval between refreshes of the signing keys. A token with an unknown key causes a "
        "refresh at once, at most every 10 s.",
    )
    backoff_ms: int = setting(
        100,
        key=f"{PREFIX}jwks.endpoint.retry.backoff.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Delay after the first failed refresh of the signing keys; it doubles with each "
        "further failure.",
    )
    backoff_ms_max: int = setting(
        10_000,
        key=f"{PREFIX}jwks.endpoint.retry.backoff.max.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Maximum delay between attempts to refresh the signing keys.",
    )
    audience: tuple[str, ...] = setting(
        (),
        key=AUDIENCE,
        kind=SettingKind.LIST,
        doc="Accepted audiences: a token must have one of these (claim aud).",
    )
    issuer: str | None = setting(
        None,
        key=ISSUER,
        kind=SettingKind.STRING,
        doc="Required issuer of tokens (claim iss).",
    )
    allows_any_audience: bool = setting(
        False,
        key=ANY_AUDIENCE,
        doc="Whether tokens of any audience are accepted if no audience is configured. Otherwise "
        "such a broker does not start.",
    )
    allows_any_issuer: bool = setting(
        False,
        key=ANY_ISSUER,
        doc="Whether tokens of any issuer are accepted if no issuer is configured. Otherwise such "
        "a broker does not start.",
    )
    clock_skew_seconds: int = setting(
        30,
        key=f"{PREFIX}clock.skew.seconds",
        at_least=0,
        doc="Allowed difference between the clocks of issuer and broker.",
    )
    subject_claim: str = setting(
        "sub", key=f"{PREFIX}sub.claim.name", doc="Name of the claim with the user."
    )
    scope_claim: str = setting(
        "scope", key=f"{PREFIX}scope.claim.name", doc="Name of the claim with the scopes."
    )
    server_handler: str = setting(
        VALIDATOR,
        key=SERVER_HANDLER,
        kind=SettingKind.CLASS,
        one_of=(VALIDATOR, OLD_VALIDATOR, UNSECURED_VALIDATOR),
        doc="Validator of tokens. The class with Unsecured in its name accepts tokens without a "
        "signature, which anybody can create: only for tests.",
    )
    jwt_validator: str = setting(
        JWT_VALIDATORS[0],
        key=f"{PREFIX}jwt.validator.class",
        kind=SettingKind.CLASS,
        one_of=JWT_VALIDATORS,
        doc="Validator of signature and claims; only one value is supported.",
    )
    login_handler: str = setting(
        LOGIN_HANDLERS[0],
        key=LOGIN_HANDLER,
        kind=SettingKind.CLASS,
        one_of=LOGIN_HANDLERS,
        doc="Source of this broker's own tokens; only one value is supported.",
    )
    jwt_retriever: str = setting(
        JWT_RETRIEVERS[0],
        key=JWT_RETRIEVER,
        kind=SettingKind.CLASS,
        one_of=JWT_RETRIEVERS,
        doc="Source of tokens, which is already determined by sasl.oauthbearer.token.endpoint.url.",
    )
    token_url: str | None = setting(
        None,
        key=TOKEN_URL,
        kind=SettingKind.STRING,
        parse=parse_url,
        doc="Source of this broker's own tokens for other brokers: an https:// URL that grants "
        "them for client id and secret, or file:///… of a token that is renewed externally. It "
        "must be listed in the same way as the URL of the keys.",
    )
    client_id: str | None = setting(
        None, key=CLIENT_ID, kind=SettingKind.STRING, doc="Client id for the token URL."
    )
    client_secret: str | None = setting(
        None, key=CLIENT_SECRET, kind=SettingKind.PASSWORD, doc="Secret of this client id."
    )
    scope: str | None = setting(
        None, key=f"{PREFIX}scope", kind=SettingKind.STRING, doc="Scope to request."
    )
    connect_timeout_ms: int | None = connect_timeout_setting()
    read_timeout_ms: int | None = read_timeout_setting()
    retry_backoff_ms: int = retry_backoff_setting()
    retry_backoff_max_ms: int = retry_backoff_max_setting()
    allowed_urls: tuple[str, ...] = setting(
        (),
        key=ALLOWED_URLS,
        kind=SettingKind.LIST,
        doc="URLs, including file URLs, from which keys and tokens may come, each complete and "
        "exactly as configured. Kafka reads this from a JVM property.",
    )


OAUTH_ONLY_KEYS = frozenset(
    one.metadata["setting"]["key"] for one in OAuthSettings.__dataclass_fields__.values()
)
"""Keys of all OAUTHBEARER settings."""
CLASS_KEYS = (SERVER_HANDLER, LOGIN_HANDLER, f"{PREFIX}jwt.validator.class")
"""Keys of settings that have exactly one valid value. The value is checked and has no further
effect."""
GRANT_KEYS = frozenset(
    {
        TOKEN_URL,
        CLIENT_ID,
        CLIENT_SECRET,
        f"{PREFIX}scope",
        JWT_RETRIEVER,
        CONNECT_TIMEOUT,
        READ_TIMEOUT,
        RETRY_BACKOFF,
        RETRY_BACKOFF_MAX,
    }
)
"""Keys of the settings with which a broker obtains its own tokens."""
OAUTH_LISTENER_KEYS = OAUTH_ONLY_KEYS - {ALLOWED_URLS}
"""Keys of the OAUTHBEARER settings that may be set for a single listener."""


@frozen(kw_only=True)
class OAuthRules:
    """Rules by which a listener accepts or rejects OAuth tokens."""

    jwks_url: str | None
    """URL of the public keys that verify the signatures of tokens, or None if signatures are not
    verified."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000
    claims: ClaimRules = field(default_factory=ClaimRules)
    tls: TlsConfig | None = None
    """TLS settings of connections to the server of the public keys. None trusts the CAs of the
    operating system."""


@frozen(kw_only=True)
class OAuthGrant:
    """Source from which a client obtains its OAuth tokens: a token URL, the client's credentials,
    and timeouts."""

    token_url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    tls: TlsConfig | None = None
    """TLS settings of connections to the token URL. None trusts the CAs of the operating system."""
    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


Value = Callable[[str], Any]
"""Function that looks up an OAUTHBEARER setting of one listener by its key. Returns None if the
setting is not set."""


def rules_of(value: Value, tls: TlsConfig | None = None) -> OAuthRules:
    """Return the rules by which a listener accepts OAuth tokens. Raises ConfigError if the settings
    are incomplete."""
    default = OAuthSettings()
    for key in CLASS_KEYS:
        value(key)
    url = value(JWKS_URL)
    if value(SERVER_HANDLER) == UNSECURED_VALIDATOR:
        if url is not None:
            raise ConfigError(
                JWKS_URL,
                f"is set, and {SERVER_HANDLER} verifies no signature; remove one of them",
            )
    else:
        if url is None:
            raise ConfigError(
                JWKS_URL,
                "is not set; OAUTHBEARER needs the keys that tokens are signed with, as "
                "https://… or file:///…",
            )
        check_allowed(url, JWKS_URL, value)
        for key, switch in ((AUDIENCE, ANY_AUDIENCE), (ISSUER, ANY_ISSUER)):
            if not value(key) and not value(switch):
                raise ConfigError(
                    key, f"is not set; set it, or {switch}=true if every token of these keys counts"
                )

    def or_default(key: str, fallback: Any) -> Any:
        found = value(key)
        return fallback if found is None else found

    skew_s = or_default(f"{PREFIX}clock.skew.seconds", default.clock_skew_seconds)
    return OAuthRules(
        jwks_url=url,
        refresh_ms=or_default(f"{PREFIX}jwks.endpoint.refresh.ms", default.refresh_ms),
        backoff_ms=or_default(f"{PREFIX}jwks.endpoint.retry.backoff.ms", default.backoff_ms),
        backoff_ms_max=or_default(
            f"{PREFIX}jwks.endpoint.retry.backoff.max.ms", default.backoff_ms_max
        ),
        tls=tls,
        claims=ClaimRules(
            audiences=tuple(value(AUDIENCE) or ()),
            issuer=value(ISSUER),
            skew_ms=skew_s * 1_000,
            subject_claim=or_default(f"{PREFIX}sub.claim.name", default.subject_claim),
            scope_claim=or_default(f"{PREFIX}scope.claim.name", default.scope_claim),
        ),
    )


def grant_of(
    value: Value,
    options: Mapping[str, str],
    tls: TlsConfig | None = None,
    *,
    must_be_listed: bool = True,
) -> OAuthGrant:
    """Return the source from which a client or broker obtains its tokens. `options` are the options
    of the login module.

    TLS options of the login module take precedence over `tls`. Raises ConfigError if the settings
    are incomplete. Also raises ConfigError if the URL is not on the allow-list; without
    `must_be_listed`, the allow-list may be missing.
    """
    value(JWT_RETRIEVER)
    url = value(TOKEN_URL)
    if url is None:
        raise ConfigError(
            TOKEN_URL,
            "is not set; a login by OAUTHBEARER needs a source of tokens, as https://… "
            "or file:///…",
        )
    try:
        parse_url(url)
    except ValueError:
        raise ConfigError(TOKEN_URL, f"is {url!r}; it must be {noun_of(parse_url)}") from None
    if must_be_listed or value(ALLOWED_URLS):
        check_allowed(url, TOKEN_URL, value)
    tls = endpoint_tls_of(options) or tls
    if tls is not None and not is_https(url):
        raise ConfigError(TOKEN_URL, f"is {url}, but TLS trust for it is set")
    default = OAuthSettings()

    def number(key: str, fallback: int) -> int:
        found = value(key)
        return fallback if found is None else int(found)

    grant = OAuthGrant(
        token_url=url,
        client_id=value(CLIENT_ID) or options.get("clientId", ""),
        client_secret=value(CLIENT_SECRET) or options.get("clientSecret", ""),
        scope=value(f"{PREFIX}scope") or options.get("scope", ""),
        tls=tls,
        connect_timeout_ms=value(CONNECT_TIMEOUT),
        read_timeout_ms=value(READ_TIMEOUT),
        retry_backoff_ms=number(RETRY_BACKOFF, default.retry_backoff_ms),
        retry_backoff_max_ms=number(RETRY_BACKOFF_MAX, default.retry_backoff_max_ms),
    )
    if not is_file_url(url) and not (grant.client_id and grant.client_secret):
        raise ConfigError(CLIENT_ID, f"is not set; {url} grants tokens for client id and secret")
    return grant


def endpoint_tls_of(options: Mapping[str, str]) -> TlsConfig | None:
    """Return the TLS settings for connections to the servers of public keys and tokens, from the
    options of a login module. Returns None if it has no such options.

    The options have Kafka's names, such as `ssl.truststore.location`. Raises ConfigError for an
    option that has no effect.
    """
    known = {"clientId", "clientSecret", "scope"}
    for key in sorted(options):
        if key not in known and key not in ENDPOINT_TLS_KEYS:
            reason = reason_tls_refused(key, options[key]) or (
                f"the options of OAUTHBEARER are {', '.join(sorted(known))}, and ssl. of clients"
            )
            raise ConfigError(JAAS_CONFIG, f"has {key}; {reason}")
    given = {key: text for key, text in options.items() if key in ENDPOINT_TLS_KEYS}
    if not given:
        return None
    spellings = {key: f"{JAAS_CONFIG} (option {key})" for key in given}
    try:
        values = values_of(TlsSettings, given)[0]
    except ConfigError as error:
        raise ConfigError(spellings[error.setting], error.problem) from None
    return config_of(TlsSettings(**values), spellings)


def is_https(url: str | None) -> bool:
    """Return whether a URL has the scheme https."""
    return url is not None and url.startswith("https:")


def check_allowed(url: str, key: str, value: Value) -> None:
    """Raise ConfigError if a URL is not on the allow-list. This includes URLs of files."""
    if url not in (value(ALLOWED_URLS) or ()):
        raise ConfigError(key, f"has a URL that {ALLOWED_URLS} does not list: {url}")


def is_file_url(url: str) -> bool:
    """Return whether a URL has the scheme file."""
    return url.startswith("file:")


def path_of(url: str) -> str:
    """Return the path of a file from its URL."""
    return urlsplit(url).path
