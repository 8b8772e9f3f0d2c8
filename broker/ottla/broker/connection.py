"""One client's connection, without its socket: bytes in, requests taken up in order, chunks out.

Sans-I/O: the epoll driver and the simulated world drive the same object.
"""

from ottla.broker.dispatch import Dispatcher, Peer
from ottla.wire.codec_types import Chunk


class Connection:
    """Parses frames, takes requests up, keeps answers in order, and bounds what it holds."""

    def __init__(self, peer: Peer, dispatcher: Dispatcher) -> None:
        self.peer = peer
        self._dispatcher = dispatcher

    def on_bytes(self, data: memoryview, now_ms: int) -> None:
        """Take bytes that arrived; ProtocolError when they are not Kafka's protocol."""
        raise NotImplementedError

    def pending_output(self) -> list[Chunk]:
        """Return the chunks that may be sent now, in order."""
        raise NotImplementedError
