"""OAUTHBEARER: which tokens brokers take, and where clients and brokers get theirs.

The keys are Kafka's.  Its classes are understood where they mean what is done here; the
allow-list, which Kafka reads from a property of the JVM, is a setting of the same name.
"""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any
from urllib.parse import urlsplit

from ottla.model.errors import ConfigError
from ottla.model.jwt_claims import ClaimRules
from ottla.model.settings.declare import SettingKind, setting, values_of
from ottla.model.settings.tls import (
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
    "a token is asked for at the first login after 80 % of its life, which cannot be set; there is "
    "no thread that renews tokens by a schedule"
)
"""Why Kafka's settings of the renewal of tokens are refused."""
TIMEOUT_MS_MAX = 300_000
"""A server that answers no sooner is as good as none."""
ENDPOINT_TLS_KEYS = TLS_KEYS - {
    CLIENT_AUTHENTICATION,
    PRINCIPAL_RULES,
    ALLOW_DN_CHANGES,
    ALLOW_SAN_CHANGES,
}
"""Options of the login module that say how an identity provider is trusted."""
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


# How long tokens are waited for: settings of clients, and of brokers that log in at each other.


def connect_timeout_setting() -> Any:
    """Declare `sasl.login.connect.timeout.ms`."""
    return _timeout_setting(
        CONNECT_TIMEOUT, "How long a connection to the token URL may take; 10 s if not set."
    )


def read_timeout_setting() -> Any:
    """Declare `sasl.login.read.timeout.ms`."""
    return _timeout_setting(
        READ_TIMEOUT, "How long the token URL may take to answer; 10 s if not set."
    )


def _timeout_setting(key: str, doc: str) -> Any:
    return setting(None, key=key, kind=SettingKind.INT, at_least=1, at_most=TIMEOUT_MS_MAX, doc=doc)


def retry_backoff_setting() -> Any:
    """Declare `sasl.login.retry.backoff.ms`."""
    return setting(
        100,
        key=RETRY_BACKOFF,
        kind=SettingKind.LONG,
        at_least=1,
        doc="The wait after a first failure to get a token; it doubles with each one.",
    )


def retry_backoff_max_setting() -> Any:
    """Declare `sasl.login.retry.backoff.max.ms`."""
    return setting(
        10_000,
        key=RETRY_BACKOFF_MAX,
        kind=SettingKind.LONG,
        at_least=0,
        doc="How long after the first failure a token is asked for again.",
    )


@frozen(kw_only=True)
class OAuthSettings:
    """The settings of OAUTHBEARER as Kafka calls them, each for all listeners."""

    jwks_url: str | None = setting(
        None,
        key=JWKS_URL,
        kind=SettingKind.STRING,
        parse=parse_url,
        doc="Where the keys that sign tokens are read, as a JWKS: https://… or file:///…. The URL "
        "must be listed in org.apache.kafka.sasl.oauthbearer.allowed.urls.",
    )
    refresh_ms: int = setting(
        3_600_000,
        key=f"{PREFIX}jwks.endpoint.refresh.ms",
        kind=SettingKind.LONG,
        at_least=1_000,
        doc="How often these keys are read again. A token of an unknown key has them read at "
        "once, at most every 10 s.",
    )
    backoff_ms: int = setting(
        100,
        key=f"{PREFIX}jwks.endpoint.retry.backoff.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="The wait after a first failure to read them; it doubles with each one.",
    )
    backoff_ms_max: int = setting(
        10_000,
        key=f"{PREFIX}jwks.endpoint.retry.backoff.max.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="The longest such wait.",
    )
    audience: tuple[str, ...] = setting(
        (),
        key=AUDIENCE,
        kind=SettingKind.LIST,
        doc="A token must be for one of these (claim aud).",
    )
    issuer: str | None = setting(
        None,
        key=ISSUER,
        kind=SettingKind.STRING,
        doc="Who must have issued a token (claim iss).",
    )
    allows_any_audience: bool = setting(
        False,
        key=ANY_AUDIENCE,
        doc="Whether tokens for anybody are taken, where no audience is expected. Without it such "
        "a broker does not start.",
    )
    allows_any_issuer: bool = setting(
        False,
        key=ANY_ISSUER,
        doc="Whether tokens of any issuer are taken, where none is expected. Without it such a "
        "broker does not start.",
    )
    clock_skew_seconds: int = setting(
        30,
        key=f"{PREFIX}clock.skew.seconds",
        at_least=0,
        doc="How far the clocks of issuer and broker may be apart.",
    )
    subject_claim: str = setting(
        "sub", key=f"{PREFIX}sub.claim.name", doc="The claim that names the user."
    )
    scope_claim: str = setting(
        "scope", key=f"{PREFIX}scope.claim.name", doc="The claim that has the scopes."
    )
    server_handler: str = setting(
        VALIDATOR,
        key=SERVER_HANDLER,
        kind=SettingKind.CLASS,
        one_of=(VALIDATOR, OLD_VALIDATOR, UNSECURED_VALIDATOR),
        doc="What looks at tokens. The class with Unsecured in its name takes tokens without a "
        "signature, which anybody can write: for tests alone.",
    )
    jwt_validator: str = setting(
        JWT_VALIDATORS[0],
        key=f"{PREFIX}jwt.validator.class",
        kind=SettingKind.CLASS,
        one_of=JWT_VALIDATORS,
        doc="What looks at signature and claims; there is one way only.",
    )
    login_handler: str = setting(
        LOGIN_HANDLERS[0],
        key=LOGIN_HANDLER,
        kind=SettingKind.CLASS,
        one_of=LOGIN_HANDLERS,
        doc="What gets this broker's own tokens; there is one way only.",
    )
    jwt_retriever: str = setting(
        JWT_RETRIEVERS[0],
        key=JWT_RETRIEVER,
        kind=SettingKind.CLASS,
        one_of=JWT_RETRIEVERS,
        doc="Where tokens come from; sasl.oauthbearer.token.endpoint.url says it already.",
    )
    token_url: str | None = setting(
        None,
        key=TOKEN_URL,
        kind=SettingKind.STRING,
        parse=parse_url,
        doc="Where this broker gets its own tokens for other brokers: an https:// URL that grants "
        "them for client id and secret, or file:///… of a token that others renew. It must be "
        "listed as the keys' URL.",
    )
    client_id: str | None = setting(
        None, key=CLIENT_ID, kind=SettingKind.STRING, doc="The client id for the token URL."
    )
    client_secret: str | None = setting(
        None, key=CLIENT_SECRET, kind=SettingKind.PASSWORD, doc="The secret of this client id."
    )
    scope: str | None = setting(
        None, key=f"{PREFIX}scope", kind=SettingKind.STRING, doc="The scope to ask for."
    )
    connect_timeout_ms: int | None = connect_timeout_setting()
    read_timeout_ms: int | None = read_timeout_setting()
    retry_backoff_ms: int = retry_backoff_setting()
    retry_backoff_max_ms: int = retry_backoff_max_setting()
    allowed_urls: tuple[str, ...] = setting(
        (),
        key=ALLOWED_URLS,
        kind=SettingKind.LIST,
        doc="The URLs that may be asked for keys and tokens, files' among them, whole and as they "
        "are set. Kafka reads this from a property of the JVM.",
    )


OAUTH_ONLY_KEYS = frozenset(
    one.metadata["setting"]["key"] for one in OAuthSettings.__dataclass_fields__.values()
)
"""Every setting of OAUTHBEARER."""
CLASS_KEYS = (SERVER_HANDLER, LOGIN_HANDLER, f"{PREFIX}jwt.validator.class")
"""Settings that have one value each, and are checked though nothing follows from it."""
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
"""What a broker needs to get tokens of its own."""
OAUTH_LISTENER_KEYS = OAUTH_ONLY_KEYS - {ALLOWED_URLS}
"""What may be set for one listener."""


@frozen(kw_only=True)
class OAuthRules:
    """Which tokens a listener takes."""

    jwks_url: str | None
    """Where the keys are; None where signatures are not looked at."""
    refresh_ms: int = 3_600_000
    backoff_ms: int = 100
    backoff_ms_max: int = 10_000
    claims: ClaimRules = field(default_factory=ClaimRules)
    tls: TlsConfig | None = None
    """How the server of the keys is trusted; None: by what the machine trusts."""


@frozen(kw_only=True)
class OAuthGrant:
    """Where a client gets its tokens."""

    token_url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    tls: TlsConfig | None = None
    """How the token URL is trusted; None: by what the machine trusts."""
    connect_timeout_ms: int | None = None
    read_timeout_ms: int | None = None
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


Value = Callable[[str], Any]
"""Returns the value of a setting of OAUTHBEARER as it holds for one listener, None if not set."""


def rules_of(value: Value, tls: TlsConfig | None = None) -> OAuthRules:
    """Return which tokens a listener takes; ConfigError where its settings do not say."""
    default = OAuthSettings()
    for key in CLASS_KEYS:
        value(key)
    url = value(JWKS_URL)
    if value(SERVER_HANDLER) == UNSECURED_VALIDATOR:
        if url is not None:
            raise ConfigError(
                JWKS_URL,
                f"is set, and {SERVER_HANDLER} looks at no signature; take one of them out",
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
    """Return where tokens come from; `options` are those of the login module.

    Its options of TLS go before `tls`.  Raises ConfigError where they do not say, or where the URL
    is not on the allow-list, which a client may do without.
    """
    value(JWT_RETRIEVER)
    url = value(TOKEN_URL)
    if url is None:
        raise ConfigError(
            TOKEN_URL,
            "is not set; a login by OAUTHBEARER needs where its tokens come from, as https://… "
            "or file:///…",
        )
    try:
        parse_url(url)
    except ValueError:
        raise ConfigError(TOKEN_URL, f"is {url!r}; it must be {parse_url.__doc__}") from None
    if must_be_listed or value(ALLOWED_URLS):
        check_allowed(url, TOKEN_URL, value)
    tls = endpoint_tls_of(options) or tls
    if tls is not None and not is_https(url):
        raise ConfigError(TOKEN_URL, f"is {url}, and how it is trusted over TLS is set")
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
    """Return how a login module trusts the servers of keys and tokens, None where it says nothing.

    The options are Kafka's (`ssl.truststore.location="…"` and so on).  Raises ConfigError for an
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
    """Return whether a URL is asked over TLS."""
    return url is not None and url.startswith("https:")


def check_allowed(url: str, key: str, value: Value) -> None:
    """Raise ConfigError for a URL that is not on the allow-list, a file's included."""
    if url not in (value(ALLOWED_URLS) or ()):
        raise ConfigError(key, f"has a URL that {ALLOWED_URLS} does not list: {url}")


def is_file_url(url: str) -> bool:
    """Return whether a URL is a file's."""
    return url.startswith("file:")


def path_of(url: str) -> str:
    """Return the path of a file's URL."""
    return urlsplit(url).path
