"""A door of the broker: where it listens, and how its bytes are wrapped.

Pure.  A listener is a pair of byte transforms, made again for every connection: what arrived →
plain bytes, and plain bytes → what is sent.  A plain listener has none, and only there may file
slices go out by sendfile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Transform(Protocol):
    """Wraps and unwraps the bytes of one connection (TLS, say); holds its own state."""

    def received(self, data: memoryview) -> bytes:
        """Return the plain bytes in what arrived; ProtocolError when it does not unwrap."""
        ...

    def sending(self, data: bytes | bytearray | memoryview) -> bytes:
        """Return the bytes to send for plain bytes."""
        ...

    def unasked(self) -> bytes:
        """Return bytes the transform itself has to send, such as its part of a handshake."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address to listen on.  `port` 0 lets the system choose."""

    name: str
    host: str
    port: int
    make_transform: Callable[[], Transform] | None = None
