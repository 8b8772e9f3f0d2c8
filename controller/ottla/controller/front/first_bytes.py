"""Recognises the protocol of a connection (gRPC or Kafka's) by its first bytes. Pure.

At a controller's port, nodes use gRPC, and clients use Kafka's protocol. In plaintext, gRPC starts
with the preface of HTTP/2 (RFC 9113, section 3.4). As the length of a Kafka request, these bytes
would mean more than 1.3 GB, so they are never the start of a valid Kafka request. With TLS, gRPC
offers `h2` in the ALPN extension of its ClientHello (RFC 7301); Kafka's clients offer no ALPN.
Malformed bytes are passed to the server of Kafka's protocol, which reports them.
"""

from enum import Enum

from ottla.model.limits import KIB

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PREFACE_BYTES = len(b"PRI * HTTP/2.0\r\n")
"""Number of bytes of the HTTP/2 preface that are compared. A Kafka request with the same first
bytes would have an unknown API key."""

HELLO_BYTES_MAX = 16 * KIB
"""Maximum size in bytes of a TLS ClientHello that is examined. Ordinary ones have 200 bytes to 2
KiB. A connection with a larger one is treated as Kafka's protocol."""

RECORD_HEADER_BYTES = 5
HANDSHAKE_HEADER_BYTES = 4
HANDSHAKE_RECORD = 22
CLIENT_HELLO = 1
ALPN = 16
H2 = b"h2"


class FirstProtocol(Enum):
    """Protocol that a peer has started to speak on a connection: gRPC or Kafka's."""

    GRPC = "grpc"
    KAFKA = "kafka"


def protocol_of(data: bytes, *, is_encrypted: bool) -> FirstProtocol | int:
    """Return the protocol of a connection that starts with `data`.

    If `data` is too short to decide, returns the number of bytes that are needed.
    """
    return _of_hello(data) if is_encrypted else _of_plaintext(data)


def _of_plaintext(data: bytes) -> FirstProtocol | int:
    start = data[:PREFACE_BYTES]
    if not PREFACE.startswith(start):
        return FirstProtocol.KAFKA
    return FirstProtocol.GRPC if len(start) == PREFACE_BYTES else PREFACE_BYTES


def _of_hello(data: bytes) -> FirstProtocol | int:
    """Return the protocol that a TLS ClientHello offers. The ClientHello may be divided into
    several TLS records."""
    at = 0
    hello = bytearray()
    while at < HELLO_BYTES_MAX:
        header = data[at : at + RECORD_HEADER_BYTES]
        if header and header[0] != HANDSHAKE_RECORD:
            return FirstProtocol.KAFKA
        if len(header) < RECORD_HEADER_BYTES:
            return at + RECORD_HEADER_BYTES
        start = at + RECORD_HEADER_BYTES
        at = start + int.from_bytes(header[3:])
        if at == start or at > HELLO_BYTES_MAX:
            return FirstProtocol.KAFKA
        if len(data) < at:
            return at
        hello += data[start:at]
        if len(hello) < HANDSHAKE_HEADER_BYTES:
            continue
        if hello[0] != CLIENT_HELLO:
            return FirstProtocol.KAFKA
        end = HANDSHAKE_HEADER_BYTES + int.from_bytes(hello[1:HANDSHAKE_HEADER_BYTES])
        if len(hello) >= end:
            body = bytes(hello[HANDSHAKE_HEADER_BYTES:end])
            return FirstProtocol.GRPC if _offers_h2(body) else FirstProtocol.KAFKA
    return FirstProtocol.KAFKA


def _offers_h2(hello: bytes) -> bool:
    """Return whether the body of a TLS ClientHello offers HTTP/2 by ALPN. Returns False if the body
    is malformed."""
    at = 2 + 32  # the version and the random number
    for length_bytes in (1, 2, 1):  # session id, cipher suites, compression methods
        at += length_bytes + int.from_bytes(hello[at : at + length_bytes])
    at += 2
    while at + 4 <= len(hello):
        kind = int.from_bytes(hello[at : at + 2])
        start = at + 4
        at = start + int.from_bytes(hello[at + 2 : start])
        if kind == ALPN:
            return H2 in _names(hello[start + 2 : at])
    return False


def _names(protocols: bytes) -> list[bytes]:
    """Return the protocol names in the list of a TLS ClientHello's ALPN extension."""
    found = []
    at = 0
    while at < len(protocols):
        end = at + 1 + protocols[at]
        found.append(protocols[at + 1 : end])
        at = end
    return found
