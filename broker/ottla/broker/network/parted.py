"""What stands for the host of a closed connection, and for the holder of its share.  Pure.

With these nothing leads from a closed connection back to its channel and socket: their memory, and
that of OpenSSL, is free with the last reference.  Else it is garbage until a collection, and one
that walks thousands of connections holds the loop for tens of milliseconds.
"""

from collections.abc import Coroutine, Generator


class PartedHost:
    """Does nothing for a connection that has closed."""

    def on_work(self, connection: object) -> None:
        """Do nothing: it has no output."""

    def run(self, connection: object, slot: object, pending: object) -> None:
        """End the work: its answer could not be sent."""
        if isinstance(pending, Coroutine | Generator):
            pending.close()

    def on_fault(self, connection: object, fault: Exception) -> None:
        """Do nothing: it is closed."""

    def give_up(self, connection: object, reason: str) -> None:
        """Do nothing: it is closed."""

    def wake_at(self, connection: object, deadline_ms: int) -> None:
        """Do nothing: it takes up nothing."""


class PartedHolder:
    """Stands for a connection that has closed, in the share that its coroutines still hold."""

    unfinished_frame_bytes = 0
    wants_bytes = False

    def on_memory_available(self) -> None:
        """Do nothing: it takes up nothing."""

    def give_up(self, reason: str) -> None:
        """Do nothing: it is closed."""


PARTED_HOST, PARTED_HOLDER = PartedHost(), PartedHolder()
