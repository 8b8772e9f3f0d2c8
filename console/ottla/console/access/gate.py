"""The gate of the console: finds the user of a request, or answers it with a login page."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

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
    can_sign_out: bool = False
    """True if the console has a login page of its own."""


class RenderPage(Protocol):
    """Function that renders a page outside of the console's frame, such as the login page."""

    def __call__(
        self, request: Request, template: str, context: Mapping[str, object], status: int = 200
    ) -> Response:
        """Return the response with the rendered template."""
        ...


class AccessGate(Protocol):
    """Decides who sends a request."""

    def attach(self, render: RenderPage) -> list[BaseRoute]:
        """Set the function that renders pages. Returns the gate's own routes, such as `/login`."""
        ...

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

    def attach(self, _render: RenderPage) -> list[BaseRoute]:
        """Return no routes: there is no login page."""
        return []

    async def admit(self, _request: Request) -> SignedIn:
        """Return the only user."""
        return self._signed_in
