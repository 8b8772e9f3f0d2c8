"""Delegation tokens: whether there are any, and how long they hold.

Controllers and brokers have the same settings: the former decide about tokens, the latter take
logins by them.
"""

from collections.abc import Mapping

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import SettingKind, definitions, setting
from ottla.model.values import frozen

PREFIX = "delegation.token."
SECRET = f"{PREFIX}secret.key"
MS_PER_DAY = 86_400_000
SECRET_CHARS_MIN = 16
"""A shorter secret can be guessed from one token's HMAC."""


@frozen(kw_only=True)
class DelegationTokenConfig:
    """How delegation tokens are made."""

    secret: str | None = setting(
        None,
        key=SECRET,
        kind=SettingKind.PASSWORD,
        doc="The secret that tokens are made with, the same on all controllers and brokers, of at "
        "least 16 characters. Without it there are no delegation tokens.",
    )
    max_lifetime_ms: int = setting(
        7 * MS_PER_DAY,
        key=f"{PREFIX}max.lifetime.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How long a token can hold, renewals included.",
    )
    expiry_time_ms: int = setting(
        MS_PER_DAY,
        key=f"{PREFIX}expiry.time.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How long a token holds until it must be renewed.",
    )
    check_interval_ms: int = setting(
        3_600_000,
        key=f"{PREFIX}expiry.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How often the controller removes tokens that have ended.",
    )


def check_tokens(texts: Mapping[str, str]) -> None:
    """Raise ConfigError for settings of tokens that nothing would come of."""
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
