"""What a SASL mechanism is to a connection.  Pure.

A mechanism begins an exchange for each login; the exchange takes the client's tokens one by one and
answers each.  A new mechanism is a new class: nothing else of this room knows which there are.
"""

from typing import NamedTuple, Protocol

from ottla.model.errors import ErrorCode, RefusedError


class SaslReply(NamedTuple):
    """The answer to one token of a client."""

    token: bytes
    user: str | None = None
    """Who the client is; None while the exchange goes on."""
    lifetime_ms: int | None = None
    """How long the credential itself is still good for; None without an end."""
    token_id: str | None = None
    """The delegation token that the client logged in by."""


class SaslExchange(Protocol):
    """One login."""

    def respond(self, token: bytes) -> SaslReply:
        """Answer the client's next token.

        Raises RefusedError with a text for the client, ProtocolError for a token that is none: of
        that, and of which check failed, the client learns nothing.
        """
        ...


class SaslMechanism(Protocol):
    """One way to prove who one is."""

    @property
    def name(self) -> str:
        """Its registered name."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether it knows its users; until then a client is better told to return."""
        ...

    def begin(self) -> SaslExchange:
        """Begin a login."""
        ...


def authentication_failed(message: str) -> RefusedError:
    """Return the refusal of a login; the text must not reveal if the user exists."""
    return RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
