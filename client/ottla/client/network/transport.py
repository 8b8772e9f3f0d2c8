"""How connections are made: by TCP, unless whoever runs a task says otherwise.

`TRANSPORT` belongs to the task, as trio's context variables do, and to all tasks it starts: so that
every client and every follower of a simulated machine meets that machine's own network, and no
constructor has to hand it on.
"""

import errno
import os
from contextvars import ContextVar

import trio

from ottla.client.network.address_check import check_address
from ottla.model.seams import Transport

CLOSED = "this socket was already closed"
NEXT_ADDRESS_AFTER_S = 0.1
"""A name's first address that has not answered by then may hang; the next is tried beside it."""


class TcpStream:
    """A TCP connection; satisfies the seam `ByteStream`.

    A request costs a turn of the loop less than with trio's own stream, which lets others run
    behind each call and looks for an answer at once, where there is none yet.
    """

    __slots__ = ("_stream", "aclose", "receive_into", "socket")

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        # Not wrapped in functions of our own: each would cost every call one await more.
        self.receive_into = stream.socket.recv_into
        self.aclose = stream.aclose

    async def send_all(self, data: bytes, /) -> None:
        """Send all of it; others run meanwhile only where the kernel does not take it at once."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            count = os.write(self.socket.fileno(), data)
        except BlockingIOError:
            count = 0
        except OSError as error:
            raise _stream_error(error) from error
        if count < len(data):
            await self._stream.send_all(memoryview(data)[count:])

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return what has come, having let others run; empty when the peer has ended."""
        sock = self.socket
        while True:
            number = sock.fileno()
            if number < 0:
                raise trio.ClosedResourceError(CLOSED)
            await trio.lowlevel.wait_readable(number)
            try:
                # Asked again: it may have been closed just now, and the number be another's.
                return os.read(sock.fileno(), max_bytes)
            except BlockingIOError:
                pass
            except OSError as error:
                raise _stream_error(error) from error

    def abort(self) -> None:
        """Close at once."""
        self.socket.close()


def _stream_error(error: OSError) -> Exception:
    if error.errno == errno.EBADF:
        return trio.ClosedResourceError(CLOSED)
    return trio.BrokenResourceError(f"socket connection broken: {error}")


class TcpTransport:
    """The kernel's network; satisfies the seam `Transport`."""

    async def connect(self, host: str, port: int) -> TcpStream:
        """Connect to the address of the host that answers first.

        Raises OSError if there is none, also for a host or port that cannot be one: a broker's
        Metadata may name any.
        """
        check_address(host, port)
        return TcpStream(
            await trio.open_tcp_stream(host, port, happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S)
        )


TCP = TcpTransport()

TRANSPORT: ContextVar[Transport] = ContextVar("transport", default=TCP)
"""What this task's connections are made by."""
