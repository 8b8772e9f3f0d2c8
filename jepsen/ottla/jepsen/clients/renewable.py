"""Things opened by `async with` that are thrown away and opened again, as a client that crashes.

Each life runs in a task of its own, so whoever crashes it needs not be who opened it.  A crash is
one as the brokers see it: every connection is cut first, so that no farewell gets through.
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
    """The network of one life; satisfies the seam `Transport`."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self._streams: list[ByteStream] = []
        self._is_cut = False

    async def connect(self, host: str, port: int) -> ByteStream:
        """Connect, unless the life is over."""
        if not self._is_cut:
            stream = await self._inner.connect(host, port)
            if not self._is_cut:
                self._streams.append(stream)
                return stream
            stream.abort()
        raise OSError("the client has crashed")

    def cut(self) -> None:
        """Cut every connection; there will be no other one."""
        self._is_cut = True
        for stream in self._streams:
            stream.abort()


class Opening(Generic[T]):
    """One opening of a thing."""

    def __init__(self, thing: T, transport: CuttableTransport, scope: trio.CancelScope) -> None:
        self.thing = thing
        self.transport = transport
        self.scope = scope
        self.is_closing = trio.Event()
        self.is_over = trio.Event()


class Renewable(Generic[T]):
    """A thing that has one life after another."""

    def __init__(
        self, nursery: trio.Nursery, open_thing: Callable[[], AbstractAsyncContextManager[T]]
    ) -> None:
        self._nursery = nursery
        self._open_thing = open_thing
        self._life: Opening[T] | None = None

    @property
    def current(self) -> T | None:
        """Return the thing if it lives."""
        life = self._life
        return None if life is None or life.is_over.is_set() else life.thing

    async def get(self) -> T:
        """Return the thing, opened again where it had ended."""
        if self._life is None or self._life.is_over.is_set():
            self._life = await self._nursery.start(self._live)
        assert self._life is not None
        return self._life.thing

    async def crash(self) -> None:
        """End its life without a word to anybody."""
        life, self._life = self._life, None
        if life is not None:
            life.transport.cut()
            life.scope.cancel()
            await life.is_over.wait()

    async def aclose(self) -> None:
        """End its life as its block ends."""
        life, self._life = self._life, None
        if life is not None:
            life.is_closing.set()
            await life.is_over.wait()

    async def _live(self, task_status: trio.TaskStatus[Opening[T]]) -> None:
        transport = CuttableTransport(TRANSPORT.get())
        TRANSPORT.set(transport)
        life: Opening[T] | None = None
        with trio.CancelScope() as scope:
            try:
                async with self._open_thing() as thing:
                    life = Opening(thing, transport, scope)
                    task_status.started(life)
                    await life.is_closing.wait()
            except (RefusedError, ConnectionLostError, ProtocolError):
                if life is None:
                    raise  # it did not open: an answer to the operation that asked for it
                # What it could not do any more when it ended; each operation had its own answer.
                await trio.lowlevel.checkpoint()
        if life is not None:
            life.is_over.set()
