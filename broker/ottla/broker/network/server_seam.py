"""The seam through which clients come in: whoever accepts them, and drives their connections.

Exactly two implementations exist: `SocketServer` (server_driver.py), one epoll for all sockets, and
the deterministic world's over byte streams in memory.  Both are transports of the one host of
connections (hosting.py); what they promise together is
`ottla.jepsen.world.transport_conformance`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from ottla.broker.network.connection import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.network.listener import Listener
from ottla.model.seams import Clock
from ottla.storage.disk_seam import Disk


class Server(Protocol):
    """Serves clients for as long as the block that opened it runs."""

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Return where it listens, by the listeners' names."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return plain counts, for DescribeNode."""
        ...

    def bound_connections(self, count_max: int) -> None:
        """Hold this many connections from now on; those above it end when their clients like."""
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
        connection_count_max: int = ...,
        backlog: int = ...,
    ) -> AbstractAsyncContextManager[Server]:
        """Listen and serve for as long as the block runs."""
        ...
