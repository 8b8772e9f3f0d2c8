"""The socket server: one private epoll for every client socket, waited on by one trio task.

A connection is an object in the epoll, not a task: its events are served inline, with bounded work
per turn, and trio runs between turns.  Only a handler that returned a coroutine gets a task, in
the server's nursery.  A peer's bad bytes, and a bug that a request meets, close that connection
only.
"""

import errno
import os
import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial

import trio

from ottla.broker.network.channel_driver import Channel, ReadBuffer
from ottla.broker.network.connection_limits import ConnectionLimits
from ottla.broker.network.descriptors_driver import client_descriptor_max, connection_count_allowed
from ottla.broker.network.dispatch import Dispatcher, Peer
from ottla.broker.network.hosting_driver import ConnectionServer
from ottla.broker.network.listener import Listener, ListenerTls
from ottla.broker.network.server_seam import Admission
from ottla.broker.network.tls.encrypted_channel_driver import SharedBuffers, TlsChannel
from ottla.model.compiled import mypyc_attr
from ottla.model.limits import TURN_NS_MAX
from ottla.model.log_limiter import LogLimiter
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import FileSlice, SliceError

EPOLLIN = select.EPOLLIN
BROKEN = select.EPOLLHUP | select.EPOLLERR

EVENTS_PER_TURN_MAX = 256
"""Sockets the epoll names at once.  Higher saves calls."""

GATHERING_NS_MAX = 500_000
"""How old a turn may be when it still takes in what has come since it began, where something is to
be done once for all of its requests.  Higher does it less often under load, lower has the first of
them wait less.  Nobody waits for requests that are not there."""

ACCEPTS_PER_TURN_MAX = 64

MAPPED_IPV4 = "::ffff:"
"""How an IPv4 peer looks to a socket of both families."""

DELAYED_CLOSES_MAX = 256
"""Sockets kept open for a while before they are closed, so that their clients are slow to try
again.  With more, a storm takes the descriptors of others; beyond, they are closed at once."""

TURNED_AWAY = "no file descriptors left; a client is turned away"
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@mypyc_attr(allow_interpreted_subclasses=True)
class SocketServer(ConnectionServer[Channel]):
    """Accepts, reads, serves and writes; made by `server_opening_driver.open_socket_server`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits | None,
        request_memory_bytes_max: int,
        idle_ms_max: int,
        admission: Admission,
        nursery: trio.Nursery,
    ) -> None:
        super().__init__(
            dispatcher,
            clock=clock,
            limits=limits,
            request_memory_bytes_max=request_memory_bytes_max,
            idle_ms_max=idle_ms_max,
            nursery=nursery,
        )
        dispatcher.clock.now_ns = time.perf_counter_ns
        self._disk = disk
        self._admission = admission
        admission.count_allowed = connection_count_allowed()
        self._closed_doors: dict[int, int | None] = {}
        """Doors at which nothing is accepted for now: for how long; None until there is room."""
        self._closing_max = min(DELAYED_CLOSES_MAX, admission.count_allowed // 4)
        self._closing: dict[socket.socket, None] = {}
        """Accepted sockets that are only kept until they are closed."""
        self._epoll = select.epoll()
        self._wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup_fd, select.EPOLLIN)
        # Held back so that, out of descriptors, a client can still be accepted and told goodbye.
        self._descriptor_max = client_descriptor_max()
        self._spare_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._doors: dict[int, tuple[socket.socket, Listener]] = {}
        self._channels: dict[int, Channel] = {}
        # What the epoll said and the last turn had no time for.
        self._events: deque[tuple[int, int]] = deque()
        self._resuming: deque[Channel] = deque()
        self._knocked: list[int] = []
        self._is_in_turn = False
        self._is_woken = False
        self._buffer = ReadBuffer()
        self._shared_buffers = SharedBuffers()
        self._fault_lines = LogLimiter()

    @property
    def metrics(self) -> Mapping[str, float]:
        """Plain counts, for DescribeNode."""
        return {
            **super().metrics,
            **{
                f"tls.{listener.name.lower()}.{what}": value
                for _, listener in self._doors.values()
                if listener.tls is not None
                for what, value in listener.tls.metrics.items()
            },
        }

    # Opening and closing.

    def listen(self, listener: Listener, backlog: int) -> None:
        """Open a door; its bound address is in `addresses` by the listener's name."""
        family = socket.AF_INET
        if ":" in listener.host or (not listener.host and socket.has_dualstack_ipv6()):
            family = socket.AF_INET6
        door = socket.create_server(
            (listener.host, listener.port),
            family=family,
            backlog=backlog,
            # An empty host is every interface of both families.
            dualstack_ipv6=family is socket.AF_INET6 and not listener.host,
        )
        door.setblocking(False)
        self._doors[door.fileno()] = (door, listener)
        self._epoll.register(door.fileno(), select.EPOLLIN)
        self.addresses[listener.name] = door.getsockname()[:2]

    def close(self) -> None:
        """Close every socket."""
        for channel in list(self._channels.values()):
            self._close(channel)
        for sock in self._closing:
            sock.close()
        self._closing.clear()
        for door, _ in self._doors.values():
            door.close()
        self._doors.clear()
        self._epoll.close()
        os.close(self._wakeup_fd)
        if self._spare_fd >= 0:
            os.close(self._spare_fd)

    # The loop.

    async def run(self) -> None:
        """Serve until cancelled."""
        self.start_tasks()
        await self.take_turns()

    async def take_turns(self) -> None:
        """Serve what the epoll reports, until cancelled; may be called again after that."""
        epoll_fd = self._epoll.fileno()
        while True:
            if self._ready or self._events or self._resuming or self._may_shake_hands:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(epoll_fd)
            self._turn()

    def _turn(self) -> None:
        """Serve what is ready, each connection once, until the turn's time is up.

        Where the requests of a turn have one write together, what came meanwhile joins them.
        What is left over comes first in the next turn, so that nobody starves.
        """
        self._is_in_turn = True
        self._dispatcher.turn_end.begin()
        now_ms = self._clock.monotonic_ms()
        self._dispatcher.clock.turn_ns = now_ns = time.perf_counter_ns()
        ends_ns = now_ns + TURN_NS_MAX
        events, resuming = self._events, self._resuming
        if not events and not resuming:
            resuming.extend(self._ready)
            self._ready.clear()
            events.extend(self._epoll.poll(0, EVENTS_PER_TURN_MAX))
        self._serve_events(now_ms, ends_ns)
        while resuming and time.perf_counter_ns() < ends_ns:
            self._serve(self._resume, resuming.popleft(), 0, now_ms)
        if self._handshakes.has_queue:
            self._shake_hands(now_ms)
        if self._dispatcher.turn_end.works:
            self._gather(now_ms, now_ns + GATHERING_NS_MAX)
        self._dispatcher.turn_end.end(self._errors)
        self._flush_completed(now_ms)
        self._is_in_turn = False

    def _serve_events(self, now_ms: int, ends_ns: int) -> None:
        """Serve what the epoll has told of, until the time is up."""
        events = self._events
        while events and time.perf_counter_ns() < ends_ns:
            fd, mask = events.popleft()
            channel = self._channels.get(fd)
            if channel is None:
                self._on_own_event(fd)
            else:
                self._serve(self._on_event, channel, mask, now_ms)
        if not events:
            # A descriptor that was closed may be given out again: no old event of it is left.
            for fd in self._knocked:
                door, listener = self._doors[fd]
                try:
                    self._accept(door, listener, now_ms)
                except Exception as fault:
                    self._errors.note("listener", listener.name, fault)
            self._knocked.clear()

    def _gather(self, now_ms: int, ends_ns: int) -> None:
        """Serve what has come meanwhile: what is done once in a turn is done for that, too."""
        events = self._events
        while not events and (now_ns := time.perf_counter_ns()) < ends_ns:
            events.extend(self._epoll.poll(0, EVENTS_PER_TURN_MAX))
            if not events:
                return
            self._dispatcher.clock.turn_ns = now_ns
            self._serve_events(now_ms, ends_ns)

    def _on_own_event(self, fd: int) -> None:
        if fd == self._wakeup_fd:
            os.eventfd_read(fd)
            self._is_woken = False
        elif fd in self._doors:
            self._knocked.append(fd)

    def _on_event(self, channel: Channel, mask: int, now_ms: int) -> None:
        """Read and serve what came, and send what may leave."""
        if channel.is_shaking:
            assert isinstance(channel, TlsChannel)
            channel.on_shaking_event()
            self._handshakes.queue(channel)
            return
        if mask & EPOLLIN and channel.connection.wants_bytes:
            self._read(channel, now_ms)
        elif mask & BROKEN:
            self._close(channel)
            return
        self._flush(channel, 0, now_ms)

    def _flush(self, channel: Channel, _: int, now_ms: int) -> None:
        """Send what may leave; with that, most events of plain sockets are done."""
        if type(channel) is Channel:
            if channel.connection.output.byte_count:
                self._write(channel, now_ms)
            if channel.is_calm:
                return
        super()._flush(channel, _, now_ms)

    def _watch(self, channel: Channel) -> None:
        interest = channel.wanted_interest
        if interest != channel.interest:
            channel.interest = interest
            self._epoll.modify(channel.fd, interest)

    def _have_turn(self) -> None:
        if not self._is_in_turn and not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self._wakeup_fd, 1)

    def _read_ahead(self, channel: Channel, piece: FileSlice, position: int, size: int) -> None:
        """Bring a cold range into the page cache on the disk's worker, then serve the channel."""
        channel.is_reading_ahead = True
        self._nursery.start_soon(self._await_read_ahead, channel, piece, position, size)

    async def _await_read_ahead(
        self, channel: Channel, piece: FileSlice, position: int, size: int
    ) -> None:
        try:
            await self._disk.read_ahead(piece.file, position, size)
        except OSError as error:
            self.on_fault(channel, SliceError(error, piece.file.path))
        except Exception as fault:
            self.on_fault(channel, fault)
        channel.is_reading_ahead = False
        self.on_work(channel)

    # Connections come and go.

    def _accept(self, door: socket.socket, listener: Listener, now_ms: int) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            wait_ms = self._admission.wait_ms(listener.name, now_ms)
            if wait_ms != 0:
                self._close_door(door, wait_ms, now_ms)
                return
            try:
                sock, address = door.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # The client has gone before it was accepted, or we are out of descriptors.
                if error.errno in OUT_OF_DESCRIPTORS and not self._turn_away(door, now_ms):
                    return
                continue
            # The kernel gives out the lowest number that is free.
            if sock.fileno() > self._descriptor_max:
                sock.close()
                self._log(self._fault_lines, now_ms, TURNED_AWAY)
                continue
            self._admit(sock, str(address[0]).removeprefix(MAPPED_IPV4), listener, now_ms)

    def _admit(self, sock: socket.socket, host: str, listener: Listener, now_ms: int) -> None:
        """Serve an accepted socket, or have it closed."""
        admission = self._admission
        delay_ms = admission.admit(listener.name, host, now_ms)
        if delay_ms is not None:
            self._close_later(sock, delay_ms, now_ms)
            return
        try:
            self._open(sock, host, listener, now_ms)
        except OSError:
            # The client has gone already.
            sock.close()
            admission.on_closed(listener.name, host)
            return
        if admission.has_excess and listener.name == admission.protected_listener:
            self._make_way(admission.protected_listener)

    def _part_from(self, channel: Channel, now_ms: int) -> None:
        """Forget a channel whose handshake has failed, in such a way that its client reads why."""
        assert isinstance(channel, TlsChannel)
        sock = channel.release()
        self._epoll.unregister(channel.fd)
        self._close(channel)
        with suppress(OSError):
            # What it has sent unasked would have the kernel drop our last words at a close.
            sock.shutdown(socket.SHUT_WR)
        self._close_later(sock, channel.tls.failure_delay_ms, now_ms)

    def _close_later(self, sock: socket.socket, delay_ms: int, now_ms: int) -> None:
        if not delay_ms or len(self._closing) >= self._closing_max:
            sock.close()
            return
        self._closing[sock] = None

        def close() -> None:
            if sock in self._closing:
                del self._closing[sock]
                sock.close()

        self.call_at(now_ms + delay_ms, close)

    def _open(self, sock: socket.socket, host: str, listener: Listener, now_ms: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _, peer_port = sock.getpeername()[:2]
        local_host, local_port = sock.getsockname()[:2]
        self.accepted_count += 1
        peer = Peer(
            connection_id=self.accepted_count,
            listener_name=listener.name,
            peer_host=host,
            peer_port=peer_port,
            local_host=local_host.removeprefix(MAPPED_IPV4),
            local_port=local_port,
        )
        channel = self._channel(sock, listener.tls)
        self._epoll.register(channel.fd, channel.interest)
        self._channels[channel.fd] = channel
        self.host(channel, peer, now_ms)
        if isinstance(channel, TlsChannel):
            self._begin_handshake(channel, now_ms)

    def _channel(self, sock: socket.socket, tls: ListenerTls | None) -> Channel:
        if tls is None:
            return Channel(
                sock, self, disk=self._disk, buffer=self._buffer, read_ahead=self._read_ahead
            )
        return TlsChannel(
            sock,
            self,
            disk=self._disk,
            buffer=self._buffer,
            shared=self._shared_buffers,
            read_ahead=self._read_ahead,
            tls=tls,
        )

    def reconsider_doors(self) -> None:
        """Accept where the admission's bounds allow it now."""
        for fd in list(self._closed_doors):
            self._open_door(fd)

    def _close_door(self, door: socket.socket, wait_ms: int | None, now_ms: int) -> None:
        """Leave those who knock in the kernel, for a while or until there is room."""
        fd = door.fileno()
        if fd not in self._closed_doors:
            self._closed_doors[fd] = wait_ms
            self._epoll.modify(fd, 0)
            if wait_ms is not None:
                self.call_at(now_ms + wait_ms, partial(self._open_door, fd))

    def _open_door(self, fd: int) -> None:
        """Watch a door again: the next turn asks the admission whether it accepts."""
        if fd in self._closed_doors and fd in self._doors:
            del self._closed_doors[fd]
            self._epoll.modify(fd, select.EPOLLIN)

    def _turn_away(self, door: socket.socket, now_ms: int) -> bool:
        """Accept and close one client with the spare descriptor, so that it is told at once.

        Return False when nobody knocks: out of descriptors, accept fails before it looks.
        """
        if self._spare_fd >= 0:
            os.close(self._spare_fd)
            self._spare_fd = -1
        try:
            door.accept()[0].close()
        except OSError:
            return False
        finally:
            with suppress(OSError):
                self._spare_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._log(self._fault_lines, now_ms, TURNED_AWAY)
        return True

    def _on_closed(self, channel: Channel) -> None:
        if self._channels.get(channel.fd) is channel:
            del self._channels[channel.fd]
        if channel.is_shaking:
            assert isinstance(channel, TlsChannel)
            self._handshakes.end(channel)
        peer = channel.connection.peer
        self._admission.on_closed(peer.listener_name, peer.peer_host)
        for fd in [fd for fd, wait_ms in self._closed_doors.items() if wait_ms is None]:
            self._open_door(fd)
