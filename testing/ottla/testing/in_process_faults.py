"""Fault injection into the socket server of a broker: pauses, delays, lost responses, refused
connections.

Faults are attached to the broker's node id, and remain active when the broker is stopped and
started again. They also affect requests that other brokers send to it.
"""

import select
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from ottla.client.testing.faults import LostAnswers
from ottla.node.network.connection import Connection
from ottla.node.network.dispatch import Dispatcher, Peer
from ottla.node.network.listener import Listener
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.server.channel_driver import Channel
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_opening_driver import open_socket_server


class BrokerFaults:
    """The active faults of one broker."""

    def __init__(self) -> None:
        self.losses: dict[int, list[LostAnswers]] = {}
        """Requested losses of responses, by API key. All brokers of a cluster share this
        mapping."""
        self.delay_ms = 0
        """Delay of each response in milliseconds; 0 if responses are not delayed."""
        self.is_paused = False
        self.is_refusing = False
        self.server: FaultyServer | None = None
        """The server of the running broker, or None while the broker is stopped."""

    def loses(self, api_key: int) -> bool:
        """Return whether the response to the next request of an API must be lost. If so, add it to
        the count of lost responses."""
        return any(loss.take() for loss in self.losses.get(api_key, ()))

    def clear(self) -> None:
        """End all faults of the broker."""
        self.delay_ms = 0
        if self.is_paused:
            self.resume()
        if self.is_refusing:
            self.accept()

    def pause(self) -> None:
        """Suspend the broker: it reads no requests and sends no responses."""
        self.is_paused = True
        if self.server is not None:
            self.server.turns.cancel()

    def resume(self) -> None:
        """Resume the broker.  It then processes the requests that arrived during the pause."""
        self.is_paused = False
        if self.server is not None:
            self.server.resumed.set()

    def refuse(self) -> None:
        """Refuse new connections to the broker."""
        self.is_refusing = True
        if self.server is not None:
            self.server.stop_listening()

    def accept(self) -> None:
        """Accept new connections to the broker again."""
        self.is_refusing = False
        if self.server is not None:
            self.server.listen_again()


class FaultyConnection(Connection):
    """A connection that delays or loses responses, according to the faults of its broker."""

    __slots__ = ("faults",)

    faults: BrokerFaults

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        """Send a completed response, after the broker's delay. If the response must be lost, close
        the connection instead."""
        if slot.chunks and self.faults.loses(slot.header.api_key):
            # Earlier responses are still sent; then the connection is closed.
            slot.chunks, slot.closes_connection = [], True
        if not slot.chunks or not self.faults.delay_ms or self.faults.server is None:
            super().on_slot_completed(slot)
            return
        slot.is_done = False
        self.faults.server.call_after(self.faults.delay_ms, lambda: self._complete_late(slot))

    def _complete_late(self, slot: ResponseSlot) -> None:
        if not self.is_closed:
            slot.is_done = True
            super().on_slot_completed(slot)


class FaultyServer(SocketServer):
    """A socket server with the faults of its broker."""

    connection_class = FaultyConnection

    def __init__(self, dispatcher: Dispatcher, **others: Any) -> None:
        super().__init__(dispatcher, **others)
        self.faults = BrokerFaults()
        self.turns = trio.CancelScope()
        """Cancel scope of the socket server's running event loop. A pause of the broker cancels
        it."""
        self.resumed = trio.Event()
        self._backlog = 0

    async def serve_connections(self) -> None:
        """Run the socket server's event loop, except while the broker is paused."""
        while True:
            while self.faults.is_paused:
                self.resumed = trio.Event()
                await self.resumed.wait()
            with trio.CancelScope() as self.turns:
                await super().serve_connections()

    def host(self, channel: Channel, peer: Peer, now_ms: int) -> None:
        """Create the connection for an accepted channel. The connection applies the faults of its
        broker."""
        super().host(channel, peer, now_ms)
        assert isinstance(channel.connection, FaultyConnection)
        channel.connection.faults = self.faults

    def call_after(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Call a function after a delay in milliseconds."""
        self.call_at(self._clock.monotonic_ms() + delay_ms, action)

    def listen(self, listener: Listener, backlog: int) -> None:
        """Open the socket of a listener."""
        super().listen(listener, backlog)
        self._backlog = backlog

    def stop_listening(self) -> None:
        """Refuse new connections. The sockets stay bound to their ports but no longer listen."""
        for fd, (server_socket, _) in self._server_sockets.items():
            self._epoll.unregister(fd)
            server_socket.shutdown(socket.SHUT_RD)
        self._paused_sockets.clear()

    def listen_again(self) -> None:
        """Listen again on the ports that `stop_listening` kept."""
        for fd, (server_socket, listener) in self._server_sockets.items():
            server_socket.listen(self._backlog)
            # The kernel keeps a port that was requested explicitly, but not one it chose itself.
            assert server_socket.getsockname()[:2] == self.addresses[listener.name]
            self._epoll.register(fd, select.EPOLLIN)

    def cut_connections(self) -> None:
        """Close all open connections."""
        for channel in list(self._channels.values()):
            self._close(channel)


class FaultyServerOpener:
    """Factory for socket servers that apply the faults of one broker. Implements the interface
    `OpenServer`."""

    def __init__(self, faults: BrokerFaults) -> None:
        self._faults = faults

    @asynccontextmanager
    async def __call__(
        self, listeners: Sequence[Listener], dispatcher: Dispatcher, **others: Any
    ) -> AsyncIterator[FaultyServer]:
        """Open a socket server and yield it. The server is closed at the end of the block."""
        async with open_socket_server(listeners, dispatcher, kind=FaultyServer, **others) as server:
            assert isinstance(server, FaultyServer)
            # Set before the first iteration of the server: a task that was just started has not run
            # yet.
            server.faults, self._faults.server = self._faults, server
            if self._faults.is_refusing:
                server.stop_listening()
            try:
                yield server
            finally:
                self._faults.server = None
