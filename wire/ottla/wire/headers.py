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
from ottla.model.limits import INT32_MAX, KIB
from ottla.wire.apis import API, API_VERSIONS
from ottla.wire.codec_runtime import read_uvarint, skip_tags, write_uvarint
from ottla.wire.codec_types import Chunk

_LENGTH = struct.Struct(">i")
_FIXED = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")
_CLIENT_ID_LENGTH = struct.Struct(">h")

_NEVER = 1 << 15
_FLEXIBLE_FROM = {
    key: _NEVER if api.flexible_from is None else api.flexible_from for key, api in API.items()
}
_TAGS_FROM = _FLEXIBLE_FROM | {API_VERSIONS: _NEVER}
"""The first version of each API whose response header has tagged fields."""

TRACE_CONTEXT_TAG = 20_000
"""Ottla's own tagged field of a request's header: the span that the request belongs to, as the text
of W3C's `traceparent`.  Kafka's header has no tagged fields yet, and passes over unknown ones."""

TRACE_CONTEXT_FEATURE = "ottla.trace.context"
"""The feature that brokers which read the field support, by ApiVersions; others are not sent it."""

TRACE_CONTEXT_BYTES = 55
"""Size of a `traceparent`: version, trace, span and flags in hexadecimal, with hyphens between."""

TAGS_BYTES_MAX = 16 * KIB
"""What the tagged fields of a header may take.  Stepping over as many as fit takes milliseconds;
without a bound, a frame could hold 50 million of them."""


def frame(chunks: list[Chunk]) -> list[Chunk]:
    """Put the length of these chunks in front of them."""
    length = sum(map(len, chunks))
    assert length <= INT32_MAX
    return [_LENGTH.pack(length), *chunks]


def frame_start(head: bytes, body_bytes: int) -> bytes:
    """Return what stands in front of a body: the frame's length, and a header."""
    return _LENGTH.pack(len(head) + body_bytes) + head


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
            client_id = view[_FIXED.size : at].tobytes().decode()
        if api_version >= flexible_from:
            # One byte says that there is none, as in almost every request.
            if view[at]:
                end = min(len(view), at + TAGS_BYTES_MAX)
                at = skip_tags(view, at + 1, view[at], end)
            else:
                at += 1
    except (IndexError, struct.error):
        raise ProtocolError("the request header ends too early") from None
    except UnicodeDecodeError:
        raise ProtocolError("client_id is no UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, at)


def trace_context_of(frame: memoryview, body_at: int) -> bytes | None:
    """Return the `traceparent` in the header of a request whose body begins at `body_at`.

    The header was decoded before.  What is returned has the right size; it may be no traceparent.
    """
    at = _FIXED.size + max(0, _CLIENT_ID_LENGTH.unpack_from(frame, _FIXED.size - 2)[0])
    if body_at - at <= 1:
        return None
    count, at = read_uvarint(frame, at)
    for _ in range(count):
        tag, at = read_uvarint(frame, at)
        size, at = read_uvarint(frame, at)
        if tag >= TRACE_CONTEXT_TAG:
            is_it = tag == TRACE_CONTEXT_TAG and size == TRACE_CONTEXT_BYTES
            return bytes(frame[at : at + size]) if is_it else None
        at += size
    return None


def encode_request_header(
    api_key: int,
    api_version: int,
    correlation_id: int,
    client_id: str | None,
    trace_context: bytes | None = None,
) -> bytes:
    """Write the header of a request of ours.

    `trace_context`, a `traceparent`, is left out where the header has no tagged fields.
    """
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= _FLEXIBLE_FROM[api_key] else b""
    if tags and trace_context is not None:
        size = write_uvarint(len(trace_context))
        tags = b"\1" + write_uvarint(TRACE_CONTEXT_TAG) + size + trace_context
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
