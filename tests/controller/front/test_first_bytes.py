"""The protocol of a connection, by its first bytes."""

import ssl
from random import Random

import pytest

from ottla.controller.front.first_bytes import (
    HELLO_BYTES_MAX,
    PREFACE,
    FirstProtocol,
    protocol_of,
)

GRPC, KAFKA = FirstProtocol.GRPC, FirstProtocol.KAFKA


def hello(*protocols: str) -> bytes:
    """Return the first bytes of a TLS client that offers these protocols in ALPN."""
    context = ssl.create_default_context()
    if protocols:
        context.set_alpn_protocols(protocols)
    sent = ssl.MemoryBIO()
    session = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="controller")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return sent.read()


def in_records(data: bytes, size: int) -> bytes:
    """Return a ClientHello divided into records of at most `size` bytes."""
    content = data[5:]
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    return b"".join(data[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


def arrived_in_pieces(data: bytes, *, is_encrypted: bool) -> FirstProtocol:
    """Return the decision if only the requested bytes arrive each time."""
    needed = 1
    while isinstance(found := protocol_of(data[:needed], is_encrypted=is_encrypted), int):
        assert needed < found <= len(data), "each request is for more bytes that will arrive"
        needed = found
    return found


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (PREFACE + b"settings", GRPC),
        (b"\0\0\0\x1a\0\x12\0\x04", KAFKA),
        (b"PRI /index.html HTTP/1.1", KAFKA),
        (b"GET / HTTP/1.1\r\n", KAFKA),
        (b"\x16\x03\x01\x02\0\x01", KAFKA),
    ],
)
def test_plaintext_is_decided_by_the_preface(data: bytes, expected: FirstProtocol) -> None:
    assert protocol_of(data, is_encrypted=False) is expected
    assert arrived_in_pieces(data, is_encrypted=False) is expected


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [((), KAFKA), (("h2",), GRPC), (("grpc-exp", "h2"), GRPC), (("http/1.1",), KAFKA)],
)
@pytest.mark.parametrize("record_bytes", [1, 3, 100, 16_384])
def test_a_hello_is_decided_by_its_alpn(
    protocols: tuple[str, ...], expected: FirstProtocol, record_bytes: int
) -> None:
    data = in_records(hello(*protocols), record_bytes)
    assert protocol_of(data, is_encrypted=True) is expected
    assert arrived_in_pieces(data, is_encrypted=True) is expected


@pytest.mark.parametrize(
    "data",
    [
        b"PRI * HTTP/2.0\r\n",
        b"\0\0\0\x1a",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        b"\x16\x03\x01\0\x04\x01\0\0\0",
        b"\x16\x03\x01\0\x04\x01\xff\xff\xff" + b"\x16\x03\x01\x3f\xff" + bytes(HELLO_BYTES_MAX),
    ],
)
def test_malformed_bytes_belong_to_the_network_of_clients(data: bytes) -> None:
    assert protocol_of(data, is_encrypted=True) is KAFKA


def test_any_bytes_are_decided_within_a_bound() -> None:
    rng = Random(7)
    original = hello("h2")
    for _ in range(3_000):
        data = bytearray(original)
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        found = protocol_of(bytes(data), is_encrypted=True)
        assert isinstance(found, FirstProtocol) or len(data) < found <= HELLO_BYTES_MAX + 5
