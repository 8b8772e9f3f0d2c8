"""A broker whose responses have correct frames and arbitrary contents, connected to the client's
transport.

ApiVersions is answered correctly, so that clients send further requests. Every other response is
taken from a script, in order. At the end of the script the broker disconnects.
"""

from collections.abc import Callable

import trio

from ottla.jepsen.fuzz.answering import AnsweringStream, api_versions, framed_answer
from ottla.wire import apis
from ottla.wire.headers import RequestHeader

Answer = Callable[[int, int], bytes | None]
"""Function that receives an API key and version, and returns the body of the broker's response. If
the function returns None, the broker disconnects."""


class HostileStream(AnsweringStream):
    """One client connection to the hostile broker."""

    closed_error = trio.BrokenResourceError

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._sent = bytearray()

    def take(self, asked: RequestHeader, correlation_id: int, body: memoryview) -> None:
        """Respond to the client's request with the next response of the script."""
        key, version = asked.api_key, asked.api_version
        answer = api_versions(version) if key == apis.API_VERSIONS else self._answer(key, version)
        if answer is None:
            self.is_closed = True
            return
        self._sent += framed_answer(asked, correlation_id, answer)

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return the bytes of the hostile broker's responses, or b"" after the broker has
        disconnected."""
        await trio.lowlevel.checkpoint()
        if not self._sent and not self.is_closed:
            await trio.sleep_forever()
        data = bytes(self._sent[:max_bytes])
        del self._sent[:max_bytes]
        return data


class HostileTransport:
    """Transport that connects every address to the hostile broker."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def connect(self, host: str, port: int) -> HostileStream:
        """Return a new connection to the hostile broker."""
        await trio.lowlevel.checkpoint()
        return HostileStream(self._answer)
