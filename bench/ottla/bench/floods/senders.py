"""Senders that flood a server: with TLS KeyUpdate messages, with tiny TLS records, with unfinished
frames on many connections, or with idle connections. Each sender runs in a separate process until
the process is killed."""

import resource
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path

from ottla.bench.floods.tls_records import RecordClient, WriteKeys, new_keys, tiny_records
from ottla.model.limits import KIB, MIB

Address = tuple[str, int]
ENDLESS = 1 << 40
RECORDS_PER_CHUNK = 20_000
"""Number of TLS records of a flood that are prepared before they are sent. It is large enough that
the sender is faster than the server."""
CONNECT_S = 30.0

STRANGERS = 700
UNFINISHED_BYTES = 400 * KIB
ANNOUNCED_BYTES = 500 * KIB
"""Size in bytes that an unfinished frame of a flood announces. It is below
`sasl.server.max.receive.size`."""
IDLE_COUNT = 2_000
PEEK_MS = 50


def send_new_keys(address: Address, ca: Path, request: bytes) -> None:
    """Flood a server with TLS KeyUpdate messages. Reconnects whenever the server closes the
    connection."""
    _send_records(address, ca, lambda keys: new_keys(keys, request, ENDLESS))


def send_tiny_records(address: Address, ca: Path, request: bytes) -> None:
    """Send a request repeatedly, split into TLS records of one byte each."""
    _send_records(address, ca, lambda keys: tiny_records(keys, request, ENDLESS))


def _send_records(address: Address, ca: Path, make: Callable[[WriteKeys], Iterator[bytes]]) -> None:
    while True:
        context = ssl.create_default_context(cafile=str(ca))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        client = RecordClient(context, address[0], ca.parent)
        with suppress(OSError), socket.create_connection(address, CONNECT_S) as sock:
            client.shake_hands(partial(_exchanged, sock))
            sock.sendall(client.last_handshake_bytes())
            made = make(client.keys)
            while True:
                _send_all(sock, memoryview(b"".join(islice(made, RECORDS_PER_CHUNK))))


def _exchanged(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return sock.recv(MIB)


def _send_all(sock: socket.socket, data: memoryview) -> None:
    """Send all data of a flood, and read the server's output concurrently. Raises OSError if the
    connection is closed."""
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)
    while data:
        ((_, events),) = poll.poll()
        if events & ~select.POLLOUT and not sock.recv(MIB):
            raise ConnectionResetError
        if events & select.POLLOUT:
            data = data[sock.send(data[: 64 * KIB]) :]


def send_unfinished_frames(address: Address, ca: Path, request: bytes) -> None:
    """Send most of a frame on each of many connections to a server. Replace connections that the
    server closes."""
    _raise_descriptors()
    start = struct.pack(">i", ANNOUNCED_BYTES) + bytes(UNFINISHED_BYTES)
    left: dict[int, tuple[socket.socket, memoryview]] = {}
    poll = select.poll()
    while True:
        while len(left) < STRANGERS:
            sock = socket.create_connection(address, CONNECT_S)
            sock.setblocking(False)
            left[sock.fileno()] = (sock, memoryview(start))
            poll.register(sock, select.POLLIN | select.POLLOUT)
        for fd, events in poll.poll(PEEK_MS):
            sock, data = left[fd]
            try:
                if events & ~select.POLLOUT and not sock.recv(KIB):
                    raise ConnectionResetError
                if events & select.POLLOUT:
                    data = data[sock.send(data) :]
                    left[fd] = (sock, data)
                    if not data:
                        poll.modify(fd, select.POLLIN)
            except BlockingIOError:
                pass
            except OSError:
                poll.unregister(fd)
                del left[fd]
                sock.close()


def hold_idle_connections(address: Address, ca: Path, request: bytes) -> None:
    """Keep silent connections to a server open. Reconnects whenever the server closes one."""
    _raise_descriptors()
    held: dict[int, socket.socket] = {}
    poll = select.poll()
    while True:
        with suppress(OSError):
            while len(held) < IDLE_COUNT:
                sock = socket.create_connection(address, CONNECT_S)
                held[sock.fileno()] = sock
                poll.register(sock, select.POLLIN)
        for fd, _ in poll.poll(PEEK_MS):
            poll.unregister(fd)
            held.pop(fd).close()


def _raise_descriptors() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
