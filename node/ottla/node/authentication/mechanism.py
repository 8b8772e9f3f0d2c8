"""Interface of SASL mechanisms. Pure.

A mechanism begins an exchange for each login. The exchange receives the client's tokens one by one
and answers each token. To add a mechanism, add a class: no other module of this package depends on
the set of mechanisms.
"""

from typing import NamedTuple, Protocol

from ottla.model.errors import ErrorCode, RefusedError


class SaslReply(NamedTuple):
    """Response to one SASL token from a client, and the result of the login if it is complete."""

    token: bytes
    user: str | None = None
    """Authenticated user; None while the SASL exchange continues."""
    lifetime_ms: int | None = None
    """Milliseconds until the credential of the client expires; None if the credential never
    expires."""
    token_id: str | None = None
    """Id of the delegation token with which the client logged in; None if it used no such token."""


class SaslExchange(Protocol):
    """SASL login of one client: an exchange of the client's tokens and the server's responses."""

    def respond(self, token: bytes) -> SaslReply:
        """Process the client's next SASL token, and return the response to it.

        Raises RefusedError with a message for the client, or ProtocolError for a malformed token.
        The message does not reveal which check failed.
        """
        ...


class SaslMechanism(Protocol):
    """Interface of a SASL mechanism, by which clients authenticate."""

    @property
    def name(self) -> str:
        """Registered name of the SASL mechanism."""
        ...

    @property
    def is_ready(self) -> bool:
        """True once the SASL mechanism can look up users. Before that, clients get an error and
        retry."""
        ...

    def begin(self) -> SaslExchange:
        """Begin a login of one client, and return its exchange of SASL messages."""
        ...


def authentication_failed(message: str) -> RefusedError:
    """Return the error that a client gets for a failed login. The message must not reveal whether
    the user exists."""
    return RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
