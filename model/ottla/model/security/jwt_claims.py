"""Checks of the claims of an OAuth token whose signature has already been verified. Pure.

The rules are the same as in Kafka's broker. A token needs an expiry time and an issue time that are
consistent with the broker's clock. It also needs a subject, and the issuer and audience that the
settings require.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from ottla.model.values import frozen

SUBJECT_CHARS_MAX = 1_024
"""Maximum length of a token's subject, in characters. The subject becomes the user name, which
every broker shows with each connection."""

SECONDS_MAX = 1 << 40
"""Maximum time in a claim, in seconds since the Unix epoch. Larger times would overflow when
converted to milliseconds."""


class TokenFault(Enum):
    """Reason why an OAuth token is rejected. It is shown to operators, never to clients."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown-key"
    SIGNATURE = "signature"
    CLAIMS = "claims"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    ISSUER = "issuer"
    AUDIENCE = "audience"


class TokenFaultError(Exception):
    """An OAuth token is rejected because of one of its claims."""

    def __init__(self, fault: TokenFault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@frozen(kw_only=True)
class ClaimRules:
    """Requirements that the claims of a client's OAuth token must satisfy."""

    audiences: tuple[str, ...] = ()
    """Accepted audiences. The token must have at least one of them. If empty, any audience is
    accepted."""
    issuer: str | None = None
    skew_ms: int = 30_000
    """Allowed difference between the clocks of the token's issuer and of the broker, in ms."""
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class ProvenToken(NamedTuple):
    """Result of a successful check of an OAuth token: its principal, and its expiry in ms since the
    Unix epoch."""

    user: str
    ends_ms: int


def check_claims(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> ProvenToken:
    """Check the claims of an OAuth token. Returns the token's principal and expiry. Raises
    TokenFaultError if the claims violate the rules."""
    ends_ms = _time_ms(claims, "exp")
    _time_ms(claims, "iat")
    if ends_ms + rules.skew_ms <= now_ms:
        raise TokenFaultError(TokenFault.EXPIRED)
    if "nbf" in claims and _time_ms(claims, "nbf") - rules.skew_ms > now_ms:
        raise TokenFaultError(TokenFault.NOT_YET_VALID)
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise TokenFaultError(TokenFault.ISSUER)
    if rules.audiences and not set(_texts(claims.get("aud"))) & set(rules.audiences):
        raise TokenFaultError(TokenFault.AUDIENCE)
    if not all(one.strip() for one in _texts(claims.get(rules.scope_claim))):
        raise TokenFaultError(TokenFault.CLAIMS)
    user = claims.get(rules.subject_claim)
    if not isinstance(user, str) or not 0 < len(user.strip()) <= len(user) <= SUBJECT_CHARS_MAX:
        raise TokenFaultError(TokenFault.CLAIMS)
    return ProvenToken(user.strip(), ends_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenFaultError(TokenFault.CLAIMS)
    # Neither NaN nor infinity is within these bounds.
    if not 0 <= found <= SECONDS_MAX:
        raise TokenFaultError(TokenFault.CLAIMS)
    return int(found * 1_000)


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [one for one in value if isinstance(one, str)]
    return []
