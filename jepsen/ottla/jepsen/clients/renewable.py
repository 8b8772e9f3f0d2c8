"""Resources opened by `async with` that can crash and be opened again, to simulate clients that
crash.

Each opened resource runs in a separate task, so any task may crash it. Brokers see a true crash:
all connections are aborted first, so that no leave or close request arrives.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import trio

from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.transport import TRANSPORT
from ottla.model.errors import ProtocolError, RefusedError
from ottla.model.seams import ByteStream, Transport

T = TypeVar("T")


class CuttableTransport:
    """Transport whose connections can all be cut at once. Each opening of a `Renewable` resource
    uses a new transport. Implements the protocol `Transport`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._streams: list[ByteStream] = []
        self._is_cut = False

    async def connect(self, host: str, port: int) -> ByteStream:
        """Connect to an address, and return the stream of the connection. Raises OSError after
        `cut`."""
        if not self._is_cut:
            stream = await self._inner.connect(host, port)
            if not self._is_cut:
                self._streams.append(stream)
                return stream
            stream.abort()
        raise OSError("the client has crashed")

    def cut(self) -> None:
        """Abort every connection of the transport, and refuse new ones."""
        self._is_cut = True
        for stream in self._streams:
            stream.abort()


class Life(Generic[T]):
    """One period in which a renewable resource is open. It ends when the resource is closed or
    crashes."""

    def __init__(self, thing: T, transport: CuttableTransport, scope: trio.CancelScope) -> None:
        self.thing = thing
        self.transport = transport
        self.scope = scope
        self.is_closing = trio.Event()
        self.is_over = trio.Event()


class Renewable(Generic[T]):
    """A resource, such as a client, that is opened again after each crash."""

    def __init__(
        self, nursery: trio.Nursery, open_thing: Callable[[], AbstractAsyncContextManager[T]]
    ) -> None:
        self._nursery = nursery
        self._open_thing = open_thing
        self._life: Life[T] | None = None

    @property
    def current(self) -> T | None:
        """The open resource, or None if the resource is not open. This property never opens the
        resource."""
        life = self._life
        return None if life is None or life.is_over.is_set() else life.thing

    async def get(self) -> T:
        """Return the open resource. If it has ended, it is opened again first."""
        if self._life is None or self._life.is_over.is_set():
            self._life = await self._nursery.start(self._live)
        assert self._life is not None
        return self._life.thing

    async def crash(self) -> None:
        """End the resource as in a crash, without sending any request to the brokers."""
        life, self._life = self._life, None
        if life is not None:
            life.transport.cut()
            life.scope.cancel()
            await life.is_over.wait()

    async def aclose(self) -> None:
        """Close the resource cleanly, as at the end of its `async with` block."""
        life, self._life = self._life, None
        if life is not None:
            life.is_closing.set()
            await life.is_over.wait()

    async def _live(self, task_status: trio.TaskStatus[Life[T]]) -> None:
        transport = CuttableTransport(TRANSPORT.get())
        TRANSPORT.set(transport)
        life: Life[T] | None = None
        with trio.CancelScope() as scope:
            try:
                async with self._open_thing() as thing:
                    life = Life(thing, transport, scope)
                    task_status.started(life)
                    await life.is_closing.wait()
            except (RefusedError, ConnectionLostError, ProtocolError):
                if life is None:
                    raise  # the operation that opens it gets the error
                # An error while closing. Each operation already has its own completion.
                await trio.lowlevel.checkpoint()
        if life is not None:
            life.is_over.set()
