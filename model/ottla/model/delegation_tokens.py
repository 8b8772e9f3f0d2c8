"""Delegation tokens (KIP-48): who one is for, who may renew it, until when; and its HMAC.  Pure.

The metadata log has a token without its HMAC, which is that of its id under a secret of the
cluster (`delegation.token.secret.key`): a client shows it as the password of a login by SCRAM.
"""

import hashlib
import hmac
from base64 import b64encode
from functools import lru_cache

from ottla.model.values import frozen

USER_TYPE = "User"

KEPT_MAX = 1 << 17
"""HMACs that are kept, those of all tokens of a cluster: a renewal looks for its token by them, and
to make each again takes some 10 µs."""


@frozen(kw_only=True)
class DelegationToken:
    """One token.  Principals are as Kafka writes them, times are of the Unix epoch."""

    id: str
    owner: str
    requester: str
    """Who asked for it; often the owner."""
    renewers: tuple[str, ...] = ()
    issued_ms: int
    max_ms: int
    """The latest end that a renewal may give it."""
    expires_ms: int

    def may_be_renewed_by(self, principal: str) -> bool:
        """Return whether a principal may renew or end it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Return whether a principal is its owner, its requester or one of its renewers."""
        return principal in (self.owner, self.requester) or principal in self.renewers

    def holds_at(self, now_ms: int) -> bool:
        """Return whether it may be used at a time."""
        return now_ms <= min(self.expires_ms, self.max_ms)


@lru_cache(maxsize=KEPT_MAX)
def token_hmac(secret: str, token_id: str) -> bytes:
    """Return what proves that a client was given a token."""
    return hmac.digest(secret.encode(), token_id.encode(), hashlib.sha512)


def token_password(secret: str, token_id: str) -> str:
    """Return a token's HMAC as the password that clients log in with."""
    return b64encode(token_hmac(secret, token_id)).decode()
