"""Contract of every server and transport, as checks that sockets and the world's both pass.

A check gets what connects, where a server listens that echoes heartbeats, and how many clients that
server has; it speaks bytes, as a client does.
"""

import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

import trio

from ottla.jepsen.world.whole.faults.untrusted_clients import heartbeat
from ottla.model.seams import ByteStream, Transport
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.wire.apis import HEARTBEAT
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse

PATIENCE_S = 60.0
READ_BYTES = 4_096
PIPELINED_COUNT = 200

GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
"""Symptom of a peer that is gone."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A server and the way to it."""

    transport: Transport
    host: str
    port: int
    free_port: int
    connection_count: Callable[[], int]
    close_server: Callable[[], Awaitable[None]]


class ReceivingStream(Protocol):
    """Source of responses."""

    async def receive_some(self, max_bytes: int, /) -> bytes | bytearray:
        """Return what has come; empty at the end."""
        ...


Check = Callable[[Reach], Awaitable[None]]


def heartbeat_dispatcher(
    errors: UnexpectedErrors | None = None, users: list[str] | None = None
) -> Dispatcher:
    """Return the dispatcher of a server to be checked, which notes in `users` who asks."""

    def answer(context: RequestContext, _request: HeartbeatRequest) -> HeartbeatResponse:
        if users is not None:
            users.append(context.peer.user)
        return HeartbeatResponse()

    return Dispatcher({HEARTBEAT: answer}, errors=errors)


async def _read(stream: ReceivingStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await stream.receive_some(min(READ_BYTES, size - len(data)))
        assert part, f"closed after {len(data)} of {size} bytes"
        data += part
    return data


async def read_id(stream: ReceivingStream) -> int:
    """Return the correlation id of the next response."""
    (length,) = struct.unpack(">i", await _read(stream, 4))
    found: int = struct.unpack_from(">i", await _read(stream, length))[0]
    return found


async def is_at_end(stream: ByteStream) -> bool:
    """Return whether nothing more comes."""
    with trio.fail_after(PATIENCE_S):
        try:
            return not await stream.receive_some(READ_BYTES)
        except GONE:
            return True


async def requests_are_answered_in_their_order(reach: Reach) -> None:
    """However many are sent ahead, and however the bytes are cut."""
    stream = await reach.transport.connect(reach.host, reach.port)
    data = b"".join(heartbeat(number) for number in range(PIPELINED_COUNT))
    middle = len(data) // 2 + 3
    await stream.send_all(data[:middle])
    await stream.send_all(data[middle:])
    with trio.fail_after(PATIENCE_S):
        found = [await read_id(stream) for _ in range(PIPELINED_COUNT)]
    assert found == list(range(PIPELINED_COUNT))
    await stream.aclose()


async def bytes_may_be_received_in_place(reach: Reach) -> None:
    """`receive_into` gives what `receive_some` would."""
    stream = await reach.transport.connect(reach.host, reach.port)
    await stream.send_all(heartbeat(7))
    room = memoryview(bytearray(64))
    with trio.fail_after(PATIENCE_S):
        count = await stream.receive_into(room)
        while count < 8:
            count += await stream.receive_into(room[count:])
    assert struct.unpack_from(">i", room, 4)[0] == 7
    await stream.aclose()


async def a_connection_to_an_absent_listener_is_an_os_error(reach: Reach) -> None:
    """A port without a listener refuses."""
    with trio.fail_after(PATIENCE_S):
        try:
            await reach.transport.connect(reach.host, reach.free_port)
        except OSError:
            return
    raise AssertionError("the connection was accepted")


async def a_client_that_closes_is_forgotten(reach: Reach) -> None:
    """Its last request is answered by the server all the same."""
    stream = await reach.transport.connect(reach.host, reach.port)
    await stream.send_all(heartbeat(1))
    with trio.fail_after(PATIENCE_S):
        assert await read_id(stream) == 1
        assert reach.connection_count() == 1
        await stream.aclose()
        while reach.connection_count():
            await trio.sleep(0.001)


async def a_client_that_aborts_is_forgotten(reach: Reach) -> None:
    """A reader waiting on the client's own end sees the end too."""
    stream = await reach.transport.connect(reach.host, reach.port)
    has_ended = trio.Event()

    async def wait() -> None:
        assert await is_at_end(stream)
        has_ended.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(0.01)
        stream.abort()
        stream.abort()
        with trio.fail_after(PATIENCE_S):
            await has_ended.wait()
            while reach.connection_count():
                await trio.sleep(0.001)


async def a_closed_end_takes_nothing_more(reach: Reach) -> None:
    """Sending on it is an error at once."""
    stream = await reach.transport.connect(reach.host, reach.port)
    await stream.aclose()
    try:
        await stream.send_all(b"x")
    except GONE:
        return
    raise AssertionError("bytes were sent on a closed stream")


async def who_does_not_speak_the_protocol_is_hung_up_on(reach: Reach) -> None:
    """A frame of a negative length is no frame."""
    stream = await reach.transport.connect(reach.host, reach.port)
    await stream.send_all(b"\xff\xff\xff\xff12345678")
    assert await is_at_end(stream)
    await stream.aclose()


async def a_server_that_closes_hangs_up(reach: Reach) -> None:
    """Its clients find out without asking."""
    stream = await reach.transport.connect(reach.host, reach.port)
    await stream.send_all(heartbeat(1))
    with trio.fail_after(PATIENCE_S):
        assert await read_id(stream) == 1
    await reach.close_server()
    assert await is_at_end(stream)
    await stream.aclose()


CHECKS: tuple[Check, ...] = (
    requests_are_answered_in_their_order,
    bytes_may_be_received_in_place,
    a_connection_to_an_absent_listener_is_an_os_error,
    a_client_that_closes_is_forgotten,
    a_client_that_aborts_is_forgotten,
    a_closed_end_takes_nothing_more,
    who_does_not_speak_the_protocol_is_hung_up_on,
    a_server_that_closes_hangs_up,
)
