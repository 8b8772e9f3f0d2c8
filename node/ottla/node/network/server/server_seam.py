"""Interface of the socket server, which accepts clients and drives their connections.

Exactly two implementations exist. `SocketServer` (server_driver.py) uses one epoll for all sockets.
The server of the simulation uses byte streams in memory. Both are transports for `hosting.py`.
Their common contract is `tests.jepsen.world.transport_conformance`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ottla.model.limits import INT32_MAX
from ottla.model.seams import Clock
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.listener import Listener
from ottla.storage.disk.disk_seam import Disk


class Admission(Protocol):
    """Interface of limits that decide whether new connections are accepted, wait, or are closed;
    see `node/quotas`."""

    count_allowed: int
    """Maximum number of connections for which the process has file descriptors."""
    protected_listener: str | None
    """Name of the listener for which connections of other listeners are closed if there are too
    many, or None."""

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """Return the milliseconds for which a listener must accept no connection. Returns None if
        the listener must wait until another connection has closed."""
        ...

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        """Decide whether to serve an accepted connection. Returns None if the connection is served,
        and counts it. Otherwise returns the milliseconds after which to close the connection."""
        ...

    @property
    def has_excess(self) -> bool:
        """True if an open connection must be closed in favour of the protected listener."""
        ...

    def on_closed(self, listener: str, host: str) -> None:
        """Stop counting a connection that was served and has closed."""
        ...


class AdmitAll:
    """Limits on new connections that consist only of the number of free file descriptors."""

    def __init__(self) -> None:
        self.count_allowed = INT32_MAX
        self.protected_listener: str | None = None
        self._count = 0

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """Return 0 milliseconds (accept now) while fewer than `count_allowed` connections are open.
        Returns None otherwise: the listener must wait until another connection has closed."""
        return 0 if self._count < self.count_allowed else None

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        """Count an accepted connection. Returns None, which means that the connection is served."""
        self._count += 1
        return None

    @property
    def has_excess(self) -> bool:
        """Always False: no open connection must be closed, since no listener is protected."""
        return False

    def on_closed(self, listener: str, host: str) -> None:
        """Stop counting a connection that was served and has closed."""
        self._count -= 1


class Server(Protocol):
    """Socket server for clients, which runs while the block of `OpenServer` runs."""

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Addresses to which the server's listeners are bound, by listener name."""
        ...

    @property
    def connection_count(self) -> int:
        """Number of open client connections of the server."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return the counters of connections that DescribeNode reports."""
        ...

    def resume_accepting(self) -> None:
        """Resume accepting connections on the listeners whose changed limits allow it now."""
        ...


class OpenServer(Protocol):
    """Interface of a function that opens a socket server. Raises OSError if a listener cannot be
    opened."""

    def __call__(
        self,
        listeners: Sequence[Listener],
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        disk: Disk,
        limits: ConnectionLimits | None = None,
        request_memory_bytes_max: int = ...,
        idle_ms_max: int = ...,
        admission: Admission | None = None,
        backlog: int = ...,
    ) -> AbstractAsyncContextManager[Server]:
        """Return a context manager that opens the listeners and serves clients while its block
        runs."""
        ...
