"""Stand-ins for the server and the memory holder of a closed connection. Pure.

With these stand-ins, a closed connection has no reference to its channel and socket. The memory of
the channel, the socket and OpenSSL is freed with the last reference. Without them, only a garbage
collection would free this memory. A collection that visits thousands of connections blocks the
event loop for tens of milliseconds.
"""

from collections.abc import Coroutine, Generator


class ClosedHost:
    """Replacement for the server of a closed connection, which does nothing. The closed connection
    therefore keeps no reference to its socket."""

    def on_work(self, connection: object) -> None:
        """Do nothing: a closed connection has no output."""

    def run(self, connection: object, slot: object, pending: object) -> None:
        """Close the pending work of a request handler, whose response could not be sent."""
        if isinstance(pending, Coroutine | Generator):
            pending.close()

    def on_fault(self, connection: object, fault: Exception) -> None:
        """Do nothing: the connection is closed already."""

    def give_up(self, connection: object, reason: str) -> None:
        """Do nothing: the connection is closed already."""

    def wake_at(self, connection: object, deadline_ms: int) -> None:
        """Do nothing: a closed connection serves no request."""


class ClosedMemoryHolder:
    """Stand-in for a closed connection as the holder of its request memory. The connection's
    coroutines still use this memory."""

    unfinished_frame_bytes = 0
    wants_bytes = False

    def on_memory_available(self) -> None:
        """Do nothing: a closed connection serves no request."""

    def give_up(self, reason: str) -> None:
        """Do nothing: the connection is closed already."""


CLOSED_HOST, CLOSED_MEMORY_HOLDER = ClosedHost(), ClosedMemoryHolder()
