"""Socket server: one private epoll for every client socket, awaited by one trio task.

A connection is an object registered with epoll, not a task. Its events are served inline, with
bounded work per event-loop iteration. Between two iterations, other runnable tasks run. If no task
is runnable, the server's task waits for clients without trio's scheduler (`direct_wait_driver`).
Only a handler that returned a coroutine gets a task, in the server's nursery. Invalid bytes from a
peer, or an unexpected error in a request, close only that connection.
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

from ottla.model.compiled import mypyc_attr
from ottla.model.limits import TURN_NS_MAX
from ottla.model.log_limiter import LogLimiter
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer
from ottla.node.network.listener import Listener, ListenerTls
from ottla.node.network.server.channel_driver import Channel, ReadBuffer
from ottla.node.network.server.descriptors_driver import (
    client_descriptor_max,
    connection_count_allowed,
)
from ottla.node.network.server.direct_wait_driver import DirectWait
from ottla.node.network.server.hosting_driver import ConnectionServer
from ottla.node.network.server.server_seam import Admission
from ottla.node.network.tls.encrypted_channel_driver import SharedBuffers, TlsChannel
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.slice import FileSlice, SliceError

EPOLLIN = select.EPOLLIN
BROKEN = select.EPOLLHUP | select.EPOLLERR

EVENTS_PER_TURN_MAX = 256
"""Maximum number of sockets that one epoll call reports. A larger number saves system calls."""

GATHERING_NS_MAX = 500_000
"""Time in nanoseconds since the start of an event-loop iteration during which the server still
reads newly arrived requests, if work is scheduled for the iteration's end. With a longer time, this
work is done less often under load. With a shorter one, the first request waits less. An iteration
never waits for requests."""

ACCEPTS_PER_TURN_MAX = 64

MAPPED_IPV4 = "::ffff:"
"""Prefix of the address of an IPv4 client at a dual-stack socket."""

DELAYED_CLOSES_MAX = 256
"""Maximum number of rejected sockets that are closed only after a delay, so that their clients
connect again later. Further rejected sockets are closed immediately. With a larger value, a storm
of connections could use up file descriptors that other clients need."""

TURNED_AWAY = "no file descriptors left; a client is turned away"
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


@mypyc_attr(allow_interpreted_subclasses=True)
class SocketServer(ConnectionServer[Channel]):
    """Socket server that accepts clients, reads their requests and writes the responses. Created by
    `server_opening_driver.open_socket_server`."""

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
        self._paused_sockets: dict[int, int | None] = {}
        """Listening sockets that currently accept no connections. The value is the monotonic time
        in milliseconds at which a socket resumes, or None if it waits until another connection has
        closed."""
        self._closing_max = min(DELAYED_CLOSES_MAX, admission.count_allowed // 4)
        self._closing: dict[socket.socket, None] = {}
        """Rejected sockets that are closed only after a delay, which slows down further attempts of
        their clients."""
        self._epoll = select.epoll()
        self._direct_wait = DirectWait(self._epoll)
        self._wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup_fd, select.EPOLLIN)
        # Reserved, so that a client can still be accepted and closed without free descriptors.
        self._descriptor_max = client_descriptor_max()
        self._spare_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._server_sockets: dict[int, tuple[socket.socket, Listener]] = {}
        self._channels: dict[int, Channel] = {}
        # Events from epoll for which the last iteration had no time.
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
        """Return the counters of connections that DescribeNode reports."""
        return {
            **super().metrics,
            **{
                f"tls.{listener.name.lower()}.{what}": value
                for _, listener in self._server_sockets.values()
                if listener.tls is not None
                for what, value in listener.tls.metrics.items()
            },
        }

    # Opening and closing.

    def listen(self, listener: Listener, backlog: int) -> None:
        """Open a listening socket.  Its address is added to `addresses` under the listener's
        name."""
        family = socket.AF_INET
        if ":" in listener.host or (not listener.host and socket.has_dualstack_ipv6()):
            family = socket.AF_INET6
        server_socket = socket.create_server(
            (listener.host, listener.port),
            family=family,
            backlog=backlog,
            # An empty host means all interfaces of both address families.
            dualstack_ipv6=family is socket.AF_INET6 and not listener.host,
        )
        server_socket.setblocking(False)
        # Accepted sockets inherit the buffers. An explicit size turns the kernel's tuning off.
        if self._limits.send_buffer_bytes >= 0:
            server_socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, self._limits.send_buffer_bytes
            )
        if self._limits.receive_buffer_bytes >= 0:
            server_socket.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, self._limits.receive_buffer_bytes
            )
        self._server_sockets[server_socket.fileno()] = (server_socket, listener)
        self._epoll.register(server_socket.fileno(), select.EPOLLIN)
        self.addresses[listener.name] = server_socket.getsockname()[:2]

    def close(self) -> None:
        """Close every socket of the server."""
        for channel in list(self._channels.values()):
            self._close(channel)
        for sock in self._closing:
            sock.close()
        self._closing.clear()
        for server_socket, _ in self._server_sockets.values():
            server_socket.close()
        self._server_sockets.clear()
        self._direct_wait.close()
        self._epoll.close()
        os.close(self._wakeup_fd)
        if self._spare_fd >= 0:
            os.close(self._spare_fd)

    # The event loop.

    async def run(self) -> None:
        """Accept and serve clients until cancelled."""
        self.start_tasks()
        await self.serve_connections()

    async def serve_connections(self) -> None:
        """Serve the events that epoll reports for all sockets, until cancelled. May be called again
        after that."""
        self._direct_wait.begin()
        try:
            await self._serve_turns()
        finally:
            self._direct_wait.end()

    async def _serve_turns(self) -> None:
        epoll_fd = self._epoll.fileno()
        while True:
            if (
                self._ready
                or self._events
                or self._resuming
                or (self._handshakes.queued and self._may_shake_hands)
            ):
                await trio.lowlevel.checkpoint()
            elif not self._direct_wait.wait():
                await trio.lowlevel.wait_readable(epoll_fd)
            self._turn()

    def _turn(self) -> None:
        """Serve the ready connections, each once, until the time of the event-loop iteration is up.

        If the requests of an iteration are written to the log together, requests that arrived in
        the meantime are added to that write. The remaining connections are served first in the next
        iteration, so that no connection starves.
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
        if self._handshakes.queued:
            self._shake_hands(now_ms)
        if self._dispatcher.turn_end.works:
            self._gather(now_ms, now_ns + GATHERING_NS_MAX)
        self._dispatcher.turn_end.end(self._errors)
        if self._ready:
            self._flush_completed(now_ms)
        self._is_in_turn = False

    def _serve_events(self, now_ms: int, ends_ns: int) -> None:
        """Serve the socket events that epoll reports, until the time of the event-loop iteration is
        up."""
        events = self._events
        while events and time.perf_counter_ns() < ends_ns:
            fd, mask = events.popleft()
            channel = self._channels.get(fd)
            if channel is None:
                self._on_own_event(fd, mask, now_ms)
            else:
                # As `_serve` does, without the call.
                try:
                    self._on_event(channel, mask, now_ms)
                except Exception as error:
                    self._on_step_failed(channel, error, now_ms)
        if not events:
            # A closed descriptor number may be reused, but none of its old events is left.
            for fd in self._knocked:
                server_socket, listener = self._server_sockets[fd]
                try:
                    self._accept(server_socket, listener, now_ms)
                except Exception as fault:
                    self._errors.note("listener", listener.name, fault)
            self._knocked.clear()

    def _gather(self, now_ms: int, ends_ns: int) -> None:
        """Serve requests that arrived during this event-loop iteration, so that the work scheduled
        for the iteration's end includes them."""
        events = self._events
        while not events and (now_ns := time.perf_counter_ns()) < ends_ns:
            events.extend(self._epoll.poll(0, EVENTS_PER_TURN_MAX))
            if not events:
                return
            self._dispatcher.clock.turn_ns = now_ns
            self._serve_events(now_ms, ends_ns)

    def _on_own_event(self, fd: int, mask: int, now_ms: int) -> None:
        """Handle an epoll event of a descriptor that belongs to no client connection."""
        if fd == self._wakeup_fd:
            os.eventfd_read(fd)
            self._is_woken = False
        elif fd in self._server_sockets:
            self._knocked.append(fd)

    def _on_event(self, channel: Channel, mask: int, now_ms: int) -> None:
        """Handle a client socket that epoll reported: read its bytes, serve the requests in them,
        and send the ready output."""
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
        """Send the ready output of a client's socket. This method is a shortcut for plain sockets
        that only wait for further bytes afterwards."""
        if type(channel) is Channel:
            connection = channel.connection
            if connection.output.byte_count:
                self._write(channel, now_ms)
            if channel.interest == EPOLLIN and not channel.is_blocked and connection.is_quiescent():
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
        """Load a range of a file into the page cache, in the worker thread of its disk. Then
        schedule the connection that sends the range."""
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

    # Accepting and closing connections.

    def _accept(self, server_socket: socket.socket, listener: Listener, now_ms: int) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            wait_ms = self._accept_wait_ms(listener, now_ms)
            if wait_ms != 0:
                self._pause_accepting(server_socket, wait_ms, now_ms)
                return
            try:
                sock, address = server_socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # The client has disconnected before it was accepted, or no descriptor is free.
                if error.errno in OUT_OF_DESCRIPTORS and not self._reject_connection(
                    server_socket, now_ms
                ):
                    return
                continue
            # The kernel assigns the lowest free number.
            if sock.fileno() > self._descriptor_max:
                sock.close()
                self._log(self._fault_lines, now_ms, TURNED_AWAY)
                continue
            self._admit(sock, str(address[0]).removeprefix(MAPPED_IPV4), listener, now_ms)

    def _accept_wait_ms(self, listener: Listener, now_ms: int) -> int | None:
        """Return the milliseconds for which a listener must accept no connection. Returns None if
        the listener must wait until another connection has closed."""
        return self._admission.wait_ms(listener.name, now_ms)

    def _admit(self, sock: socket.socket, host: str, listener: Listener, now_ms: int) -> None:
        """Serve an accepted socket, or schedule its close, as the connection quotas decide."""
        admission = self._admission
        delay_ms = admission.admit(listener.name, host, now_ms)
        if delay_ms is not None:
            self._close_later(sock, delay_ms, now_ms)
            return
        try:
            self._open(sock, host, listener, now_ms)
        except OSError:
            # The client has disconnected already.
            sock.close()
            admission.on_closed(listener.name, host)
            return
        if admission.has_excess and listener.name == admission.protected_listener:
            self._close_longest_idle(admission.protected_listener)

    def _drop_after_failed_handshake(self, channel: Channel, now_ms: int) -> None:
        """Remove a connection whose TLS handshake has failed. Its socket stays open for a while, so
        that the client can still read the alert."""
        assert isinstance(channel, TlsChannel)
        sock = channel.release()
        self._epoll.unregister(channel.fd)
        self._close(channel)
        with suppress(OSError):
            # Unread bytes of the client would make the kernel discard the alert at a close.
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

    def resume_accepting(self) -> None:
        """Resume accepting connections on the listeners whose limits allow it now."""
        for fd in list(self._paused_sockets):
            self._resume_accepting(fd)

    def _pause_accepting(
        self, server_socket: socket.socket, wait_ms: int | None, now_ms: int
    ) -> None:
        """Stop accepting connections on a listening socket for `wait_ms` milliseconds. If `wait_ms`
        is None, the socket waits until another connection has closed. Meanwhile clients wait in the
        kernel's backlog."""
        fd = server_socket.fileno()
        if fd not in self._paused_sockets:
            self._paused_sockets[fd] = wait_ms
            self._epoll.modify(fd, 0)
            if wait_ms is not None:
                self.call_at(now_ms + wait_ms, partial(self._resume_accepting, fd))

    def _resume_accepting(self, fd: int) -> None:
        """Watch a listening socket again. In the next event-loop iteration, the limits on
        connections decide whether the socket accepts connections."""
        if fd in self._paused_sockets and fd in self._server_sockets:
            del self._paused_sockets[fd]
            self._epoll.modify(fd, select.EPOLLIN)

    def _reject_connection(self, server_socket: socket.socket, now_ms: int) -> bool:
        """Accept and close one client's connection with the reserved file descriptor, so that the
        client notices the refusal immediately.

        Returns False if no client waits. This use of the reserve is needed because accept fails
        without a free descriptor.
        """
        if self._spare_fd >= 0:
            os.close(self._spare_fd)
            self._spare_fd = -1
        try:
            server_socket.accept()[0].close()
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
        for fd in [fd for fd, wait_ms in self._paused_sockets.items() if wait_ms is None]:
            self._resume_accepting(fd)
