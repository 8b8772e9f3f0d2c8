"""How connections are made: by TCP, unless whoever runs a task says otherwise.

`TRANSPORT` belongs to the task, as trio's context variables do, and to all tasks it starts: so that
every client and every follower of a simulated machine meets that machine's own network, and no
constructor has to hand it on.
"""

from contextvars import ContextVar

import trio

from ottla.model.seams import Transport

NEXT_ADDRESS_AFTER_S = 0.1
"""A name's first address that has not answered by then may hang; the next is tried beside it."""


class TcpStream:
    """A TCP connection; satisfies the seam `ByteStream`."""

    __slots__ = ("aclose", "receive_into", "receive_some", "send_all", "socket")

    def __init__(self, stream: trio.SocketStream) -> None:
        self.socket = stream.socket
        # Not wrapped in functions of our own: each would cost every call one await more.
        self.send_all = stream.send_all
        self.receive_some = stream.receive_some
        self.receive_into = stream.socket.recv_into
        self.aclose = stream.aclose

    def abort(self) -> None:
        """Close at once."""
        self.socket.close()


class TcpTransport:
    """The kernel's network; satisfies the seam `Transport`."""

    async def connect(self, host: str, port: int) -> TcpStream:
        """Connect to whichever address of the host answers first."""
        return TcpStream(
            await trio.open_tcp_stream(host, port, happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S)
        )


TCP = TcpTransport()

TRANSPORT: ContextVar[Transport] = ContextVar("transport", default=TCP)
"""What this task's connections are made by."""
