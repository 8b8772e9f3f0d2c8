"""A blocking connection reads one bounded response, and rejects everything else."""

import socket
import threading
from collections.abc import Callable

import pytest

from ottla.client.network.blocking_connection import BlockingConnection
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.wire import codec
from ottla.wire.apis import METADATA
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse

CORRELATION_AT = 4

Answer = Callable[[bytes], bytes]
"""The bytes to answer a request's frame with; b"" hangs up."""


def framed(request: bytes, body: bytes) -> bytes:
    body = request[CORRELATION_AT : CORRELATION_AT + 4] + body
    return len(body).to_bytes(4, "big") + body


def versions(request: bytes) -> bytes:
    rows = [ApiVersion(api_key=METADATA, min_version=0, max_version=1)]
    return framed(request, codec.encode(ApiVersionsResponse(api_keys=rows), 3))


def refuse_version(request: bytes) -> bytes:
    code = ErrorCode.UNSUPPORTED_VERSION
    return framed(request, codec.encode(ApiVersionsResponse(error_code=code), 0))


def old_versions(request: bytes) -> bytes:
    rows = [ApiVersion(api_key=METADATA, min_version=0, max_version=1)]
    return framed(request, codec.encode(ApiVersionsResponse(api_keys=rows), 0))


def metadata(request: bytes) -> bytes:
    return framed(request, codec.encode(MetadataResponse(controller_id=7), 1))


def ask(*answers: Answer) -> MetadataResponse:
    """Ask a peer that gives these answers, one a request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peer = threading.Thread(target=_serve, args=(listener, answers), daemon=True)
        peer.start()
        host, port = listener.getsockname()
        with BlockingConnection(host, port, client_id="test", timeout_s=5.0) as connection:
            return connection.request(MetadataRequest(topics=None), MetadataResponse)


def _serve(listener: socket.socket, answers: tuple[Answer, ...]) -> None:
    accepted, _ = listener.accept()
    with accepted, accepted.makefile("rb") as requests:
        for answer in answers:
            length = int.from_bytes(requests.read(4), "big")
            accepted.sendall(answer(requests.read(length)))


@pytest.mark.parametrize("first", [(versions,), (refuse_version, old_versions)])
def test_a_request_is_asked_in_the_version_that_both_know(first: tuple[Answer, ...]) -> None:
    assert ask(*first, metadata).controller_id == 7


@pytest.mark.parametrize(
    "answer",
    [
        lambda request: b"",
        lambda request: b"\x7f\xff\xff\xff",
        lambda request: b"\xff\xff\xff\xff",
        lambda request: metadata(bytes(len(request))),
        lambda request: metadata(request)[:-3],
        lambda request: framed(request, b"\x00"),
    ],
    ids=["hangs up", "too long", "negative", "of another request", "cut short", "no metadata"],
)
def test_what_is_no_answer_is_refused(answer: Answer) -> None:
    with pytest.raises(ProtocolError):
        ask(versions, answer)


def test_an_api_that_the_broker_has_not_is_refused() -> None:
    with pytest.raises(RefusedError):
        ask(lambda request: framed(request, codec.encode(ApiVersionsResponse(), 3)))
