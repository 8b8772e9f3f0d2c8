"""Frames, and the headers of the requests and responses in them.

A frame is four bytes of length and that many bytes of a request or a response.

The headers are written by hand because every request passes here, and for two exceptions no schema
states: an ApiVersions response has header v0 in every version, so that a client can read it before
it knows what the broker speaks; and the version of a request's header follows from its API alone,
known or too high.  A request is v2 and a response v1 exactly when its version is flexible.
"""

import struct
from typing import NamedTuple

from ottla.model.errors import ProtocolError
from ottla.model.limits import INT32_MAX
from ottla.wire.apis import API, API_VERSIONS
from ottla.wire.codec_runtime import skip_tags
from ottla.wire.codec_types import Chunk

_LENGTH = struct.Struct(">i")
_FIXED = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")

_NEVER = 1 << 15
_FLEXIBLE_FROM = {
    key: _NEVER if api.flexible_from is None else api.flexible_from for key, api in API.items()
}
_TAGS_FROM = _FLEXIBLE_FROM | {API_VERSIONS: _NEVER}
"""The first version of each API whose response header has tagged fields."""


def frame(chunks: list[Chunk]) -> list[Chunk]:
    """Put the length of these chunks in front of them."""
    length = sum(map(len, chunks))
    assert length <= INT32_MAX
    return [_LENGTH.pack(length), *chunks]


def frame_length(data: bytes | bytearray | memoryview, at: int = 0, *, bytes_max: int) -> int:
    """Read the length in front of a frame; one that is negative or too large is no frame."""
    (length,) = _LENGTH.unpack_from(data, at)
    if not 0 <= length <= bytes_max:
        raise ProtocolError(f"a frame of {length} bytes is not within 0 and {bytes_max}")
    return int(length)


class RequestHeader(NamedTuple):
    """Which request this is, who sent it, and where in the frame its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def decode_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Read the header; an API nobody knows is a ProtocolError, a version too high is not."""
    view = memoryview(frame)
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(view)
        flexible_from = _FLEXIBLE_FROM.get(api_key)
        if flexible_from is None:
            raise ProtocolError(f"there is no API {api_key}")
        at = _FIXED.size
        client_id = None
        if length >= 0:
            at += length
            if at > len(view):
                raise ProtocolError("client_id is longer than the frame")
            client_id = str(view[_FIXED.size : at], "utf-8")
        if api_version >= flexible_from:
            at = skip_tags(view, at + 1, view[at], len(view))
    except (IndexError, struct.error):
        raise ProtocolError("the request header ends too early") from None
    except UnicodeDecodeError:
        raise ProtocolError("client_id is no UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, at)


def encode_request_header(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Write the header of a request of ours."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= _FLEXIBLE_FROM[api_key] else b""
    return _FIXED.pack(api_key, api_version, correlation_id, length) + name + tags


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Write the header of the answer to a request of this version."""
    header = _CORRELATION.pack(correlation_id)
    return header + b"\0" if version >= _TAGS_FROM[api_key] else header


def decode_response_header(api_key: int, version: int, data: bytes | memoryview) -> tuple[int, int]:
    """Read the correlation id of an answer to a request of ours, and where its body begins."""
    view = memoryview(data)
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view)
        at = _CORRELATION.size
        if version >= _TAGS_FROM[api_key]:
            at = skip_tags(view, at + 1, view[at], len(view))
    except (IndexError, struct.error):
        raise ProtocolError("the response header ends too early") from None
    return correlation_id, at
