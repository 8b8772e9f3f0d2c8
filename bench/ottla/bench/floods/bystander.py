"""Client that sends requests steadily on one connection during a flood, and records the latency of
each."""

import socket
import ssl
import time
from dataclasses import dataclass, field
from pathlib import Path

ANSWER_S_MAX = 120.0


@dataclass(slots=True)
class BystanderLatencies:
    """Latencies, in seconds, of the requests of one bystander (a client that sends requests
    steadily during a flood)."""

    seconds: list[float] = field(default_factory=list)

    def quantile_ms(self, part: float) -> float:
        """Return a quantile of the recorded latencies, in ms. If `part` is 1, return the longest
        latency."""
        ordered = sorted(self.seconds)
        return ordered[min(int(part * len(ordered)), len(ordered) - 1)] * 1_000


def connected(address: tuple[str, int], ca: Path | None) -> socket.socket:
    """Connect to a server under a flood, and return the socket. The connection uses TLS if `ca` is
    the path of a CA file."""
    sock = socket.create_connection(address, timeout=ANSWER_S_MAX)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if ca is None:
        return sock
    context = ssl.create_default_context(cafile=str(ca))
    return context.wrap_socket(sock, server_hostname=address[0])


def ask_for(
    sock: socket.socket, frame: bytes, before: tuple[bytes, ...], seconds: float, pause_s: float
) -> BystanderLatencies:
    """Send the frames in `before` once, then the frame `frame` repeatedly for some seconds. Returns
    the latencies of the repeated requests."""
    for one in before:
        exchange(sock, one)
    waits = BystanderLatencies()
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        began = time.monotonic()
        exchange(sock, frame)
        waits.seconds.append(time.monotonic() - began)
        time.sleep(pause_s)
    return waits


def exchange(sock: socket.socket, frame: bytes) -> bytes:
    """Send a request's frame and return the response. Raises OSError if no response arrives."""
    sock.sendall(frame)
    length = int.from_bytes(_received(sock, 4), "big")
    return _received(sock, length)


def _received(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the server has ended the connection")
        data += part
    return bytes(data)
