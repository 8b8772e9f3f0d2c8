"""OAUTHBEARER's messages (RFC 7628, KIP-255), and the token itself (RFC 7515).  Pure.

A client's one message carries its token; a server that does not take it answers with a JSON text,
which the client acknowledges with one byte before the login fails.  Everything read here was sent
by strangers: it is bounded, and `ProtocolError` where it is none.
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
"""Longest token.  Identity providers' are below 10 kB; a longer one costs the loop time to read."""

ACKNOWLEDGEMENT = b"\x01"
"""What a client says to an error before the login fails."""

INVALID_TOKEN = b'{"status":"invalid_token"}'
"""A server's answer to a token that it does not take."""

SEPARATOR = "\x01"
AUTH_KEY = "auth"

_HEADER = re.compile(r"n,(?:a=([^,]*))?,")
_PAIR = re.compile(r"([A-Za-z]+)=([\x21-\x7e \t\r\n]*)")
_BEARER = re.compile(r"[Bb]earer +([A-Za-z0-9\-._~+/]+=*)")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]*")


class BearerMessage(NamedTuple):
    """The first message of a client."""

    authorization_id: str
    token: str
    extensions: Mapping[str, str]
    """Further pairs of names and values (KIP-342)."""


@frozen
class BearerToken:
    """A token as a client has it."""

    value: str = field(repr=False)
    """The token itself."""
    expires_at_s: float | None = None
    """Seconds since the Unix epoch; None where its end is not known."""


@frozen
class SignedToken:
    """A JWS in its compact form, taken apart; nothing of it is proven."""

    header: Mapping[str, Any]
    payload: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    """What the signature is over."""
    signature: bytes = field(repr=False)

    @property
    def algorithm(self) -> str:
        """The algorithm that the token names; empty where it names none."""
        found = self.header.get("alg")
        return found if isinstance(found, str) else ""

    @property
    def key_id(self) -> str | None:
        """The name of the key that signed it, as the token says."""
        found = self.header.get("kid")
        return found if isinstance(found, str) else None


def parse_bearer_message(message: bytes) -> BearerMessage:
    """Read a client's first message; ProtocolError where it is none."""
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
    """Return a client's first message; ValueError for a token that cannot be sent."""
    if _BEARER.fullmatch(f"Bearer {token}") is None:
        raise ValueError("the token has characters that no bearer token has")
    pairs = {AUTH_KEY: f"Bearer {token}", **(extensions or {})}
    text = SEPARATOR.join(f"{key}={value}" for key, value in pairs.items())
    return f"n,,{SEPARATOR}{text}{SEPARATOR}{SEPARATOR}".encode()


def parse_token(token: str) -> SignedToken:
    """Take a JWS apart; ProtocolError where it is none."""
    parts = token.split(".") if len(token) <= TOKEN_CHARS_MAX else []
    if len(parts) != 3:
        raise ProtocolError("a token has three parts")
    header = parse_object(_decoded(parts[0]))
    signed = f"{parts[0]}.{parts[1]}".encode()
    return SignedToken(header, _decoded(parts[1]), signed, _decoded(parts[2]))


def parse_object(data: bytes) -> dict[str, Any]:
    """Read a JSON object in UTF-8 (RFC 7519, 7.2).

    Raises ProtocolError if it is none, or a text in it is no Unicode: a subject with a lone
    surrogate would be a principal that neither metrics nor answers can name.
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
