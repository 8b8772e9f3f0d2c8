"""A door of the broker: where it listens, and whether its connections are encrypted.

Pure.  A plain listener has no TLS, and only there may file slices go out by sendfile.  What an
encrypted one needs is made at the edge (`tls/`); a transport asks it for the
context of each new connection, so that certificates may change while the door stays open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.model.errors import ProtocolError


class HandshakeFailedError(ProtocolError):
    """A client that came to no encrypted connection; `where` says why, and what to do."""


@dataclass(slots=True)
class HandshakeCounts:
    """How the handshakes of one listener went."""

    successes: int = 0
    failures: int = 0


class ListenerTls(Protocol):
    """TLS of one listener."""

    counts: HandshakeCounts
    failure_delay_ms: int
    """How long the connection of a failed handshake is kept, so that its client reads why."""

    @property
    def context(self) -> Any:
        """The `ssl.SSLContext` of a connection that begins now."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Plain counts, and when the certificate expires."""
        ...

    def user_of(self, certificate: bytes | None) -> str:
        """Return the user that a client's certificate (DER) stands for.

        Raises HandshakeFailedError where no rule maps it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address to listen on.  `port` 0 lets the system choose."""

    name: str
    host: str
    port: int
    tls: ListenerTls | None = None
