"""asyncio's transport over a stream of the simulated network."""

import asyncio
import errno
from collections.abc import Iterable
from typing import Any

from ottla.jepsen.world.whole.net.streams import BACKLOG_BYTES_MAX, Stream

READ_BYTES_MAX = 256 * 1024
"""Maximum number of bytes in one call of a protocol's `data_received`, as in asyncio."""
HIGH_WATER_BYTES = 64 * 1024


class StreamTransport(asyncio.Transport):
    """A connection of an asyncio program, over one end of a simulated connection."""

    def __init__(self, loop: Any, stream: Stream, protocol: asyncio.BaseProtocol) -> None:
        super().__init__(
            {
                "peername": (stream.peer.host_name, stream.peer.port),
                "sockname": (stream.host_name, stream.port),
            }
        )
        self._loop = loop
        self._stream = stream
        self._protocol = protocol
        self._unsent = bytearray()
        self._high, self._low = HIGH_WATER_BYTES, HIGH_WATER_BYTES // 4
        self._is_posted = False
        self._is_reading = True
        self._has_paused_writing = False
        self._has_seen_end = False
        self._is_closing = False
        self._is_lost = False
        stream.on_arrival = self._on_arrival
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(self._serve)

    def _on_arrival(self) -> None:
        """Schedule the handling of an event of the stream. The simulated network calls this method
        outside of the program's tasks."""
        if not self._is_posted and not self._is_lost:
            self._is_posted = True
            self._loop.post(self._serve)

    def _serve(self) -> None:
        self._is_posted = False
        if self._is_lost:
            return
        self._flush()
        stream = self._stream
        while self._is_reading and stream.has_bytes and not self._is_closing:
            self._deliver(stream.take(READ_BYTES_MAX))
        if self._is_lost or self._is_closing or stream.has_bytes:
            return
        if stream.is_broken:
            error = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._lose(error)
        elif stream.has_ended and not self._has_seen_end and self._is_reading:
            self._has_seen_end = True
            protocol = self._protocol
            assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not protocol.eof_received():
                self.close()

    def _deliver(self, data: bytes) -> None:
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest:
            room = memoryview(protocol.get_buffer(len(rest))).cast("B")
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]

    # ---- reading

    def is_reading(self) -> bool:
        """Return whether received bytes are passed to the protocol."""
        return self._is_reading and not self._is_closing

    def pause_reading(self) -> None:
        """Stop passing received bytes to the protocol."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Continue to pass received bytes to the protocol."""
        if not self._is_reading:
            self._is_reading = True
            self._on_arrival()

    # ---- writing

    def write(self, data: Any) -> None:
        """Send bytes, or keep them while the peer does not read. Ignored after `close`."""
        if self._is_closing or self._is_lost or not data:
            return
        self._unsent += data
        self._flush()
        if len(self._unsent) > self._high and not self._has_paused_writing:
            self._has_paused_writing = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send several blocks of bytes."""
        self.write(b"".join(list_of_data))

    def _flush(self) -> None:
        stream = self._stream
        if self._unsent and not stream.is_broken and stream.backlog_bytes < BACKLOG_BYTES_MAX:
            data = bytes(self._unsent)
            self._unsent.clear()
            stream.send_now(data)
        if self._has_paused_writing and len(self._unsent) <= self._low:
            self._has_paused_writing = False
            self._protocol.resume_writing()
        if self._is_closing and not self._unsent:
            self._lose(None)

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that wait to be sent."""
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the low and high limits of unsent bytes."""
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of unsent bytes at which writing is resumed and paused."""
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low

    def can_write_eof(self) -> bool:
        """Return False: simulated connections are closed in both directions at once."""
        return False

    def write_eof(self) -> None:
        """Raise an error, because simulated connections are closed in both directions at once."""
        raise NotImplementedError

    # ---- closing

    def is_closing(self) -> bool:
        """Return whether the connection is closing or lost."""
        return self._is_closing or self._is_lost

    def close(self) -> None:
        """Close the connection after all bytes are sent."""
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        if not self._unsent or self._stream.is_broken:
            self._lose(None)

    def abort(self) -> None:
        """Close the connection at once. Unsent bytes are lost."""
        self._unsent.clear()
        self._stream.abort()
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._stream.on_arrival = None
        self._stream.close_now()
        self._loop.call_soon(self._protocol.connection_lost, error)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that receives the bytes."""
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the protocol that receives the bytes."""
        self._protocol = protocol
