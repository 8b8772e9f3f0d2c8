"""SASL settings: the mechanisms and users of each listener, and this broker's own login to other
brokers.

A broker with an unsupported mechanism or setting does not start. No SASL setting is ever ignored. A
setting of a listener may be written in three ways, with decreasing precedence:
`listener.name.NAME.MECHANISM.KEY` (for the keys that Kafka has per mechanism),
`listener.name.NAME.KEY`, and `KEY`.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, TypeAlias

from ottla.model.errors import ConfigError
from ottla.model.limits import KIB
from ottla.model.security.oauthbearer import OAUTHBEARER, BearerToken
from ottla.model.settings.declare import SettingKind, setting, values_of
from ottla.model.settings.endpoints import LISTENER_PREFIX as LISTENER_PREFIX
from ottla.model.settings.endpoints import SASL_SSL as SASL_SSL
from ottla.model.settings.endpoints import ListenAddress
from ottla.model.settings.security.jaas import (
    OAUTHBEARER_MODULE,
    PLAIN_MODULE,
    SCRAM_MODULE,
    JaasLogin,
    parse_jaas,
)
from ottla.model.settings.security.oauth import (
    ALLOWED_URLS,
    GRANT_KEYS,
    JWKS_URL,
    OAUTH_LISTENER_KEYS,
    OAUTH_ONLY_KEYS,
    TOKEN_URL,
    OAuthGrant,
    OAuthRules,
    OAuthSettings,
    Value,
    endpoint_tls_of,
    grant_of,
    is_https,
    rules_of,
)
from ottla.model.values import frozen

SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_PROTOCOLS = (SASL_PLAINTEXT, SASL_SSL)
"""Security protocols with SASL: SASL_PLAINTEXT and SASL_SSL."""

PLAIN = "PLAIN"
SCRAM_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SERVED_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER)
KAFKA_DEFAULT_MECHANISM = "GSSAPI"
MODULES = {
    PLAIN: PLAIN_MODULE,
    **dict.fromkeys(SCRAM_MECHANISMS, SCRAM_MODULE),
    OAUTHBEARER: OAUTHBEARER_MODULE,
}

ENABLED_MECHANISMS = "sasl.enabled.mechanisms"
INTER_BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
JAAS_CONFIG = "sasl.jaas.config"
RECEIVE_BYTES_MAX = "sasl.server.max.receive.size"
SESSION_MS_MAX = "connections.max.reauth.ms"
END_REVOKED = "ottla.sasl.end.revoked.sessions"
FAILURE_DELAY_MS = "connection.failed.authentication.delay.ms"

LISTENER_KEYS = OAUTH_LISTENER_KEYS | {
    ENABLED_MECHANISMS,
    JAAS_CONFIG,
    SESSION_MS_MAX,
    RECEIVE_BYTES_MAX,
}
"""Keys of the SASL settings that may be set for a single listener."""
MECHANISM_KEYS = OAUTH_LISTENER_KEYS | {JAAS_CONFIG, SESSION_MS_MAX}
"""Keys of the SASL settings that may be set for a single mechanism."""
SASL_KEYS = LISTENER_KEYS | {ALLOWED_URLS, END_REVOKED, INTER_BROKER_MECHANISM, FAILURE_DELAY_MS}
"""Keys of all supported SASL settings, without prefixes."""


def parse_mechanisms(text: str) -> tuple[str, ...]:
    """a list of any of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER.

    Returns the mechanisms. Raises ValueError for any other text. Error messages quote the first
    line as the description of valid texts.
    """
    found = tuple(dict.fromkeys(part.strip().upper() for part in text.split(",") if part.strip()))
    if not found or not set(found) <= set(SERVED_MECHANISMS):
        raise ValueError(text)
    return found


TokenProvider: TypeAlias = Callable[[], Awaitable[BearerToken | str] | BearerToken | str]
"""Function that returns an OAuth token, with or without its expiry. It may be async."""


@frozen(kw_only=True)
class SaslSettings:
    """The SASL settings under Kafka's names, with values that apply to all listeners."""

    enabled_mechanisms: tuple[str, ...] = setting(
        (KAFKA_DEFAULT_MECHANISM,),
        key=ENABLED_MECHANISMS,
        parse=parse_mechanisms,
        doc="Mechanisms with which clients log in on a SASL listener. Kafka's default, GSSAPI, is "
        "not supported: a broker with a SASL listener must set this.",
    )
    jaas_config: JaasLogin | None = setting(
        None,
        key=JAAS_CONFIG,
        kind=SettingKind.PASSWORD,
        parse=parse_jaas,
        doc="Login module. username and password are this broker's login to other brokers; "
        'user_NAME="password" are the users of PLAIN. With the prefix '
        "listener.name.NAME.MECHANISM. it applies to one mechanism of one listener.",
    )
    inter_broker_mechanism: str | None = setting(
        None,
        key=INTER_BROKER_MECHANISM,
        kind=SettingKind.STRING,
        one_of=SERVED_MECHANISMS,
        doc="Mechanism with which brokers log in to each other, if their listener is a SASL "
        "listener.",
    )
    receive_bytes_max: int = setting(
        512 * KIB,
        key=RECEIVE_BYTES_MAX,
        at_least=1_024,
        doc="Size of the largest request of a client that has not logged in yet.",
    )
    session_ms_max: int = setting(
        0,
        key=SESSION_MS_MAX,
        kind=SettingKind.LONG,
        at_least=0,
        doc="Maximum lifetime of a session before the client must log in again on the same "
        "connection (KIP-368); 0 is unlimited.",
    )
    ends_revoked_sessions: bool = setting(
        True,
        key=END_REVOKED,
        doc="Ottla's own: whether a session ends within a second after the SCRAM user or the "
        "delegation token of its login was deleted. In Kafka it continues until its expiry. A "
        "changed password ends no session.",
    )
    failure_delay_ms: int = setting(
        100,
        key=FAILURE_DELAY_MS,
        at_least=0,
        doc="Delay of the response to a failed login, after which the connection closes.",
    )


@frozen(kw_only=True)
class SaslListener:
    """SASL settings of one listener, for the logins of clients."""

    mechanisms: tuple[str, ...]
    plain_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords by user name, for the mechanism PLAIN."""
    session_ms_max: Mapping[str, int] = field(default_factory=dict)
    """Maximum lifetime of an authenticated session in ms, by mechanism. 0 means that sessions do
    not expire."""
    receive_bytes_max: int = 512 * KIB
    oauth: OAuthRules | None = None
    """Rules by which tokens are accepted, or None if OAUTHBEARER is not enabled."""


@frozen
class SaslLogin:
    """Mechanism and credentials with which a client logs in by SASL."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    grant: OAuthGrant | None = None
    """Source from which the client obtains tokens for OAUTHBEARER, or None."""
    provider: TokenProvider | None = None
    """Function that returns the client's tokens for OAUTHBEARER. It is used instead of `grant`."""
    is_token: bool = False
    """True if user name and password are the id and the HMAC of a delegation token (SCRAM only)."""


@frozen(kw_only=True)
class SaslConfig:
    """SASL settings of a broker: the listeners on which clients log in, and the broker's own login
    to other brokers."""

    listeners: Mapping[str, SaslListener] = field(default_factory=dict)
    login: SaslLogin | None = None
    failure_delay_ms: int = 100
    ends_revoked_sessions: bool = True


NO_SASL = SaslConfig()


def sasl_of(
    texts: Mapping[str, str], listeners: Iterable[ListenAddress], inter_broker: str
) -> SaslConfig:
    """Return the SASL settings of a broker's listeners. Raises ConfigError if they are invalid or
    contradict each other."""
    guarded = [one.name for one in listeners if one.protocol in SASL_PROTOCOLS]
    for key in texts:
        _check_place(key, guarded)
    if not guarded:
        return NO_SASL
    own = SaslSettings(**values_of(SaslSettings, texts)[0])
    config = {name: _listener(texts, name) for name in guarded}
    login = None
    if inter_broker in guarded:
        login = _login(texts, inter_broker, config[inter_broker], own.inter_broker_mechanism)
    elif own.inter_broker_mechanism is not None:
        raise ConfigError(
            INTER_BROKER_MECHANISM,
            f"is set, but brokers reach each other by {inter_broker}, which is no SASL listener",
        )
    _check_oauth_is_used(texts, config, login)
    return SaslConfig(
        listeners=config,
        login=login,
        failure_delay_ms=own.failure_delay_ms,
        ends_revoked_sessions=own.ends_revoked_sessions,
    )


def _check_oauth_is_used(
    texts: Mapping[str, str], config: Mapping[str, SaslListener], login: SaslLogin | None
) -> None:
    """Raise ConfigError for an OAUTHBEARER setting that would have no effect."""
    is_taken = any(one.oauth for one in config.values())
    is_shown = login is not None and login.grant is not None
    for key, text in texts.items():
        bare = split_key(key)[2]
        if bare not in OAUTH_ONLY_KEYS or not text.strip():
            continue
        if not is_taken:
            raise ConfigError(key, f"is set, and no listener has the mechanism {OAUTHBEARER}")
        if bare in GRANT_KEYS and not is_shown:
            raise ConfigError(key, f"is set, and this broker does not log in by {OAUTHBEARER}")


def split_key(key: str) -> tuple[str, str, str]:
    """Split the key of a SASL setting into listener, mechanism and key without prefixes. Listener
    and mechanism may be empty."""
    listener = mechanism = ""
    if key.startswith(LISTENER_PREFIX):
        listener, _, key = key.removeprefix(LISTENER_PREFIX).partition(".")
    if key not in SASL_KEYS:
        first, _, rest = key.partition(".")
        if rest in MECHANISM_KEYS:
            mechanism, key = first, rest
    return listener, mechanism, key


def is_sasl_key(key: str) -> bool:
    """Return whether a key is a supported SASL setting. The key may have the prefix of a listener
    and mechanism."""
    listener, mechanism, bare = split_key(key)
    if listener and bare not in LISTENER_KEYS:
        return False
    if bare in OAUTH_LISTENER_KEYS and mechanism.upper() not in ("", OAUTHBEARER):
        return False
    return bare in SASL_KEYS and mechanism.upper() in ("", *SERVED_MECHANISMS)


def _check_place(key: str, guarded: list[str]) -> None:
    """Raise ConfigError if a SASL setting is for a listener without SASL, or if no listener has
    SASL."""
    if not is_sasl_key(key):
        return
    listener, _, _ = split_key(key)
    if not guarded:
        raise ConfigError(
            key,
            "is set, and no listener has a SASL protocol; give one SASL_SSL or SASL_PLAINTEXT in "
            "listener.security.protocol.map, or remove the setting",
        )
    if listener and listener.upper() not in guarded:
        raise ConfigError(
            key, f"is for {listener.upper()}; the listeners with SASL are {', '.join(guarded)}"
        )


def _found(texts: Mapping[str, str], listener: str, mechanism: str, key: str) -> tuple[str, str]:
    """Return the key with the highest precedence that sets a SASL setting, and its text. Both are
    empty if the setting is not set."""
    prefix = f"{LISTENER_PREFIX}{listener.lower()}."
    for spelling in (
        f"{prefix}{mechanism.lower()}.{key}",
        f"{prefix}{key}",
        f"{mechanism.lower()}.{key}",
        key,
    ):
        for name, text in texts.items():
            if name.lower() == spelling and text.strip():
                return name, text
    return "", ""


def _value(texts: Mapping[str, str], listener: str, mechanism: str, key: str) -> object:
    """Return the effective value of a SASL setting for one mechanism of one listener."""
    spelling, text = _found(texts, listener, mechanism, key)
    if not spelling:
        return None
    try:
        kind: type[Any] = OAuthSettings if key in OAUTH_ONLY_KEYS else SaslSettings
        values, _ = values_of(kind, {key: text})
    except ConfigError as error:
        # The text may contain passwords.
        if key == JAAS_CONFIG:
            raise ConfigError(
                spelling, f'is no login module; it must be {MODULES[PLAIN]} required key="value";'
            ) from None
        raise ConfigError(spelling, str(error).partition(": ")[2]) from None
    return next(iter(values.values()))


def _listener(texts: Mapping[str, str], name: str) -> SaslListener:
    spelling, _ = _found(texts, name, "", ENABLED_MECHANISMS)
    mechanisms = _value(texts, name, "", ENABLED_MECHANISMS)
    if not isinstance(mechanisms, tuple):
        raise ConfigError(
            spelling or ENABLED_MECHANISMS,
            f"is not set, which means {KAFKA_DEFAULT_MECHANISM}, and that is not served; "
            f"{name} can have {', '.join(SERVED_MECHANISMS)}",
        )
    users: dict[str, str] = {}
    session_ms_max: dict[str, int] = {}
    for mechanism in mechanisms:
        login = _jaas(texts, name, mechanism)
        if mechanism == PLAIN:
            users = {} if login is None else login.users
            if not users or not all(users.values()):
                raise ConfigError(
                    _spelling_of_jaas(texts, name, mechanism),
                    f'must give the users of PLAIN on {name}, user_NAME="password" each',
                )
        elif login is not None and login.users:
            raise ConfigError(
                _spelling_of_jaas(texts, name, mechanism),
                f"has {', '.join(map(_user_key, login.users))}; the users of {mechanism} are in "
                "the metadata log: ottla user add",
            )
        found = _value(texts, name, mechanism, SESSION_MS_MAX)
        session_ms_max[mechanism] = found if isinstance(found, int) else 0
    receive = _value(texts, name, "", RECEIVE_BYTES_MAX)
    oauth = None
    if OAUTHBEARER in mechanisms:
        oauth = _oauth_rules(texts, name)
    return SaslListener(
        mechanisms=mechanisms,
        plain_users=users,
        session_ms_max=session_ms_max,
        receive_bytes_max=receive if isinstance(receive, int) else 512 * KIB,
        oauth=oauth,
    )


def _oauth_rules(texts: Mapping[str, str], name: str) -> OAuthRules:
    """Return a listener's rules for accepting tokens, with the TLS trust for the signing keys."""
    value: Value = partial(_value, texts, name, OAUTHBEARER)
    login = _jaas(texts, name, OAUTHBEARER)
    tls = endpoint_tls_of({} if login is None else login.options)
    if tls is not None and not any(is_https(value(key)) for key in (JWKS_URL, TOKEN_URL)):
        raise ConfigError(
            _spelling_of_jaas(texts, name, OAUTHBEARER),
            f"has options of TLS, and neither {JWKS_URL} nor {TOKEN_URL} is https://…",
        )
    return rules_of(value, tls)


def _user_key(user: str) -> str:
    return f"user_{user}"


def _spelling_of_jaas(texts: Mapping[str, str], listener: str, mechanism: str) -> str:
    spelling, _ = _found(texts, listener, mechanism, JAAS_CONFIG)
    return spelling or f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{JAAS_CONFIG}"


def _jaas(texts: Mapping[str, str], listener: str, mechanism: str) -> JaasLogin | None:
    """Return the login module of a mechanism. Raises ConfigError if it belongs to another
    mechanism."""
    found = _value(texts, listener, mechanism, JAAS_CONFIG)
    if not isinstance(found, JaasLogin):
        return None
    if found.module != MODULES[mechanism]:
        spelling = _spelling_of_jaas(texts, listener, mechanism)
        # Without a mechanism in its key, the setting applies to the mechanism of its module.
        if mechanism.lower() in spelling.lower() or found.module not in MODULES.values():
            raise ConfigError(spelling, f"has {found.module}; {mechanism} is {MODULES[mechanism]}")
        return None
    return found


def _login(
    texts: Mapping[str, str], listener: str, guard: SaslListener, mechanism: str | None
) -> SaslLogin:
    """Return this broker's login to other brokers."""
    if mechanism is None:
        raise ConfigError(
            INTER_BROKER_MECHANISM,
            f"is not set, which means {KAFKA_DEFAULT_MECHANISM}, and that is not served; brokers "
            f"reach each other by {listener}: choose one of {', '.join(guard.mechanisms)}",
        )
    if mechanism not in guard.mechanisms:
        raise ConfigError(
            INTER_BROKER_MECHANISM,
            f"is {mechanism}, which {ENABLED_MECHANISMS} does not have on {listener}: "
            f"{', '.join(guard.mechanisms)}",
        )
    login = _jaas(texts, listener, mechanism)
    options = {} if login is None else login.options
    if mechanism == OAUTHBEARER:
        grant = grant_of(partial(_value, texts, listener, mechanism), options)
        return SaslLogin(mechanism, grant=grant)
    if not options.get("username") or not options.get("password"):
        raise ConfigError(
            _spelling_of_jaas(texts, listener, mechanism),
            f"must give username and password: brokers log in at {listener} with {mechanism}",
        )
    return SaslLogin(
        mechanism, options["username"], options["password"], is_token=asks_for_token(options)
    )


def asks_for_token(options: Mapping[str, str]) -> bool:
    """Return whether the options of a login module state that the password is the HMAC of a
    delegation token."""
    return options.get("tokenauth", "").strip().lower() == "true"
