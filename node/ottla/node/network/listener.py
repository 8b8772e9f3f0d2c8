"""Listener of a node: its address, and its TLS if connections are encrypted.

Pure. A plain listener has no TLS. File slices are sent with sendfile only on its connections. The
TLS objects of an encrypted listener are created in `tls/`. The transport requests a context for
each new connection, so that certificates may change while the listener is open.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.model.errors import ProtocolError


class HandshakeFailedError(ProtocolError):
    """Raised if a client's TLS handshake fails. `where` is a text with the reason and the
    remedy."""


@dataclass(slots=True)
class HandshakeCounts:
    """Numbers of TLS handshakes on one listener, by outcome."""

    successes: int = 0
    failures: int = 0


class ListenerTls(Protocol):
    """TLS settings, certificate and counters of one listener."""

    counts: HandshakeCounts
    failure_delay_ms: int
    """Milliseconds before a connection is closed after a failed TLS handshake, so that its client
    can read the alert."""

    @property
    def context(self) -> Any:
        """The `ssl.SSLContext` to use for a new connection of the listener."""
        ...

    @property
    def metrics(self) -> Mapping[str, float]:
        """Return counters of TLS handshakes, and the time when the listener's certificate expires
        in seconds since 1970."""
        ...

    def user_of(self, certificate: bytes | None) -> str:
        """Return the user that the listener's mapping rules derive from a client certificate in DER
        format.

        Raises HandshakeFailedError if no mapping rule applies.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address on which a node listens for connections. With `port` 0 the operating system
    chooses the port."""

    name: str
    host: str
    port: int
    tls: ListenerTls | None = None
