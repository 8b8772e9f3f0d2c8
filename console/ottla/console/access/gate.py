"""The gate of the console: finds the user of a request, or answers it with a login page."""

from collections import deque
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from ottla.client.admin import Admin
from ottla.console.page_types import OpenConsumer, OpenProducer, UserRole
from ottla.model.values import frozen

NOTICES_MAX = 8


@frozen(kw_only=True)
class UserClients:
    """Clients of the cluster with the rights of one user."""

    admin: Admin
    open_consumer: OpenConsumer
    open_producer: OpenProducer


@frozen(kw_only=True)
class SignedIn:
    """User of a request, with the session's secret and clients."""

    user: str
    """Name of the user. Empty if the console has no login."""
    role: UserRole
    form_secret: bytes
    """Secret of the session that form tokens prove (`form_tokens`)."""
    clients: UserClients
    notices: deque[str]
    """Sentences about finished actions that the session's next page shows."""


class AccessGate(Protocol):
    """Decides who sends a request."""

    async def admit(self, request: Request) -> SignedIn | Response:
        """Return the user of a request, or the response that asks for a login or refuses it."""
        ...


class OpenGate:
    """AccessGate of a console without a login: every request has the same user and rights."""

    def __init__(self, clients: UserClients, role: UserRole, form_secret: bytes) -> None:
        self._signed_in = SignedIn(
            user="",
            role=role,
            form_secret=form_secret,
            clients=clients,
            notices=deque(maxlen=NOTICES_MAX),
        )

    async def admit(self, _request: Request) -> SignedIn:
        """Return the only user."""
        return self._signed_in
