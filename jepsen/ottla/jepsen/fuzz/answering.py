"""A client's connection to a broker in memory. It accepts complete requests, and returns framed
responses.

Subclasses define the responses and their delays.
"""

from abc import ABC, abstractmethod

import trio

from ottla.wire import apis, codec, headers
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse

LENGTH_BYTES = 4


class AnsweringStream(ABC):
    """One connection to a broker in memory, which the transport of a client returns."""

    closed_error: type[Exception]
    """Type of the error that a send or a receive on a closed connection raises."""

    def __init__(self) -> None:
        self.is_closed = False
        self._asked = bytearray()

    @abstractmethod
    def take(self, asked: RequestHeader, correlation_id: int, body: memoryview) -> None:
        """Accept one complete request of the client: its header `asked`, its correlation id and its
        body."""

    @abstractmethod
    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return some bytes of the responses to the client, or b"" at the end of the stream."""

    async def send_all(self, data: bytes, /) -> None:
        """Accept bytes from the client: a complete request, or a part of a request."""
        await trio.lowlevel.checkpoint()
        if self.is_closed:
            raise self.closed_error
        self._asked += data
        while len(self._asked) >= LENGTH_BYTES:
            end = LENGTH_BYTES + int.from_bytes(self._asked[:LENGTH_BYTES])
            if len(self._asked) < end:
                return
            frame = memoryview(bytes(self._asked[LENGTH_BYTES:end]))
            del self._asked[:end]
            asked = headers.decode_request_header(frame)
            self.take(asked, headers.correlation_id_of(frame), frame[asked.body_at :])

    async def receive_into(self, room: memoryview, /) -> int:
        """Receive bytes of responses into the caller's buffer `room`, as `receive_some` does.
        Returns the number of bytes."""
        data = await self.receive_some(len(room))
        room[: len(data)] = data
        return len(data)

    def abort(self) -> None:
        """Close the connection to the client without waiting."""
        self.is_closed = True

    async def aclose(self) -> None:
        """Close the connection to the client."""
        self.abort()
        await trio.lowlevel.checkpoint()


def framed_answer(asked: RequestHeader, correlation_id: int, body: bytes) -> bytes:
    """Return the bytes of a response on the wire, with its frame and header."""
    head = headers.encode_response_header(asked.api_key, asked.api_version, correlation_id)
    answer = head + body
    return len(answer).to_bytes(LENGTH_BYTES) + answer


def api_versions(version: int) -> bytes:
    """Return the body of an ApiVersions response that offers all APIs in all versions."""
    rows = [
        ApiVersion(api_key=key, min_version=api.lowest, max_version=api.latest_stable)
        for key, api in sorted(apis.API.items())
        if not api.is_own
    ]
    return codec.encode(ApiVersionsResponse(api_keys=rows), version)
