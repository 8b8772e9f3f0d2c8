"""A broker's socket server that can be hurt: it pauses, delays or loses answers, refuses clients.

The faults belong to the broker's node id, not to one life of it: they outlast a stop and a start.
What other brokers ask of the broker meets the same faults, as it does on a bad machine.
"""

import select
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from ottla.broker.network.channel_driver import Channel
from ottla.broker.network.connection import Connection
from ottla.broker.network.dispatch import Dispatcher, Peer
from ottla.broker.network.listener import Listener
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.network.server_driver import SocketServer
from ottla.broker.network.server_opening_driver import open_socket_server
from ottla.client.testing.faults import LostAnswers


class BrokerFaults:
    """What is wrong with one broker now."""

    def __init__(self) -> None:
        self.losses: dict[int, list[LostAnswers]] = {}
        """Answers to lose, by api key; all brokers of a cluster share them."""
        self.delay_ms = 0
        """Wait before each answer leaves."""
        self.is_paused = False
        self.is_refusing = False
        self.server: FaultyServer | None = None
        """The server of the broker that runs now."""

    def loses(self, api_key: int) -> bool:
        """Count an answer of an API; return whether it is lost."""
        return any(loss.take() for loss in self.losses.get(api_key, ()))

    def pause(self) -> None:
        """Read nothing and send nothing from now on."""
        self.is_paused = True
        if self.server is not None:
            self.server.turns.cancel()

    def resume(self) -> None:
        """Serve what has arrived meanwhile, and all that comes."""
        self.is_paused = False
        if self.server is not None:
            self.server.resumed.set()

    def refuse(self) -> None:
        """Accept no connection from now on."""
        self.is_refusing = True
        if self.server is not None:
            self.server.close_doors()

    def accept(self) -> None:
        """Accept connections again."""
        self.is_refusing = False
        if self.server is not None:
            self.server.reopen_doors()


class FaultyConnection(Connection):
    """A connection some of whose answers come late or not at all."""

    __slots__ = ("faults",)

    faults: BrokerFaults

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        """Let an answer leave, later, or never."""
        if slot.chunks and self.faults.loses(slot.header.api_key):
            # What was answered before still arrives, then the connection ends.
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
        """Around the turns that are taken now."""
        self.resumed = trio.Event()
        self._backlog = 0

    async def take_turns(self) -> None:
        """Take turns, but not while the broker is paused."""
        while True:
            while self.faults.is_paused:
                self.resumed = trio.Event()
                await self.resumed.wait()
            with trio.CancelScope() as self.turns:
                await super().take_turns()

    def host(self, channel: Channel, peer: Peer, now_ms: int) -> None:
        """Make the connection of a new channel."""
        super().host(channel, peer, now_ms)
        assert isinstance(channel.connection, FaultyConnection)
        channel.connection.faults = self.faults

    def call_after(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Do something small some time from now."""
        self.call_at(self._clock.monotonic_ms() + delay_ms, action)

    def listen(self, listener: Listener, backlog: int) -> None:
        """Open a door."""
        super().listen(listener, backlog)
        self._backlog = backlog

    def close_doors(self) -> None:
        """Refuse those who connect: the ports stay ours, but nothing listens there."""
        for fd, (door, _) in self._doors.items():
            self._epoll.unregister(fd)
            door.shutdown(socket.SHUT_RD)
        self._closed_doors.clear()

    def reopen_doors(self) -> None:
        """Listen again."""
        for fd, (door, listener) in self._doors.items():
            door.listen(self._backlog)
            # The kernel keeps a port that was asked for, and not one that it chose itself.
            assert door.getsockname()[:2] == self.addresses[listener.name]
            self._epoll.register(fd, select.EPOLLIN)

    def cut_connections(self) -> None:
        """Close every connection that is open now."""
        for channel in list(self._channels.values()):
            self._close(channel)


class FaultyServerOpener:
    """Opens servers with the faults of one broker; satisfies the seam `OpenServer`."""

    def __init__(self, faults: BrokerFaults) -> None:
        self._faults = faults

    @asynccontextmanager
    async def __call__(
        self, listeners: Sequence[Listener], dispatcher: Dispatcher, **others: Any
    ) -> AsyncIterator[FaultyServer]:
        """Listen and serve for as long as the block runs."""
        async with open_socket_server(listeners, dispatcher, kind=FaultyServer, **others) as server:
            assert isinstance(server, FaultyServer)
            # Before its first turn: a task that was started has not run yet.
            server.faults, self._faults.server = self._faults, server
            if self._faults.is_refusing:
                server.close_doors()
            try:
                yield server
            finally:
                self._faults.server = None
