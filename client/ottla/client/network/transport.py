"""Transport of the connections of clients: TCP, unless another transport is set for the task.

The context variable `TRANSPORT` applies to a task and to all tasks that it starts. In a simulation,
all clients and followers on a simulated machine therefore use the network of that machine, without
a transport argument in every constructor.
"""

import errno
import os
from collections.abc import Sequence
from contextvars import ContextVar

import trio

from ottla.client.network.address_check import check_address
from ottla.model.seams import ByteStream, Transport

CLOSED = "this socket was already closed"
CHUNK_COUNT_MAX = 64
"""Maximum number of chunks that one system call sends. Linux accepts 1,024; from some dozens on,
each chunk costs as much as copying it if batches are small."""
NEXT_ADDRESS_AFTER_S = 0.1
"""Seconds after which a client also tries to connect to the next IP address of a host, because the
first address may not respond."""


class TcpStream:
    """A TCP connection. Implements the interface `ByteStream`.

    A request needs one event-loop iteration less than with trio's own stream class, which yields
    after each call and tries to receive before the response can have arrived.
    """

    __slots__ = ("_stream", "aclose", "receive_into", "socket")

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self.socket = stream.socket
        # Assigned and not wrapped in functions, which would cost one more await per call.
        self.receive_into = stream.socket.recv_into
        self.aclose = stream.aclose

    async def send_all(self, data: bytes, /) -> None:
        """Send all data.  Yields only if the kernel does not accept all of it at once."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            count = os.write(self.socket.fileno(), data)
        except BlockingIOError:
            count = 0
        except OSError as error:
            raise _stream_error(error) from error
        if count < len(data):
            await self._stream.send_all(memoryview(data)[count:])

    async def send_chunks(self, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send all chunks, at most `CHUNK_COUNT_MAX`, without joining them. Otherwise the same as
        `send_all`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            count = os.writev(self.socket.fileno(), chunks)
        except BlockingIOError:
            count = 0
        except OSError as error:
            raise _stream_error(error) from error
        for chunk in chunks:
            if count < len(chunk):
                await self._stream.send_all(memoryview(chunk)[count:])
                count = 0
            else:
                count -= len(chunk)

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Yield to other tasks, then wait for at least one byte and return the received bytes.
        Returns b"" if the peer has closed its side."""
        sock = self.socket
        while True:
            number = sock.fileno()
            if number < 0:
                raise trio.ClosedResourceError(CLOSED)
            await trio.lowlevel.wait_readable(number)
            try:
                # The descriptor is read again here: the socket may have been closed meanwhile, and
                # the number reused.
                return os.read(sock.fileno(), max_bytes)
            except BlockingIOError:
                pass
            except OSError as error:
                raise _stream_error(error) from error

    def abort(self) -> None:
        """Close the connection at once."""
        self.socket.close()


async def send_chunks(stream: ByteStream, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
    """Send all chunks to a peer. A TCP connection takes a few large chunks without joining them."""
    if isinstance(stream, TcpStream) and len(chunks) <= CHUNK_COUNT_MAX:
        await stream.send_chunks(chunks)
    else:
        await stream.send_all(b"".join(chunks))


def _stream_error(error: OSError) -> Exception:
    if error.errno == errno.EBADF:
        return trio.ClosedResourceError(CLOSED)
    return trio.BrokenResourceError(f"socket connection broken: {error}")


class TcpTransport:
    """The transport over the kernel's TCP. Implements the interface `Transport`."""

    async def connect(self, host: str, port: int) -> TcpStream:
        """Open and return a connection to `host`, through the first of its IP addresses that
        responds.

        Raises OSError if no address responds, or if the host or port is malformed. A broker's
        Metadata response may contain malformed addresses.
        """
        check_address(host, port)
        return TcpStream(
            await trio.open_tcp_stream(host, port, happy_eyeballs_delay=NEXT_ADDRESS_AFTER_S)
        )


TCP = TcpTransport()

TRANSPORT: ContextVar[Transport] = ContextVar("transport", default=TCP)
"""Transport that opens the connections of the current task."""
