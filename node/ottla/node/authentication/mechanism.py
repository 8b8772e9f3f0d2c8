"""Interface of SASL mechanisms. Pure.

A mechanism begins an exchange for each login. The exchange receives the client's tokens one by one
and answers each. A new mechanism is a new class; no other module of this package depends on the set
of mechanisms.
"""

from typing import NamedTuple, Protocol

from ottla.model.errors import ErrorCode, RefusedError


class SaslReply(NamedTuple):
    """Response to one token from a client, and the result of the login if it is complete."""

    token: bytes
    user: str | None = None
    """Authenticated user; None while the exchange continues."""
    lifetime_ms: int | None = None
    """Milliseconds until the credential expires; None if it never does."""
    token_id: str | None = None
    """Id of the delegation token with which the client logged in."""


class SaslExchange(Protocol):
    """Login of one client: an exchange of tokens and responses."""

    def respond(self, token: bytes) -> SaslReply:
        """Process the client's next token, and return the response to it.

        Raises RefusedError with a message for the client, or ProtocolError for a malformed token.
        The client does not learn which check failed.
        """
        ...


class SaslMechanism(Protocol):
    """SASL mechanism by which clients authenticate."""

    @property
    def name(self) -> str:
        """Registered name of the SASL mechanism."""
        ...

    @property
    def is_ready(self) -> bool:
        """True once the mechanism can look up users. Until then, clients get an error and retry."""
        ...

    def begin(self) -> SaslExchange:
        """Begin a login, and return its exchange of messages."""
        ...


def authentication_failed(message: str) -> RefusedError:
    """Return the error for a failed login.  The message must not reveal whether the user exists."""
    return RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
