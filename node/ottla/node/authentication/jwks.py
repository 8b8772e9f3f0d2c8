"""Public keys that verify tokens, in the format JWKS (RFC 7517), and the verification of signatures
with these keys. Pure.

Only public keys for signature algorithms are accepted. A shared secret (`oct`) is refused, because
a holder of the secret could also sign tokens. A public key is never used as the secret of an HMAC.
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.limits import MIB
from ottla.model.security.jwt_claims import TokenFault, TokenFaultError
from ottla.model.security.oauthbearer import SignedToken, parse_object
from ottla.model.values import frozen

JWKS_BYTES_MAX = MIB
"""Maximum bytes of a JWKS (a set of public keys). The JWKS of a large identity provider has some 10
kB."""

KEYS_MAX = 1_000

RSA_BITS_MIN = 2_048
"""Minimum bits of an RSA key that verifies tokens; shorter keys can be broken."""
RSA_BITS_MAX = 8_192
"""Maximum bits of an RSA key that verifies tokens; longer ones cost the event loop milliseconds for
each token."""

KEY_TYPES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", "")),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""Key type and curve that each signature algorithm requires, by the algorithm's name."""


@frozen
class VerificationKey:
    """Public key that verifies the signatures of tokens."""

    key_id: str | None
    algorithm: str
    """The only signature algorithm for which the key may be used. Empty if the JWKS does not
    restrict it."""
    type: str
    curve: str
    public: Any

    def fits(self, algorithm: str) -> bool:
        """Return whether the key may be used with a signature algorithm."""
        if self.algorithm not in ("", algorithm):
            return False
        return KEY_TYPES.get(algorithm) == (self.type, self.curve)


class KeySource:
    """Public keys of one JWKS (key set of an identity provider), as last read. If a token names a
    missing key, the JWKS is read again earlier than its period requires."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: tuple[VerificationKey, ...] | None = None
        """Public keys of the JWKS that verify tokens; None until the JWKS has been read once."""
        self.problem = ""
        """Description of the error of the last attempt to read the JWKS; empty if the attempt
        succeeded."""
        self.on_wanted: Callable[[], None] = lambda: None
        """Function that is called when a token names an unknown key, so that the JWKS is read
        earlier."""

    def verify(self, token: SignedToken) -> None:
        """Verify the signature of a token. Raises TokenFaultError if no key of the JWKS has signed
        the token."""
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
            # More than one key fits only if the token names none.
            raise TokenFaultError(TokenFault.UNKNOWN_KEY if fitting else TokenFault.ALGORITHM)
        if not algorithms()[algorithm].verify(token.signed, fitting[0].public, token.signature):
            raise TokenFaultError(TokenFault.SIGNATURE)


def parse_jwks(data: bytes) -> tuple[VerificationKey, ...]:
    """Return the usable public keys in a JWKS. Raises CorruptDataError if no key is usable."""
    try:
        rows = parse_object(data).get("keys")
    except ProtocolError:
        raise CorruptDataError("the JWKS is not a JSON object") from None
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
    """Return the key in one entry of a JWKS. Returns None if the key is not meant for signatures or
    cannot be decoded."""
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
    except Exception:  # An invalid key verifies nothing, whatever the error.
        return None
    if key_type == "RSA" and not RSA_BITS_MIN <= public.key_size <= RSA_BITS_MAX:
        return None
    return VerificationKey(key_id, algorithm, str(key_type), curve, public)


@cache
def algorithms() -> Mapping[str, Any]:
    """Return PyJWT's signature algorithms by name. Raises ModuleNotFoundError if the extra `oauth`
    is not installed."""
    from jwt.algorithms import get_default_algorithms

    return get_default_algorithms()
