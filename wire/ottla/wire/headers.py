"""Encoder and decoder of frames, and of the headers of the requests and responses in them.

A frame is a length of four bytes, followed by a request or response of that many bytes.

The headers are written by hand because every request is processed here, and because of two
exceptions that no schema states. An ApiVersions response has header v0 in every version, so that a
client can read it before it knows the broker's versions. The version of a request's header follows
from its API alone, even if the request's version is too high. A request header is v2 and a response
header v1 exactly if the version is flexible.
"""

import struct
from collections.abc import Callable

from ottla.model.errors import ProtocolError
from ottla.model.limits import INT32_MAX, KIB
from ottla.wire.apis import API, API_VERSIONS
from ottla.wire.codec_runtime import read_uvarint, skip_tags, write_uvarint
from ottla.wire.codec_types import Chunk

_LENGTH = struct.Struct(">i")
_FIXED = struct.Struct(">hhih")
_FIXED_BYTES = _FIXED.size
_read_fixed = _FIXED.unpack_from
_START = struct.Struct(">ii")
_START_WITH_TAGS = struct.Struct(">iix")
_CORRELATION = struct.Struct(">i")
_CORRELATION_BYTES = _CORRELATION.size
_START_WITH_TAGS_REST = _CORRELATION_BYTES + 1
_CLIENT_ID_LENGTH = struct.Struct(">h")

_NEVER = 1 << 15
_FLEXIBLE_FROM = {
    key: _NEVER if api.flexible_from is None else api.flexible_from for key, api in API.items()
}
_TAGS_FROM = _FLEXIBLE_FROM | {API_VERSIONS: _NEVER}
"""The first version of each API whose response header has tagged fields, by API key."""

TRACE_CONTEXT_TAG = 20_000
"""Tag number of Ottla's own field in a request header: the trace span that the request belongs to,
as the text of W3C's `traceparent`. Kafka's header has no tagged fields yet, and Kafka skips unknown
fields."""

TRACE_CONTEXT_FEATURE = "ottla.trace.context"
"""Feature that a broker lists in ApiVersions if it reads the trace context in request headers. The
trace context is not sent to brokers without the feature."""

TRACE_CONTEXT_BYTES = 55
"""Size of a `traceparent` in bytes: version, trace, span and flags in hexadecimal, separated by
hyphens."""

TAGS_BYTES_MAX = 16 * KIB
"""Maximum size in bytes of the tagged fields in a request header. Skipping as many fields as fit
takes milliseconds; without this limit, a frame could contain 50 million of them."""


def frame(chunks: list[Chunk]) -> list[Chunk]:
    """Return the chunks of a frame with the given content: four bytes with the total length of
    `chunks`, then these chunks."""
    length = sum(map(len, chunks))
    assert length <= INT32_MAX
    return [_LENGTH.pack(length), *chunks]


def answer_start(api_key: int, version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Return the bytes before the body of a response: the frame's length and the response
    header."""
    if version >= _TAGS_FROM[api_key]:
        return _START_WITH_TAGS.pack(body_bytes + _START_WITH_TAGS_REST, correlation_id)
    return _START.pack(body_bytes + _CORRELATION_BYTES, correlation_id)


def answer_head_bytes(api_key: int, version: int) -> int:
    """Return the number of bytes before the body of a response, which `answer_start` returns."""
    return _START_WITH_TAGS.size if version >= _TAGS_FROM[api_key] else _START.size


def frame_length(data: bytes | bytearray | memoryview, at: int = 0, *, bytes_max: int) -> int:
    """Return the length in bytes of a frame, which its first four bytes contain. Raises
    ProtocolError if it is negative or above `bytes_max`."""
    (length,) = _LENGTH.unpack_from(data, at)
    if not 0 <= length <= bytes_max:
        raise ProtocolError(f"a frame of {length} bytes is not within 0 and {bytes_max}")
    return int(length)


API_VERSION_BITS = 16
"""Number of bits of an API version."""


class RequestHeader:
    """Decoded header of a request: API key, version, client id, and the position of the request's
    body in the frame.

    The correlation id is not part of it (see `correlation_id_of`), so that requests of one client
    share a header. It must therefore not be changed.
    """

    __slots__ = ("api_key", "api_version", "body_at", "client_id", "kind")

    def __init__(self, api_key: int, api_version: int, client_id: str | None, body_at: int) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.client_id = client_id
        self.body_at = body_at
        self.kind = api_key << API_VERSION_BITS | api_version
        """API key and version as one number, which identifies the form of the request's body."""

    def fields(self) -> tuple[int, int, str | None, int]:
        """Return all fields of the request header, in the order of the constructor's parameters."""
        return self.api_key, self.api_version, self.client_id, self.body_at

    def __repr__(self) -> str:
        return f"RequestHeader{self.fields()}"


CLIENT_IDS_KEPT_MAX = 1_024
CLIENT_ID_BYTES_KEPT_MAX = 128
"""Maximum number of client ids in request headers that are cached as text, and maximum size in
bytes of such an id. With a larger value, a client that sends invented ids uses more memory; with a
smaller value, client ids are decoded again for more requests."""

_client_ids: dict[bytes, str] = {}
_client_id_readers: dict[int, Callable[..., tuple[bytes]]] = {}
"""Functions that read a client id, by its size in bytes, for sizes that are cached."""


def _reader_of(size: int) -> Callable[..., tuple[bytes]]:
    """Return a function that reads a client id of `size` bytes from a frame."""
    read: Callable[..., tuple[bytes]] = struct.Struct(f"{size}s").unpack_from
    if size <= CLIENT_ID_BYTES_KEPT_MAX:
        _client_id_readers[size] = read
    return read


def _decode_client_id(data: bytes) -> str:
    """Decode and return the client id of a request header, and add it to the cache. A full cache is
    cleared first."""
    client_id = data.decode()
    if len(data) <= CLIENT_ID_BYTES_KEPT_MAX:
        if len(_client_ids) >= CLIENT_IDS_KEPT_MAX:
            _client_ids.clear()
        _client_ids[data] = client_id
    return client_id


def decode_request_header(frame: bytes | memoryview) -> RequestHeader:
    """Decode and return the header of the request in a frame. Its API version may be higher than
    any known version.

    Raises ProtocolError if the API is unknown.
    """
    try:
        api_key, api_version, _, length = _read_fixed(frame)
        flexible_from = _FLEXIBLE_FROM.get(api_key)
        if flexible_from is None:
            raise ProtocolError(f"there is no API {api_key}")
        at = _FIXED_BYTES
        client_id = None
        if length >= 0:
            at += length
            if at > len(frame):
                raise ProtocolError("client_id is longer than the frame")
            # A third of the time of a slice of the view and its bytes.
            (data,) = (_client_id_readers.get(length) or _reader_of(length))(frame, _FIXED_BYTES)
            client_id = _client_ids.get(data)
            if client_id is None:
                client_id = _decode_client_id(data)
        if api_version >= flexible_from:
            # A zero byte means that there are none, as in almost every request.
            count = frame[at]
            at += 1
            if count:
                at = skip_tags(memoryview(frame), at, count, min(len(frame), at + TAGS_BYTES_MAX))
    except (IndexError, struct.error):
        raise ProtocolError("the request header ends too early") from None
    except UnicodeDecodeError:
        raise ProtocolError("client_id is no UTF-8") from None
    return RequestHeader(api_key, api_version, client_id, at)


def correlation_id_of(frame: bytes | memoryview) -> int:
    """Return the correlation id in the header of the request in a frame. The header must have been
    decoded before."""
    correlation_id: int = _CORRELATION.unpack_from(frame, CORRELATION_AT)[0]
    return correlation_id


CORRELATION_AT = 4
"""Position in a frame of a request's correlation id, behind the API key and the version."""

HEADER_BYTES_KEPT_MAX = 256
"""Maximum size in bytes of a request header that a connection keeps for its next request. With a
larger value, a client with a long client id uses more memory; with a smaller value, the headers of
more clients are decoded for each request."""

_AFTER_CORRELATION = CORRELATION_AT + _CORRELATION_BYTES
_header_readers: dict[int, Callable[..., tuple[bytes, int, bytes]]] = {}
"""Functions that read the bytes of a header before its correlation id, the correlation id, and the
bytes after it, by the header's size in bytes."""


def _header_reader_of(size: int) -> Callable[..., tuple[bytes, int, bytes]]:
    """Return a function that reads a header of `size` bytes in three parts."""
    read = _header_readers.get(size)
    if read is None:
        rest = size - _AFTER_CORRELATION
        read = _header_readers[size] = struct.Struct(f">{CORRELATION_AT}si{rest}s").unpack_from
    return read


class HeaderDecoder:
    """Decoder of the request headers on one connection.

    In most cases, a request's header differs from that of the previous request on its connection in
    the correlation id alone. It is then not decoded again, and both requests share one header.
    """

    __slots__ = ("_after", "_before", "_header", "_read", "correlation_id")

    def __init__(self) -> None:
        self.correlation_id = 0
        """Correlation id of the request whose header was decoded last."""
        self._header: RequestHeader | None = None
        self._read = _header_reader_of(_FIXED_BYTES)
        # Bytes of the previous header before and after its correlation id.
        self._before = self._after = b""

    def decode(self, frame: bytes | memoryview) -> RequestHeader:
        """Decode and return the header of the request in a frame, as `decode_request_header` does.
        Raises ProtocolError in the same cases."""
        try:
            before, self.correlation_id, after = self._read(frame)
        except struct.error:
            return self._decode_other(frame)
        header = self._header
        if header is not None and after == self._after and before == self._before:
            return header
        return self._decode_other(frame)

    def _decode_other(self, frame: bytes | memoryview) -> RequestHeader:
        """Decode a header that differs from the previous one, and keep it for the next request."""
        header = decode_request_header(frame)
        if header.body_at <= HEADER_BYTES_KEPT_MAX:
            self._read = _header_reader_of(header.body_at)
            self._before, self.correlation_id, self._after = self._read(frame)
            self._header = header
        else:
            self.correlation_id = correlation_id_of(frame)
        return header


def trace_context_of(frame: memoryview, body_at: int) -> bytes | None:
    """Return the `traceparent` in the header of a request whose body begins at `body_at`, or None
    if the header has no trace context.

    The header must have been decoded before. The result has the right size, but may be an invalid
    traceparent.
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
    """Encode and return the header of a request that this node sends.

    `trace_context`, a `traceparent`, is omitted if the header version has no tagged fields.
    """
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if api_version >= _FLEXIBLE_FROM[api_key] else b""
    if tags and trace_context is not None:
        size = write_uvarint(len(trace_context))
        tags = b"\1" + write_uvarint(TRACE_CONTEXT_TAG) + size + trace_context
    return _FIXED.pack(api_key, api_version, correlation_id, length) + name + tags


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """Encode and return the header of the response to a request of this version."""
    header = _CORRELATION.pack(correlation_id)
    return header + b"\0" if version >= _TAGS_FROM[api_key] else header


def decode_response_header(api_key: int, version: int, data: bytes | memoryview) -> tuple[int, int]:
    """Decode the header of a response. Returns its correlation id and the position of the
    response's body."""
    view = memoryview(data)
    try:
        (correlation_id,) = _CORRELATION.unpack_from(view)
        at = _CORRELATION.size
        if version >= _TAGS_FROM[api_key]:
            at = skip_tags(view, at + 1, view[at], len(view))
    except (IndexError, struct.error):
        raise ProtocolError("the response header ends too early") from None
    return correlation_id, at
