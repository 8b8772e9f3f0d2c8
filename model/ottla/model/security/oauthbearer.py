"""Messages of the SASL mechanism OAUTHBEARER (RFC 7628, KIP-255), and the parts of a signed token
(RFC 7515). Pure.

A client's only message contains its token. A server that rejects the token answers with a JSON
text. The client acknowledges that answer with one byte, and then the login fails. All input is
untrusted: its size is limited, and invalid input raises `ProtocolError`.
"""

import json
import re
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Mapping
from dataclasses import field
from typing import Any, NamedTuple

from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB
from ottla.model.values import frozen

OAUTHBEARER = "OAUTHBEARER"

TOKEN_CHARS_MAX = 64 * KIB
"""Maximum length of a token, in characters. Tokens of identity providers are smaller than 10 kB.
Parsing a longer token would block the event loop."""

ACKNOWLEDGEMENT = b"\x01"
"""Message with which a client acknowledges a server's error, before the login fails."""

INVALID_TOKEN = b'{"status":"invalid_token"}'
"""Answer of a server to a token that it rejects."""

SEPARATOR = "\x01"
AUTH_KEY = "auth"

_HEADER = re.compile(r"n,(?:a=([^,]*))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9\-._~+/]+=*)")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]*")


class BearerMessage(NamedTuple):
    """The first message of a client in an OAUTHBEARER login."""

    authorization_id: str
    token: str
    extensions: Mapping[str, str]
    """SASL extensions: further name-value pairs that the client sends (KIP-342)."""


@frozen
class BearerToken:
    """An OAuth token of a client, and the time at which it expires."""

    value: str = field(repr=False)
    """The token's text, as sent to the server."""
    expires_at_s: float | None = None
    """Expiry time in seconds since the Unix epoch, or None if it is not known."""


@frozen
class SignedToken:
    """A JWS token in compact form, split into its parts. Neither the signature nor the claims have
    been verified."""

    header: Mapping[str, Any]
    payload: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    """The part of the token that the signature covers: header and payload."""
    signature: bytes = field(repr=False)

    @property
    def algorithm(self) -> str:
        """Name of the signature algorithm in the token's header, or "" if the header contains no
        algorithm."""
        found = self.header.get("alg")
        return found if isinstance(found, str) else ""

    @property
    def key_id(self) -> str | None:
        """Id of the signing key in the token's header, or None if the header contains no key id."""
        found = self.header.get("kid")
        return found if isinstance(found, str) else None


def parse_bearer_message(message: bytes) -> BearerMessage:
    """Decode a client's first message in an OAUTHBEARER login. Raises ProtocolError if it is
    malformed."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ProtocolError("an OAUTHBEARER message is no UTF-8") from None
    header = _HEADER.match(text)
    if header is None or not text.endswith(SEPARATOR * 2):
        raise ProtocolError("client-first-message of OAUTHBEARER")
    pairs = text[header.end() : -2].removeprefix(SEPARATOR)
    if text[header.end()] != SEPARATOR:
        raise ProtocolError("client-first-message of OAUTHBEARER: its separator")
    found: dict[str, str] = {}
    for pair in pairs.split(SEPARATOR):
        matched = _PAIR.fullmatch(pair)
        if matched is None or matched[1] in found:
            raise ProtocolError("client-first-message of OAUTHBEARER: a pair")
        found[matched[1]] = matched[2]
    bearer = _BEARER.fullmatch(found.pop(AUTH_KEY, ""))
    if bearer is None or len(bearer[1]) > TOKEN_CHARS_MAX:
        raise ProtocolError("client-first-message of OAUTHBEARER: its token")
    authorization_id = (header[1] or "").replace("=2C", ",").replace("=3D", "=")
    return BearerMessage(authorization_id, bearer[1], found)


def bearer_message(token: str, extensions: Mapping[str, str] | None = None) -> bytes:
    """Encode a client's first message in an OAUTHBEARER login. Raises ValueError if the token
    cannot be sent."""
    if _BEARER.fullmatch(f"Bearer {token}") is None:
        raise ValueError("the token has characters that no bearer token has")
    pairs = {AUTH_KEY: f"Bearer {token}", **(extensions or {})}
    text = SEPARATOR.join(f"{key}={value}" for key, value in pairs.items())
    return f"n,,{SEPARATOR}{text}{SEPARATOR}{SEPARATOR}".encode()


def parse_token(token: str) -> SignedToken:
    """Split a JWS token into its parts. Raises ProtocolError if it is malformed."""
    parts = token.split(".") if len(token) <= TOKEN_CHARS_MAX else []
    if len(parts) != 3:
        raise ProtocolError("a token has three parts")
    header = parse_object(_decoded(parts[0]))
    signed = f"{parts[0]}.{parts[1]}".encode()
    return SignedToken(header, _decoded(parts[1]), signed, _decoded(parts[2]))


def parse_object(data: bytes) -> dict[str, Any]:
    """Decode a JSON object in UTF-8 (RFC 7519, 7.2).

    Raises ProtocolError if the data is not a JSON object, or if a text in it is not valid Unicode.
    Without the latter check, a subject with a lone surrogate could become a principal, which
    neither metrics nor responses could contain.
    """
    try:
        found = json.loads(data.decode())
        if b"\\u" in data:
            json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise ProtocolError("JSON of a token") from None
    if not isinstance(found, dict):
        raise ProtocolError("JSON of a token is no object")
    return found


def _decoded(segment: str) -> bytes:
    if _SEGMENT.fullmatch(segment) is None or len(segment) % 4 == 1:
        raise ProtocolError("base64url of a token")
    try:
        return urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
    except (Base64Error, ValueError):
        raise ProtocolError("base64url of a token") from None
