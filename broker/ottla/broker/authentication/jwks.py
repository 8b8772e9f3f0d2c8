"""The keys that sign tokens, as a JWKS (RFC 7517) has them, and the look at a signature.  Pure.

Only public keys of signature algorithms count: a shared secret (`oct`) would let anyone who
verifies sign, and a public key is never taken for the secret of an HMAC.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.jwt_claims import TokenFault, TokenFaultError
from ottla.model.limits import MIB
from ottla.model.oauthbearer import SignedToken, parse_object
from ottla.model.values import frozen

JWKS_BYTES_MAX = MIB
"""Longest JWKS; those of large identity providers are some 10 kB."""

KEYS_MAX = 1_000

RSA_BITS_MIN = 2_048
"""Shorter keys can be broken."""
RSA_BITS_MAX = 8_192
"""Longer ones cost the loop milliseconds for each token."""

KEY_TYPES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", "")),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Which keys an algorithm may be used with: type and curve."""


@frozen
class VerificationKey:
    """One public key."""

    key_id: str | None
    algorithm: str
    """The one algorithm that it is for; empty where the JWKS does not say."""
    type: str
    curve: str
    public: Any

    def fits(self, algorithm: str) -> bool:
        """Return whether the key may be used with an algorithm."""
        if self.algorithm not in ("", algorithm):
            return False
        return KEY_TYPES.get(algorithm) == (self.type, self.curve)


class KeySource:
    """The keys of one JWKS: as they were read last, and whether they are wanted sooner."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: tuple[VerificationKey, ...] | None = None
        """None until they have been read once."""
        self.problem = ""
        """Why they could not be read the last time."""
        self.on_wanted: Callable[[], None] = lambda: None
        """Called when a token names a key that is not known."""

    def verify(self, token: SignedToken) -> None:
        """Raise TokenFaultError unless one of the keys signed the token."""
        algorithm = token.algorithm
        if algorithm not in KEY_TYPES or "crit" in token.header:
            raise TokenFaultError(TokenFault.ALGORITHM)
        wanted = token.key_id
        named = [one for one in self.keys or () if wanted in (None, one.key_id)]
        if not named:
            self.on_wanted()
            raise TokenFaultError(TokenFault.UNKNOWN_KEY)
        fitting = [one for one in named if one.fits(algorithm)]
        if len(fitting) != 1:
            # More than one only where the token names none: it could be any.
            raise TokenFaultError(TokenFault.UNKNOWN_KEY if fitting else TokenFault.ALGORITHM)
        if not algorithms()[algorithm].verify(token.signed, fitting[0].public, token.signature):
            raise TokenFaultError(TokenFault.SIGNATURE)


def parse_jwks(data: bytes) -> tuple[VerificationKey, ...]:
    """Return the usable keys of a JWKS.  Raises CorruptDataError where there is none."""
    try:
        rows = parse_object(data).get("keys")
    except ProtocolError:
        raise CorruptDataError("the JWKS is no JSON object") from None
    if not isinstance(rows, list) or len(rows) > KEYS_MAX:
        raise CorruptDataError(f"the JWKS has no list of at most {KEYS_MAX} keys")
    found: dict[tuple[str | None, str, str], VerificationKey] = {}
    for row in rows:
        key = _key_of(row) if isinstance(row, dict) else None
        if key is not None:
            found[key.key_id, key.type, key.curve] = key
    if not found:
        raise CorruptDataError("the JWKS has no public key of a signature algorithm")
    return tuple(found.values())


def _key_of(row: Mapping[str, Any]) -> VerificationKey | None:
    """Return a key; None for one that is not for signatures, or that cannot be read."""
    key_type, curve, key_id = row.get("kty"), row.get("crv", ""), row.get("kid")
    if row.get("use", "sig") != "sig" or "d" in row or not isinstance(key_id, str | None):
        return None
    algorithm = row.get("alg", "")
    types = KEY_TYPES.values() if not algorithm else (KEY_TYPES.get(algorithm),)
    if (key_type, curve) not in types:
        return None
    named = {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[str(key_type)]
    try:
        public = algorithms()[named].from_jwk(dict(row))
    except Exception:  # a key that cannot be read is one that signs nothing, whatever is wrong
        return None
    if key_type == "RSA" and not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
        return None
    return VerificationKey(key_id, algorithm, str(key_type), curve, public)


@cache
def algorithms() -> Mapping[str, Any]:
    """Return the algorithms by name; ModuleNotFoundError without the extra `oauth`."""
    from jwt.algorithms import get_default_algorithms

    return get_default_algorithms()
