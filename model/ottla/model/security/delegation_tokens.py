"""Delegation tokens (KIP-48): owner, renewers, expiry, and HMAC. Pure.

The metadata log stores tokens without their HMACs. The HMAC of a token is computed from its id and
a secret of the cluster (`delegation.token.secret.key`). Clients use the HMAC as the password of a
SCRAM login.
"""

import hashlib
import hmac
from base64 import b64encode
from functools import lru_cache

from ottla.model.values import frozen

USER_TYPE = "User"

KEPT_MAX = 1 << 17
"""Maximum number of HMACs in the cache, enough for all tokens of a cluster. A renewal searches for
its token by HMAC, and computing an HMAC takes about 10 µs. With a smaller number, HMACs are
computed repeatedly. A larger number uses more memory."""


@frozen(kw_only=True)
class DelegationToken:
    """One delegation token, without its HMAC. Principals are in Kafka's notation (`User:alice`).
    Times are in milliseconds since the Unix epoch."""

    id: str
    owner: str
    requester: str
    """Principal that requested the token. Usually it is the owner."""
    renewers: tuple[str, ...] = ()
    issued_ms: int
    max_ms: int
    """The latest expiry that a renewal may set, in ms since the Unix epoch."""
    expires_ms: int

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return whether a principal may renew the token or make it expire."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Return whether a principal is the owner, the requester or a renewer of the token."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def holds_at(self, now_ms: int) -> bool:
        """Return whether the token is valid at a time, given in ms since the Unix epoch."""
        return now_ms <= min(self.expires_ms, self.max_ms)


@lru_cache(maxsize=KEPT_MAX)
def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC of a token. Clients that know it may use the token."""
    return hmac.digest(secret.encode(), token_id.encode(), hashlib.sha512)


def token_password(secret: str, token_id: str) -> str:
    """Return the password with which clients log in by a token: the token's HMAC as text."""
    return b64encode(token_hmac(secret, token_id)).decode()
