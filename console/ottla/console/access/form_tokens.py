"""Tokens in forms against cross-site request forgery (CSRF). A token proves that a page of this
console created the form. Pure.

A token is the session's secret, combined with a pad that differs in each page. Compression of a
page therefore does not reveal the secret (BREACH).
"""

import base64
import hmac
from binascii import Error

SECRET_BYTES = 32
FIELD = "csrf"
"""Name of the form field that contains the token."""


def token_of(secret: bytes, pad: bytes) -> str:
    """Return a token for forms, derived from a session's secret. `pad` must be random and as long
    as the secret."""
    return base64.urlsafe_b64encode(pad + _xor(secret, pad)).decode("ascii")


def is_token_of(text: str, secret: bytes) -> bool:
    """Return whether a form's token belongs to a session's secret."""
    try:
        raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
    except (Error, ValueError):
        return False
    size = len(secret)
    if len(raw) != 2 * size:
        return False
    return hmac.compare_digest(_xor(raw[:size], raw[size:]), secret)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
