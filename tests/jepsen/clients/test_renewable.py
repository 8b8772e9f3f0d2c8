"""Renewable resources: a crash skips the close, and each request gets a live resource."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.clients.renewable import Renewable
from ottla.model.errors import ErrorCode, RefusedError


class Thing:
    """A resource with one connection, on which it announces its close."""

    def __init__(self, stream: object) -> None:
        self.stream = stream


@asynccontextmanager
async def open_thing(port: int, ends: list[str]) -> AsyncIterator[Thing]:
    stream = await TRANSPORT.get().connect("127.0.0.1", port)
    try:
        yield Thing(stream)
    finally:
        with trio.CancelScope(shield=True):
            try:
                await stream.send_all(b"bye")
                ends.append("bye")
            except (trio.ClosedResourceError, trio.BrokenResourceError):
                ends.append("cut")
            stream.abort()
            try:
                (await TRANSPORT.get().connect("127.0.0.1", port)).abort()
                ends.append("connected")
            except OSError:
                ends.append("refused")


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            while await stream.receive_some():
                pass

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("is_crash", "farewell"), [(True, ["cut", "refused"]), (False, ["bye", "connected"])]
)
async def test_a_crash_is_silent_and_an_end_is_not(is_crash: bool, farewell: list[str]) -> None:
    ends: list[str] = []
    async with listening() as port, trio.open_nursery() as nursery:
        renewable = Renewable(nursery, lambda: open_thing(port, ends))
        first = await renewable.get()
        assert await renewable.get() is first
        await (renewable.crash() if is_crash else renewable.aclose())
        assert ends == farewell
        assert await renewable.get() is not first
        nursery.cancel_scope.cancel()


async def test_a_resource_that_ended_by_itself_is_opened_again() -> None:
    opened = 0

    @asynccontextmanager
    async def fragile() -> AsyncIterator[int]:
        nonlocal opened
        opened += 1
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail, opened)
            yield opened

    async def fail(life: int) -> None:
        if life == 1:
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR)
        await trio.sleep_forever()

    @asynccontextmanager
    async def lone() -> AsyncIterator[int]:
        try:
            async with fragile() as life:
                yield life
        except* RefusedError as group:
            raise group.exceptions[0] from None

    async with trio.open_nursery() as nursery:
        renewable = Renewable(nursery, lone)
        assert await renewable.get() == 1
        await trio.testing.wait_all_tasks_blocked()
        assert await renewable.get() == 2
        nursery.cancel_scope.cancel()
