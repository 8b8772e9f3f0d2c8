"""The socket server: one private epoll for every client socket, waited on by one trio task.

A connection is an object in the epoll, not a task: its events are served inline, with bounded work
per turn, and trio runs between turns.  Only a handler that returned a coroutine gets a task, in
the server's nursery.  A peer's bad bytes, and a bug that a request meets, close that connection
only.
"""

import errno
import heapq
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import trio

from ottla.broker.network.alarm_driver import Alarm
from ottla.broker.network.channel_driver import Channel, ReadBuffer
from ottla.broker.network.connection import Connection, ConnectionLimits, Pending
from ottla.broker.network.descriptors_driver import client_descriptor_max, connection_count_allowed
from ottla.broker.network.dispatch import Dispatcher, MalformedRequestError, NotServedYetError, Peer
from ottla.broker.network.listener import Listener
from ottla.broker.network.log_limiter import LogLimiter
from ottla.broker.network.memory_sweep_driver import keep_memory_fair
from ottla.broker.network.paced_driver import PacedWork
from ottla.broker.network.request_memory import RequestMemory
from ottla.broker.network.response_queue import ResponseSlot
from ottla.model.background_driver import keep_running
from ottla.model.errors import ProtocolError, only_error
from ottla.model.limits import INT32_MAX, MIB, TURN_NS_MAX
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk
from ottla.storage.slice import FileSlice, SliceError
from ottla.wire.codec_types import Message

logger = logging.getLogger("ottla.broker.network")

EVENTS_PER_TURN_MAX = 256
"""Sockets the epoll names at once.  Higher saves calls."""

ACCEPTS_PER_TURN_MAX = 64

READS_PER_EVENT_MAX = 4
"""Reads from one socket while it keeps filling a large frame."""

IDLE_CHECKS_PER_PERIOD = 20
"""How finely idleness is told: a silent connection lives at most a twentieth longer."""

REQUEST_MEMORY_BYTES_MAX = 256 * MIB
"""The pool of unfinished requests where `queued.max.request.bytes` is not set."""

MAPPED_IPV4 = "::ffff:"
"""How an IPv4 peer looks to a socket of both families."""

TURNED_AWAY = "no file descriptors left; a client is turned away"
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

NETWORK_ERRNOS = (
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENOTCONN,
    errno.EPIPE,
    errno.ETIMEDOUT,
)
"""What a peer or the network does to a socket: no fault of ours, and no line in the log."""


class SocketServer:
    """Accepts, reads, serves and writes; made by `open_socket_server`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits,
        memory: RequestMemory,
        idle_ms_max: int,
        connection_count_max: int,
        nursery: trio.Nursery,
    ) -> None:
        self._dispatcher = dispatcher
        self._errors = dispatcher.errors
        dispatcher.clock.now_ns = time.perf_counter_ns
        self._clock = clock
        self._disk = disk
        self._limits = limits
        self._idle_ms_max = idle_ms_max
        self._connection_count_allowed = connection_count_allowed()
        self._connection_count_max = min(connection_count_max, self._connection_count_allowed)
        self._are_doors_watched = True
        self._nursery = nursery
        self._paced = PacedWork()
        self.memory = memory
        self._epoll = select.epoll()
        self._wakeup_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._wakeup_fd, select.EPOLLIN)
        # Held back so that, out of descriptors, a client can still be accepted and told goodbye.
        self._descriptor_max = client_descriptor_max()
        self._spare_fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._doors: dict[int, tuple[socket.socket, Listener]] = {}
        self._channels: dict[int, Channel] = {}
        self._ready: dict[Channel, None] = {}
        # What the epoll said and the last turn had no time for.
        self._events: deque[tuple[int, int]] = deque()
        self._resuming: deque[Channel] = deque()
        self._knocked: list[int] = []
        self._is_in_turn = False
        self._is_woken = False
        self._buffer = ReadBuffer()
        self._wakes: list[tuple[int, int, Channel]] = []
        self._wake_alarm = Alarm(clock, self._next_wake_ms, self._on_wakes_due)
        self._bad_input_lines = LogLimiter()
        self._fault_lines = LogLimiter()
        self._next_wake_number = 0
        self.addresses: dict[str, tuple[str, int]] = {}
        self.accepted_count = 0
        self.closed_for_bad_input_count = 0
        self.closed_for_idleness_count = 0

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
        for door, _ in self._doors.values():
            door.close()
        self._doors.clear()
        self._epoll.close()
        os.close(self._wakeup_fd)
        if self._spare_fd >= 0:
            os.close(self._spare_fd)

    @property
    def connection_count(self) -> int:
        """How many connections are open."""
        return len(self._channels)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Plain counts, for DescribeNode."""
        return {
            "network.connections": len(self._channels),
            "network.connections.accepted": self.accepted_count,
            "network.connections.closed.bad.input": self.closed_for_bad_input_count,
            "network.connections.closed.idle": self.closed_for_idleness_count,
            "network.connections.closed.slow": self.memory.given_up_count,
            "network.connections.closed.unread": self.memory.answers.given_up_count,
            "network.request.bytes.held": self.memory.reserved_bytes,
            "network.response.bytes.held": self.memory.answers.held_bytes,
        }

    # The loop.

    async def run(self) -> None:
        """Serve until cancelled."""
        for name, work in (
            ("alarm of connections", self._wake_alarm.run),
            ("idle connections", self._close_idle_connections),
            ("request memory", partial(keep_memory_fair, self.memory, self._clock)),
        ):
            self._nursery.start_soon(keep_running, name, work, self._errors)
        epoll_fd = self._epoll.fileno()
        while True:
            if self._ready or self._events or self._resuming:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(epoll_fd)
            self._turn()

    def _turn(self) -> None:
        """Serve what is ready, each connection once, until the turn's time is up.

        What is left over comes first in the next turn, so that nobody starves.
        """
        self._is_in_turn = True
        now_ms = self._clock.monotonic_ms()
        self._dispatcher.clock.turn_ns = now_ns = time.perf_counter_ns()
        ends_ns = now_ns + TURN_NS_MAX
        events, resuming = self._events, self._resuming
        if not events and not resuming:
            resuming.extend(self._ready)
            self._ready.clear()
            events.extend(self._epoll.poll(0, EVENTS_PER_TURN_MAX))
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
        while resuming and time.perf_counter_ns() < ends_ns:
            self._serve(self._resume, resuming.popleft(), 0, now_ms)
        self._flush_completed(now_ms)
        self._is_in_turn = False

    def _flush_completed(self, now_ms: int) -> None:
        """Send what this turn completed elsewhere; what they hold is taken up in the next turn."""
        completed, self._ready = self._ready, {}
        for channel in completed:
            if not channel.connection.is_closed:
                if channel.connection.has_held_bytes:
                    self._ready[channel] = None
                self._serve(self._flush, channel, 0, now_ms)

    def _serve(
        self, step: Callable[[Channel, int, int], None], channel: Channel, mask: int, now_ms: int
    ) -> None:
        """Do one step of one connection; what goes wrong in it ends that connection alone."""
        try:
            step(channel, mask, now_ms)
        except ProtocolError as error:
            self._on_bad_input(channel, error, now_ms)
        except Exception as fault:
            self.on_fault(channel, fault)

    def _on_own_event(self, fd: int) -> None:
        if fd == self._wakeup_fd:
            os.eventfd_read(fd)
            self._is_woken = False
        elif fd in self._doors:
            self._knocked.append(fd)

    def _on_event(self, channel: Channel, mask: int, now_ms: int) -> None:
        """Read and serve what came, and send what may leave."""
        if mask & select.EPOLLIN and channel.connection.wants_bytes:
            self._read(channel, now_ms)
        elif mask & (select.EPOLLHUP | select.EPOLLERR):
            self._close(channel)
            return
        if not channel.connection.is_closed:
            self._flush(channel, 0, now_ms)

    def _read(self, channel: Channel, now_ms: int) -> None:
        connection = channel.connection
        for _ in range(READS_PER_EVENT_MAX):
            if not channel.read(self._buffer, now_ms):
                connection.on_eof()
                break
            if connection.window() is None or not connection.wants_bytes:
                break

    def _resume(self, channel: Channel, _: int, now_ms: int) -> None:
        """Take up what is held, and send what may leave."""
        if not channel.connection.is_closed:
            channel.connection.resume(now_ms)
            self._flush(channel, 0, now_ms)

    def _flush(self, channel: Channel, _: int, now_ms: int) -> None:
        """Send what may leave, and wait for the right events."""
        connection = channel.connection
        if not channel.is_drained:
            channel.flush(now_ms)
        if (connection.is_closing and channel.is_drained) or connection.is_finished:
            self._close(channel)
            return
        if connection.has_more_to_take_up or channel.has_more_to_write:
            self._ready[channel] = None
        interest = channel.wanted_interest
        if interest != channel.interest:
            channel.interest = interest
            self._epoll.modify(channel.fd, interest)

    # What channels ask of their owner.

    def on_work(self, channel: Channel) -> None:
        """Serve the channel in the next turn, which comes at once."""
        self._ready[channel] = None
        if not self._is_in_turn and not self._is_woken:
            self._is_woken = True
            os.eventfd_write(self._wakeup_fd, 1)

    def run_pending(self, channel: Channel, slot: ResponseSlot, pending: Pending) -> None:
        """Run a handler's coroutine in the nursery and hand its result to the connection."""
        self._nursery.start_soon(self._await_pending, channel, slot, pending)

    async def _await_pending(self, channel: Channel, slot: ResponseSlot, pending: Pending) -> None:
        response: Message | None = None
        try:
            response = await self._paced.result_of(slot, pending)
        except* MalformedRequestError as bad:
            error = only_error(bad)
            assert isinstance(error, MalformedRequestError)
            self._on_bad_input(channel, error, self._clock.monotonic_ms())
        # With a star: a bug that comes together with a cancellation is noted, the latter goes on.
        except* Exception as group:
            self.on_fault(channel, only_error(group))
        try:
            channel.connection.on_coroutine_ended(slot, response)
        except Exception as fault:
            self.on_fault(channel, fault)

    def wake_at(self, channel: Channel, deadline_ms: int) -> None:
        """Serve the channel when that time has come."""
        self._next_wake_number += 1
        heapq.heappush(self._wakes, (deadline_ms, self._next_wake_number, channel))
        if self._wakes[0][0] == deadline_ms:
            self._wake_alarm.rearm()

    def _next_wake_ms(self) -> int | None:
        return self._wakes[0][0] if self._wakes else None

    def _on_wakes_due(self, now_ms: int) -> None:
        while self._wakes and self._wakes[0][0] <= now_ms:
            self.on_work(heapq.heappop(self._wakes)[2])

    def read_ahead(self, channel: Channel, piece: FileSlice, position: int, size: int) -> None:
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
            if len(self._channels) >= self._connection_count_max:
                self._watch_doors(False)
                return
            try:
                sock, _ = door.accept()
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
            try:
                self._open(sock, listener, now_ms)
            except OSError:
                # The client has gone already.
                sock.close()

    def _open(self, sock: socket.socket, listener: Listener, now_ms: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer_host, peer_port = sock.getpeername()[:2]
        local_host, local_port = sock.getsockname()[:2]
        self.accepted_count += 1
        peer = Peer(
            connection_id=self.accepted_count,
            listener_name=listener.name,
            peer_host=peer_host.removeprefix(MAPPED_IPV4),
            peer_port=peer_port,
            local_host=local_host.removeprefix(MAPPED_IPV4),
            local_port=local_port,
        )
        transform = None if listener.make_transform is None else listener.make_transform()
        channel = Channel(sock, self, disk=self._disk, transform=transform)
        channel.connection = Connection(
            peer,
            self._dispatcher,
            channel,
            memory=self.memory,
            limits=self._limits,
            now_ms=now_ms,
        )
        self._epoll.register(channel.fd, channel.interest)
        self._channels[channel.fd] = channel

    def bound_connections(self, count_max: int) -> None:
        """Hold this many connections from now on; those above it end when their clients like."""
        self._connection_count_max = min(count_max, self._connection_count_allowed)
        if len(self._channels) < self._connection_count_max:
            self._watch_doors(True)

    def _watch_doors(self, is_watched: bool) -> None:
        """Accept, or leave who knocks in the kernel until a connection closes."""
        if is_watched != self._are_doors_watched:
            self._are_doors_watched = is_watched
            for fd in self._doors:
                self._epoll.modify(fd, select.EPOLLIN if is_watched else 0)

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

    def _close(self, channel: Channel) -> None:
        if self._channels.pop(channel.fd, None) is not channel:
            return
        self._ready.pop(channel, None)
        try:
            # Closing the last descriptor takes it out of the epoll.
            channel.sock.close()
            channel.connection.close()
        except Exception as fault:
            self._errors.note("connection", channel.connection.peer.label, fault)
        self._watch_doors(True)

    def _on_bad_input(self, channel: Channel, error: ProtocolError, now_ms: int) -> None:
        """Close a connection whose peer does not speak Kafka, after what it was told already.

        One that came too early did nothing wrong: nobody needs to read of it.
        """
        if not isinstance(error, NotServedYetError):
            self.closed_for_bad_input_count += 1
            peer = channel.connection.peer
            self._log(
                self._bad_input_lines,
                now_ms,
                f"closed connection {peer.label} on {peer.listener_name}: {error.where}",
            )
        try:
            channel.flush(now_ms)
        except Exception as fault:
            self._note(channel, fault)
        self._close(channel)

    def give_up(self, channel: Channel, reason: str) -> None:
        """Close a connection that holds too much for too long."""
        line = f"closed connection {channel.connection.peer.label}: {reason}"
        self._log(self._bad_input_lines, self._clock.monotonic_ms(), line)
        self._close(channel)

    def on_fault(self, channel: Channel, fault: BaseException) -> None:
        """Close a connection whose request met a bug of ours, or whose socket broke."""
        if not channel.connection.is_closed:
            self._note(channel, fault)
            self._close(channel)

    def _note(self, channel: Channel, fault: BaseException) -> None:
        if isinstance(fault, SliceError):
            self._dispatcher.on_file_error(fault.filename, fault)
        elif not isinstance(fault, OSError) or fault.errno not in NETWORK_ERRNOS:
            self._errors.note("connection", channel.connection.peer.label, fault)

    def _log(self, lines: LogLimiter, now_ms: int, line: str) -> None:
        suppressed_count = lines.admit(now_ms)
        if suppressed_count is None:
            return
        if suppressed_count:
            line += f" ({suppressed_count} such lines were left out before)"
        logger.warning(line)

    async def _close_idle_connections(self) -> None:
        """Close who has been silent for too long; wakes when the next one may have been."""
        if self._idle_ms_max < 0:
            return
        granularity_ms = max(self._idle_ms_max // IDLE_CHECKS_PER_PERIOD, 1)
        while True:
            now_ms = self._clock.monotonic_ms()
            longest_idle_ms = 0
            for channel in list(self._channels.values()):
                idle_ms = now_ms - channel.connection.last_active_ms
                if idle_ms >= self._idle_ms_max:
                    self.closed_for_idleness_count += 1
                    self._close(channel)
                else:
                    longest_idle_ms = max(longest_idle_ms, idle_ms)
            sleep_ms = max(self._idle_ms_max - longest_idle_ms, granularity_ms)
            await trio.sleep(sleep_ms / 1000)


@asynccontextmanager
async def open_socket_server(
    listeners: Sequence[Listener],
    dispatcher: Dispatcher,
    *,
    clock: Clock,
    disk: Disk,
    limits: ConnectionLimits | None = None,
    request_memory_bytes_max: int = REQUEST_MEMORY_BYTES_MAX,
    idle_ms_max: int = 600_000,
    connection_count_max: int = INT32_MAX,
    backlog: int = 50,
) -> AsyncIterator[SocketServer]:
    """Listen and serve for as long as the block runs.

    A listener that cannot be opened raises OSError.
    """
    if request_memory_bytes_max < 0:
        request_memory_bytes_max = REQUEST_MEMORY_BYTES_MAX
    async with trio.open_nursery() as nursery:
        server = SocketServer(
            dispatcher,
            clock=clock,
            disk=disk,
            limits=limits or ConnectionLimits(),
            memory=RequestMemory(request_memory_bytes_max),
            idle_ms_max=idle_ms_max,
            connection_count_max=connection_count_max,
            nursery=nursery,
        )
        try:
            for listener in listeners:
                server.listen(listener, backlog)
            async with trio.open_nursery() as loop:
                loop.start_soon(server.run)
                yield server
                loop.cancel_scope.cancel()
            nursery.cancel_scope.cancel()
        finally:
            # After the loop, which waits on the epoll, has ended.
            server.close()
