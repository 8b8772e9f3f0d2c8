"""A broker that frames its answers well and fills them as it likes, behind the client's transport.

ApiVersions is answered honestly, so that clients come to ask for more; every other answer is the
next of a script.  When that has come to its end, the broker hangs up.
"""

from collections.abc import Callable

import trio

from ottla.wire import apis, codec, headers
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse

Answer = Callable[[int, int], bytes | None]
"""Makes the body of the answer to (api key, version); None hangs up."""

LENGTH_BYTES = 4


class HostileStream:
    """One connection to it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._asked = bytearray()
        self._sent = bytearray()
        self._has_hung_up = False

    async def send_all(self, data: bytes, /) -> None:
        """Take a request, or a part of one."""
        await trio.lowlevel.checkpoint()
        if self._has_hung_up:
            raise trio.BrokenResourceError
        self._asked += data
        while len(self._asked) >= LENGTH_BYTES:
            length = int.from_bytes(self._asked[:LENGTH_BYTES])
            frame = bytes(self._asked[LENGTH_BYTES : LENGTH_BYTES + length])
            if len(frame) < length:
                return
            del self._asked[: LENGTH_BYTES + length]
            self._take(frame)

    def _take(self, frame: bytes) -> None:
        asked = headers.decode_request_header(frame)
        key, version = asked.api_key, asked.api_version
        body = api_versions(version) if key == apis.API_VERSIONS else self._answer(key, version)
        if body is None:
            self._has_hung_up = True
            return
        answer = headers.encode_response_header(key, version, asked.correlation_id) + body
        self._sent += len(answer).to_bytes(LENGTH_BYTES) + answer

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Give what has been answered; nothing means that it has hung up."""
        await trio.lowlevel.checkpoint()
        if not self._sent and not self._has_hung_up:
            await trio.sleep_forever()
        data = bytes(self._sent[:max_bytes])
        del self._sent[:max_bytes]
        return data

    async def receive_into(self, room: memoryview, /) -> int:
        """Do what `receive_some` does, into the caller's room."""
        data = await self.receive_some(len(room))
        room[: len(data)] = data
        return len(data)

    def abort(self) -> None:
        """Hang up."""
        self._has_hung_up = True

    async def aclose(self) -> None:
        """Hang up."""
        self._has_hung_up = True
        await trio.lowlevel.checkpoint()


class HostileTransport:
    """Every address is this broker's."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def connect(self, host: str, port: int) -> HostileStream:
        """Connect to it."""
        await trio.lowlevel.checkpoint()
        return HostileStream(self._answer)


def api_versions(version: int) -> bytes:
    """Say that everything is spoken in all versions that there are."""
    rows = [
        ApiVersion(api_key=key, min_version=api.lowest, max_version=api.latest_stable)
        for key, api in sorted(apis.API.items())
        if key < apis.OWN_KEYS_FROM
    ]
    return codec.encode(ApiVersionsResponse(api_keys=rows), version)
