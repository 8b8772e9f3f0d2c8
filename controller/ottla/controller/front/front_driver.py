"""Socket server of a controller that accepts gRPC of nodes and Kafka's protocol at one port.

Nodes of older releases expect gRPC at the controller's port, and Kafka's clients expect Kafka's
protocol there. This server (the front) accepts every connection and examines its first bytes
without consuming them. A client's connection is then served as by a broker. The bytes of a node's
connection are copied unread to gRPC's own server, which listens on a Unix socket of this process.
TLS is therefore between the node and gRPC. The bytes are copied in the epoll of the socket server,
without a task.

Limits:
- A peer must send its first bytes within five seconds.
- The numbers of connections without first bytes, and of connections of nodes, are limited;
  addresses share the allowed numbers fairly (`fair_places`).
- A connection is closed ten seconds after one of its directions has ended.
- Silent nodes are detected by gRPC's keepalive.
"""

import logging
import resource
import secrets
import select
import socket
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ottla.controller.front.fair_places import FairPlaces
from ottla.controller.front.first_bytes import HELLO_BYTES_MAX, FirstProtocol, protocol_of
from ottla.controller.front.spliced_connection import READ_BYTES_MAX, SplicedConnection
from ottla.model.log_events import event
from ottla.node.network.listener import Listener
from ottla.node.network.server.hosting import NETWORK_ERRNOS
from ottla.node.network.server.server_driver import SocketServer
from ottla.rpc.caller import host_of
from ottla.rpc.rpc_driver import CONNECTIONS_MAX, HANDSHAKE_MS_MAX

FIRST_BYTES_MS_MAX = HANDSHAKE_MS_MAX
"""Maximum milliseconds within which a peer must send the first bytes of a connection."""

ENDING_MS_MAX = 10_000
"""Maximum milliseconds for which a node's connection may be half closed."""

NEWCOMERS_MAX = 4_096
"""Maximum number of open connections whose peers have not sent their first bytes. With a smaller
number, many nodes that restart at once would displace each other's connections."""

CLOSED_AT_ONCE_MAX = 256
"""Maximum number of connections without timely first bytes that are closed in one pass, which takes
some 5 ms."""

PAUSE_MS = 20
"""Pause in ms between accepting connections while the maximum number of connections without first
bytes is open. With this pause, peers that send nothing, and reconnect after each disconnection,
cost a tenth of the event loop."""

KAFKA_SHARE, NODE_SHARE, NEWCOMER_SHARE = 4, 8, 16
"""Divisors of the process's file descriptor limit. The quotients are the maximum numbers of
clients' connections, of nodes' connections, and of connections without first bytes. A node's
connection uses three descriptors: two in this server and one in gRPC. The remaining descriptors are
for the metadata log."""

UNIX = "unix-abstract:"
NAME_PREFIX = "ottla-"

_LOGGER = logging.getLogger(__name__)


class NodeHosts:
    """Addresses of connected nodes, by the names under which gRPC's server knows their
    connections."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}

    def add(self, host: str) -> str:
        """Store the address of a node's new connection. Returns an unguessable name for the
        connection."""
        token = NAME_PREFIX + secrets.token_hex(16)
        self._hosts[token] = host
        return token

    def forget(self, token: str) -> None:
        """Delete the address of a node's closed connection. `token` is the connection's name."""
        self._hosts.pop(token, None)

    def host_of(self, peer: str) -> str:
        """Return the address of a node. `peer` is gRPC's description of the node's connection. Any
        thread may call this method."""
        if peer.startswith(UNIX):
            return self._hosts.get(peer.removeprefix(UNIX), "")
        return host_of(peer)


class Newcomer:
    """Accepted connection whose peer has not sent enough bytes to decide on the protocol (gRPC or
    Kafka's)."""

    __slots__ = ("deadline_ms", "host", "listener", "needed_bytes", "protocol", "sock")

    def __init__(self, sock: socket.socket, host: str, listener: Listener, now_ms: int) -> None:
        self.sock = sock
        self.host = host
        self.listener = listener
        self.deadline_ms = now_ms + FIRST_BYTES_MS_MAX
        self.needed_bytes = 1
        self.protocol: FirstProtocol | None = None

    def look(self) -> bool:
        """Examine the bytes received on the connection without consuming them, and set `protocol`
        if the bytes suffice. Returns False if the peer has closed the connection. Raises OSError if
        the connection is broken."""
        try:
            data = self.sock.recv(HELLO_BYTES_MAX, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        found = protocol_of(data, is_encrypted=self.listener.tls is not None)
        if isinstance(found, FirstProtocol):
            if self.needed_bytes > 1:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            self.protocol = found
        elif len(data) < self.needed_bytes:
            # The epoll reports fewer bytes than required only if the peer sends none any longer.
            return False
        else:
            self.needed_bytes = found
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, found)
        return True


class FrontServer(SocketServer):
    """Socket server of a controller. It serves connections of clients, and passes connections of
    other nodes to gRPC."""

    def __init__(
        self,
        *arguments: Any,
        grpc_names: Mapping[str, str],
        node_hosts: NodeHosts,
        **others: Any,
    ) -> None:
        """Create the server. `grpc_names` maps each listener name to the name of the Unix socket of
        gRPC's server."""
        super().__init__(*arguments, **others)
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._admission.count_allowed = max(16, limit // KAFKA_SHARE)
        self._grpc_names = grpc_names
        self._node_hosts = node_hosts
        self._newcomers: FairPlaces[Newcomer] = FairPlaces(
            max(16, min(NEWCOMERS_MAX, limit // NEWCOMER_SHARE)), is_oldest_replaced=True
        )
        self._nodes: FairPlaces[SplicedConnection] = FairPlaces(
            max(16, min(CONNECTIONS_MAX, limit // NODE_SHARE)), is_oldest_replaced=False
        )
        self._waiting: dict[int, Newcomer] = {}
        """Connections that have not sent their first bytes, by file descriptor, the oldest
        first."""
        self._is_watched = False
        """True if a check of the deadlines for the first bytes of connections is scheduled."""
        self._arrived: deque[Newcomer] = deque()
        """Connections whose protocol is known from their first bytes, until they are passed to gRPC
        or to the service of Kafka's clients."""
        self._spliced: dict[int, tuple[SplicedConnection, socket.socket]] = {}
        """Connections of nodes by both of their file descriptors, each with the socket of the file
        descriptor."""
        self._interests: dict[int, int] = {}
        self._space = memoryview(bytearray(READ_BYTES_MAX))
        self.replaced_count = 0
        """Number of connections that were closed because their maximum number was reached."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return the counters of the server's connections, including the numbers of node
        connections, of connections whose protocol is not known yet, and of replaced connections."""
        return {
            **super().metrics,
            "network.connections.nodes": len(self._nodes),
            "network.connections.undecided": len(self._newcomers),
            "network.connections.replaced": self.replaced_count,
        }

    def close(self) -> None:
        """Close every socket of this controller's server."""
        for newcomer in [*self._waiting.values(), *self._arrived]:
            newcomer.sock.close()
        for connection, _ in list(self._spliced.values()):
            self._end(connection)
        super().close()

    # Newcomers.

    def _accept_wait_ms(self, listener: Listener, now_ms: int) -> int | None:
        """Return the delay in ms before a connection is accepted, which is always 0. Quotas of
        clients are applied later, when the protocol of the connection is known."""
        return 0

    def _accept(self, server_socket: socket.socket, listener: Listener, now_ms: int) -> None:
        super()._accept(server_socket, listener, now_ms)
        if self._newcomers.is_full:
            self._pause_accepting(server_socket, PAUSE_MS, now_ms)

    def _admit(self, sock: socket.socket, host: str, listener: Listener, now_ms: int) -> None:
        """Start to wait for the first bytes of an accepted connection."""
        sock.setblocking(False)
        newcomer = Newcomer(sock, host, listener, now_ms)
        self._waiting[sock.fileno()] = newcomer
        self._epoll.register(sock.fileno(), select.EPOLLIN)
        replaced = self._newcomers.take(newcomer, host)
        if replaced is not None:
            self.replaced_count += 1
            self._drop(replaced)
        if not self._is_watched:
            self._is_watched = True
            self.call_at(newcomer.deadline_ms, self._end_overdue_newcomers)

    def _end_overdue_newcomers(self) -> None:
        """Close the accepted connections whose first bytes have not arrived in time."""
        now_ms = self._clock.monotonic_ms()
        overdue: list[Newcomer] = []
        for newcomer in self._waiting.values():
            if newcomer.deadline_ms > now_ms or len(overdue) == CLOSED_AT_ONCE_MAX:
                self.call_at(max(newcomer.deadline_ms, now_ms + 1), self._end_overdue_newcomers)
                break
            overdue.append(newcomer)
        else:
            self._is_watched = False
        for newcomer in overdue:
            self._drop(newcomer)

    def _drop(self, newcomer: Newcomer) -> None:
        self._forget_newcomer(newcomer)
        newcomer.sock.close()

    def _forget_newcomer(self, newcomer: Newcomer) -> None:
        del self._waiting[newcomer.sock.fileno()]
        self._newcomers.free(newcomer, newcomer.host)
        self._epoll.unregister(newcomer.sock.fileno())

    def _on_newcomer(self, newcomer: Newcomer) -> None:
        try:
            is_open = newcomer.look()
        except OSError:
            is_open = False
        if not is_open:
            self._drop(newcomer)
        elif newcomer.protocol is not None:
            self._forget_newcomer(newcomer)
            self._arrived.append(newcomer)

    def _serve_events(self, now_ms: int, ends_ns: int) -> None:
        super()._serve_events(now_ms, ends_ns)
        if self._events or not self._arrived:
            return
        # Not earlier: a new socket may get the number of a closed one, which may have events.
        self._welcome(self._arrived.popleft(), now_ms)
        while self._arrived and time.perf_counter_ns() < ends_ns:
            self._welcome(self._arrived.popleft(), now_ms)
        if self._arrived:
            self.call_at(now_ms, self._have_turn)

    def _welcome(self, newcomer: Newcomer, now_ms: int) -> None:
        """Pass a connection with a known protocol to gRPC, or to the service for Kafka's
        clients."""
        sock, host, listener = newcomer.sock, newcomer.host, newcomer.listener
        try:
            if newcomer.protocol is FirstProtocol.GRPC:
                self._splice(sock, host, self._grpc_names[listener.name])
            elif self._admission.wait_ms(listener.name, now_ms) == 0:
                super()._admit(sock, host, listener, now_ms)
            else:
                # Nodes wait behind this client, so that it cannot wait in the kernel's backlog.
                sock.close()
        except Exception as fault:
            sock.close()
            self._note_node_fault(host, fault)

    # Connections of nodes.

    def _splice(self, outer: socket.socket, host: str, grpc_name: str) -> None:
        """Connect a node's accepted connection to gRPC's server. Closes the node's socket if gRPC
        has stopped serving, or if connections arrive faster than gRPC accepts them."""
        outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        inner = socket.socket(socket.AF_UNIX)
        token = self._node_hosts.add(host)
        try:
            inner.setblocking(False)
            inner.bind(f"\0{token}")
            inner.connect(f"\0{grpc_name}")
        except (ConnectionRefusedError, BlockingIOError):
            self._node_hosts.forget(token)
            inner.close()
            outer.close()
            return
        connection = SplicedConnection(outer, inner, host=host, token=token)
        for sock in (outer, inner):
            self._spliced[sock.fileno()] = connection, sock
            self._interests[sock.fileno()] = select.EPOLLIN
            self._epoll.register(sock.fileno(), select.EPOLLIN)
        replaced = self._nodes.take(connection, host)
        if replaced is not None:
            self.replaced_count += 1
            _LOGGER.warning(
                "closed a connection of %s: all places for nodes are taken, most by this address",
                replaced.host,
                extra=event("node.open"),
            )
            self._end(replaced)

    def _on_own_event(self, fd: int, mask: int, now_ms: int) -> None:
        found = self._spliced.get(fd)
        if found is not None:
            self._on_spliced_event(*found, mask, now_ms)
        elif (newcomer := self._waiting.get(fd)) is not None:
            self._on_newcomer(newcomer)
        else:
            super()._on_own_event(fd, mask, now_ms)

    def _on_spliced_event(
        self, connection: SplicedConnection, sock: socket.socket, mask: int, now_ms: int
    ) -> None:
        was_ending = connection.is_ending
        try:
            if not connection.on_event(sock, mask, self._space):
                self._end(connection)
                return
            self._watch_both(connection)
        except Exception as fault:
            self._end(connection)
            self._note_node_fault(connection.host, fault)
            return
        if connection.is_ending and not was_ending:
            self.call_at(now_ms + ENDING_MS_MAX, lambda: self._end(connection))

    def _watch_both(self, connection: SplicedConnection) -> None:
        for stream in (connection.outer, connection.inner):
            fd, wanted = stream.fileno(), connection.interest(stream)
            known = self._interests.get(fd)
            if wanted is None and known is not None:
                del self._interests[fd]
                self._epoll.unregister(fd)
            elif wanted is not None and wanted != known:
                self._interests[fd] = wanted
                self._epoll.modify(fd, wanted)

    def _end(self, connection: SplicedConnection) -> None:
        """Close a node's connection and the connection to gRPC's server that carries its bytes. A
        second call has no effect."""
        fd = connection.outer.fileno()
        if self._spliced.get(fd, (None,))[0] is not connection:
            return
        for stream in (connection.outer, connection.inner):
            fd = stream.fileno()
            del self._spliced[fd]
            if self._interests.pop(fd, None) is not None:
                with suppress(OSError):
                    self._epoll.unregister(fd)
        self._nodes.free(connection, connection.host)
        self._node_hosts.forget(connection.token)
        connection.outer.close()
        connection.inner.close()

    def _note_node_fault(self, host: str, fault: Exception) -> None:
        if not isinstance(fault, OSError) or fault.errno not in NETWORK_ERRNOS:
            self._errors.note("connection", host, fault)
