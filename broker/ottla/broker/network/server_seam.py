"""The seam through which clients come in: whoever accepts them, and drives their connections.

Exactly two implementations exist: `SocketServer` (server_driver.py), one epoll for all sockets, and
the deterministic world's over byte streams in memory.  Both are transports of the one host of
connections (hosting.py); what they promise together is
`ottla.jepsen.world.transport_conformance`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ottla.broker.network.connection_limits import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.network.listener import Listener
from ottla.model.limits import INT32_MAX
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk


class Admission(Protocol):
    """Which connections are accepted, which wait, and which are closed; see `broker/quotas`."""

    count_allowed: int
    """Connections for which the process has descriptors."""
    protected_listener: str | None
    """The listener whose connections others give way to."""

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """Return for how long a listener accepts none; None: until there is room."""
        ...

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        """Count a connection; return None to serve it, or after how many ms to close it."""
        ...

    @property
    def has_excess(self) -> bool:
        """Whether a connection has to give way to one of the protected listener."""
        ...

    def on_closed(self, listener: str, host: str) -> None:
        """Forget a connection that was served."""
        ...


class AdmitAll:
    """Admits as many connections as there are descriptors for."""

    def __init__(self) -> None:
        self.count_allowed = INT32_MAX
        self.protected_listener: str | None = None
        self._count = 0

    def wait_ms(self, listener: str, now_ms: int) -> int | None:
        """Return 0 while there are descriptors, else None."""
        return 0 if self._count < self.count_allowed else None

    def admit(self, listener: str, host: str, now_ms: int) -> int | None:
        """Count a connection, and return None."""
        self._count += 1
        return None

    @property
    def has_excess(self) -> bool:
        """Return False: no listener is protected."""
        return False

    def on_closed(self, listener: str, host: str) -> None:
        """Forget a connection that was served."""
        self._count -= 1


class Server(Protocol):
    """Serves clients for as long as the block that opened it runs."""

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Return where it listens, by the listeners' names."""
        ...

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return plain counts, for DescribeNode."""
        ...

    def reconsider_doors(self) -> None:
        """Accept where the admission's bounds, which have changed, allow it now."""
        ...


class OpenServer(Protocol):
    """Opens a server; a listener that cannot be opened raises OSError."""

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
        """Listen and serve for as long as the block runs."""
        ...
