"""Listeners with TLS as the oracles of TLS records see them: address, request and bystander."""

import socket
import ssl
import struct
from collections.abc import Callable
from functools import partial

from ottla.wire.apis import API_VERSIONS
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from tests.jepsen.oracles.loop_cost import LoopWatch
from tests.jepsen.oracles.tls_hold import TlsTarget

HOST = "localhost"
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"

NewContext = Callable[[], ssl.SSLContext]


def asked(message: ApiVersionsRequest) -> bytes:
    data = encode_request_header(API_VERSIONS, 0, 1, "t") + encode(message, 0)
    return struct.pack(">i", len(data)) + data


HELLO = asked(ApiVersionsRequest())


HELLO = asked(ApiVersionsRequest())


def ask(address: tuple[str, int], new_context: NewContext, request: bytes) -> None:
    """Have a bystander ask something, and be answered."""
    with (
        socket.create_connection(address, timeout=60) as sock,
        new_context().wrap_socket(sock, server_hostname=HOST) as stream,
    ):
        stream.sendall(request)
        assert stream.recv(1)


def target_of(
    name: str,
    port: int,
    new_context: NewContext,
    watch: LoopWatch | None,
    request: bytes = HELLO,
    bystander: Callable[[], None] | None = None,
) -> TlsTarget:
    address = ("127.0.0.1", port)
    return TlsTarget(
        name=name,
        address=address,
        new_context=new_context,
        host=HOST,
        request=request,
        ask=bystander or partial(ask, address, new_context, request),
        watch=watch,
    )
