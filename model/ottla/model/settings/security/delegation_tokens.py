"""Settings of delegation tokens: the secret key, which enables them, and their lifetimes.

All controllers and brokers must have the same values, because controllers create and change the
tokens, and brokers accept logins with them.
"""

from collections.abc import Mapping

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, definitions, setting
from ottla.model.values import frozen

PREFIX = "delegation.token."
SECRET = f"{PREFIX}secret.key"
MS_PER_DAY = 86_400_000
SECRET_CHARS_MIN = 16
"""Minimum length in characters of the secret key. A client with a token and its HMAC could find a
shorter key by trying all possible keys."""


@frozen(kw_only=True)
class DelegationTokenConfig:
    """Settings of delegation tokens: secret key and lifetimes."""

    secret: str | None = setting(
        None,
        key=SECRET,
        kind=SettingKind.PASSWORD,
        doc="Secret from which tokens are generated, of at least 16 characters, the same on all "
        "controllers and brokers. Without it there are no delegation tokens.",
    )
    max_lifetime_ms: int = setting(
        7 * MS_PER_DAY,
        key=f"{PREFIX}max.lifetime.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Maximum lifetime of a token, including renewals.",
    )
    expiry_time_ms: int = setting(
        MS_PER_DAY,
        key=f"{PREFIX}expiry.time.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Lifetime of a token until it must be renewed.",
    )
    check_interval_ms: int = setting(
        3_600_000,
        key=f"{PREFIX}expiry.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval at which the controller removes expired tokens.",
    )


def check_tokens(texts: Mapping[str, str]) -> None:
    """Raise ConfigError if a setting of delegation tokens is unknown or has no effect without the
    secret key, or if the secret key is too short."""
    known = definitions(DelegationTokenConfig)
    secret = texts.get(SECRET, "").strip()
    for key, text in texts.items():
        if not key.startswith(PREFIX) or not text.strip():
            continue
        if key not in known:
            raise ConfigError(key, f"is set; the settings of tokens are {', '.join(known)}")
        if not secret:
            raise ConfigError(key, f"is set, and {SECRET} is not: there are no delegation tokens")
    if secret and len(secret) < SECRET_CHARS_MIN:
        raise ConfigError(
            SECRET, f"is too short; it must have at least {SECRET_CHARS_MIN} characters"
        )
