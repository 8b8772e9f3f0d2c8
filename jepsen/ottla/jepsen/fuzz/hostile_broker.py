"""A broker that frames its answers well and fills them as it likes, behind the client's transport.

ApiVersions is answered honestly, so that clients come to ask for more; every other answer is the
next of a script.  When that has come to its end, the broker hangs up.
"""

from collections.abc import Callable

import trio

from ottla.jepsen.fuzz.answering import AnsweringStream, api_versions, framed_answer
from ottla.wire import apis
from ottla.wire.headers import RequestHeader

Answer = Callable[[int, int], bytes | None]
"""Makes the body of the answer to (api key, version); None hangs up."""


class HostileStream(AnsweringStream):
    """One connection to it."""

    closed_error = trio.BrokenResourceError

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self._answer = answer
        self._sent = bytearray()

    def take(self, asked: RequestHeader, body: memoryview) -> None:
        """Answer as the script has it."""
        key, version = asked.api_key, asked.api_version
        answer = api_versions(version) if key == apis.API_VERSIONS else self._answer(key, version)
        if answer is None:
            self.is_closed = True
            return
        self._sent += framed_answer(asked, answer)

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Give what has been answered; nothing means that it has hung up."""
        await trio.lowlevel.checkpoint()
        if not self._sent and not self.is_closed:
            await trio.sleep_forever()
        data = bytes(self._sent[:max_bytes])
        del self._sent[:max_bytes]
        return data


class HostileTransport:
    """Every address is this broker's."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def connect(self, host: str, port: int) -> HostileStream:
        """Connect to it."""
        await trio.lowlevel.checkpoint()
        return HostileStream(self._answer)
