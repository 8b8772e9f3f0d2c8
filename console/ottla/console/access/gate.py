"""The gate (access control) of the console. It finds the user of a request, or responds with a
login page."""

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ottla.client.admin import Admin
from ottla.console.page_types import OpenAdmin, OpenConsumer, OpenProducer, UserRole
from ottla.model.values import frozen

NOTICES_MAX = 8


@frozen(kw_only=True)
class UserClients:
    """Clients of the cluster (admin client, consumers, producers) with the permissions of one
    user."""

    admin: Admin
    open_admin: OpenAdmin
    open_consumer: OpenConsumer
    open_producer: OpenProducer


@frozen(kw_only=True)
class SignedIn:
    """The signed-in user of a request, with the session's secret and the user's clients."""

    user: str
    """Name of the signed-in user. Empty if the console has no login."""
    role: UserRole
    form_secret: bytes
    """Secret of the session, from which the tokens of the session's forms are derived
    (`form_tokens`)."""
    clients: UserClients
    notices: deque[str]
    """Sentences about finished actions, which the next page of the session shows."""
    can_sign_out: bool = False
    """True if the user can sign out, which requires that the console has its own login page."""


class RenderPage(Protocol):
    """Function that renders a page without the console's frame (navigation), such as the login
    page."""

    def __call__(
        self, request: Request, template: str, context: Mapping[str, object], status: int = 200
    ) -> Response:
        """Return the HTTP response with the rendered template."""
        ...


class AccessGate(Protocol):
    """Access control of the console. It determines the user of each request."""

    def attach(self, render: RenderPage) -> list[BaseRoute]:
        """Set the function that renders login pages. Returns the gate's own HTTP routes, such as
        `/login`."""
        ...

    async def admit(self, request: Request) -> SignedIn | Response:
        """Return the signed-in user of a request. If the request has no user, return a response
        that asks for a login or refuses the request."""
        ...


class OpenGate:
    """Access control of a console without a login. Every request has the same user and
    permissions."""

    def __init__(self, clients: UserClients, role: UserRole, form_secret: bytes) -> None:
        self._signed_in = SignedIn(
            user="",
            role=role,
            form_secret=form_secret,
            clients=clients,
            notices=deque(maxlen=NOTICES_MAX),
        )

    def attach(self, _render: RenderPage) -> list[BaseRoute]:
        """Return no HTTP routes, because a console without a login has no login page."""
        return []

    async def admit(self, _request: Request) -> SignedIn:
        """Return the only user of a console without a login."""
        return self._signed_in
