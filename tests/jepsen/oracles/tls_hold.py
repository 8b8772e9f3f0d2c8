"""The loop-hold oracle at the level of TLS records, over every kind of listener with TLS.

A client sends the records of `tls_records.FLOODS` to a listener in the caller's trio loop, from a
thread, as fast as the listener takes them.  Violations: the loop was held for longer than
`HOLD_MS_MAX` of CPU time; a flood without data was not ended; a flood with data was; a bystander on
another connection was not answered.
"""

import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ottla.bench.floods.tls_records import FLOODS, HANDSHAKE_FLOODS, RecordClient
from ottla.model.limits import KIB, MIB
from tests.jepsen.oracles.loop_cost import LoopWatch

HOLD_MS_MAX = 20
"""CPU time that one flood may hold the loop for between two of its turns."""

RECORD_COUNT = 30_000
"""Records of one flood.  OpenSSL needs 0.6 s for as many KeyUpdates."""

PATIENCE_S = 60.0
QUIET_S = 0.5
READ_BYTES = MIB
SEND_BYTES = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsTarget:
    """One listener under test."""

    name: str
    address: tuple[str, int]
    new_context: Callable[[], ssl.SSLContext]
    """Makes the context of one client."""
    host: str
    """The name in the server's certificate."""
    request: bytes
    """Request that a client may repeat on one connection."""
    ask: Callable[[], None]
    """Has a bystander ask, and wait for its answer; raises when there is none."""
    serves_repeats: bool = True
    """True if the request may be asked again; before a login, most may be asked once."""
    watch: LoopWatch | None
    """The loop that serves it; None where another program's threads do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FloodCost:
    """Outcome of one flood."""

    name: str
    is_ended: bool
    must_end: bool | None
    """None where either is right."""
    hold_ms: float
    holder: str

    @property
    def violation(self) -> str | None:
        """The broken bound, or None."""
        if self.hold_ms > HOLD_MS_MAX:
            return f"{self.name}: the loop was held for {self.hold_ms:.0f} ms by {self.holder}"
        if self.must_end is not None and self.is_ended != self.must_end:
            return f"{self.name}: the connection was {'ended' if self.is_ended else 'kept'}"
        return None


def costs_of(
    target: TlsTarget,
    folder: Path,
    *,
    record_count: int = RECORD_COUNT,
    patience_s: float = PATIENCE_S,
) -> Iterator[FloodCost]:
    """Send every flood to a listener; yield the cost of each. Run it in a thread.

    A server has `patience_s` to end a connection that it must end.
    """
    for flood in FLOODS:
        for version in flood.versions:
            context = target.new_context()
            context.minimum_version = context.maximum_version = version
            client = RecordClient(context, target.host, folder)
            with socket.create_connection(target.address, timeout=PATIENCE_S) as sock:
                client.shake_hands(exchange_over(sock))
                made = flood.make(client.keys, target.request, record_count)
                data = client.last_handshake_bytes() + b"".join(made)
                name = f"{target.name}, {flood.name} in {version.name}"
                wait_s = patience_s if flood.is_ended else QUIET_S
                must_end = flood.is_ended or (False if target.serves_repeats else None)
                yield _cost(target, sock, name, data, wait_s, must_end=must_end)
    hello = hello_of(target, folder)
    for name, make in HANDSHAKE_FLOODS.items():
        with socket.create_connection(target.address, timeout=PATIENCE_S) as sock:
            data = b"".join(make(hello, record_count))
            name = f"{target.name}, {name}"
            yield _cost(target, sock, name, data, patience_s, must_end=True)


def exchange_over(sock: socket.socket) -> Callable[[bytes], bytes]:
    """Return what sends bytes over a socket, and returns the next that arrive."""

    def exchange(data: bytes) -> bytes:
        sock.sendall(data)
        return sock.recv(READ_BYTES)

    return exchange


def hello_of(target: TlsTarget, folder: Path) -> bytes:
    """Return the first message of a handshake."""
    said: list[bytes] = []

    def exchange(data: bytes) -> bytes:
        said.append(data)
        return b""

    with suppress(ConnectionResetError):
        RecordClient(target.new_context(), target.host, folder).shake_hands(exchange)
    return said[0]


def _cost(
    target: TlsTarget,
    sock: socket.socket,
    name: str,
    data: bytes,
    wait_s: float,
    *,
    must_end: bool | None,
) -> FloodCost:
    """Send bytes as fast as the listener accepts them, and measure the loop at the same time."""
    target.ask()
    if target.watch is not None:
        target.watch.reset()
    is_ended = False
    try:
        _send(sock, memoryview(data))
        is_ended = _is_at_end(sock, wait_s)
    except (ConnectionError, TimeoutError) as error:
        is_ended = isinstance(error, ConnectionError)
    target.ask()
    watch = target.watch
    return FloodCost(
        name=name,
        is_ended=is_ended,
        must_end=must_end,
        hold_ms=0.0 if watch is None else watch.hold_ns / 1e6,
        holder="" if watch is None else watch.holder,
    )


def _send(sock: socket.socket, data: memoryview) -> None:
    """Send everything, reading responses at the same time."""
    sock.setblocking(False)
    poll = select.poll()
    poll.register(sock, select.POLLIN | select.POLLOUT)
    while data:
        for _, events in poll.poll(PATIENCE_S * 1_000):
            if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                if not sock.recv(READ_BYTES):
                    raise ConnectionResetError("the server has ended the connection")
            elif events & select.POLLOUT:
                data = data[sock.send(data[:SEND_BYTES]) :]


def _is_at_end(sock: socket.socket, wait_s: float) -> bool:
    """Read on for some time; return whether the server has ended the connection."""
    sock.settimeout(wait_s)
    try:
        while sock.recv(READ_BYTES):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True
