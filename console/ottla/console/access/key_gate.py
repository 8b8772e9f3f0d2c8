"""Access control by a key, for a console whose own login has permissions in the cluster. The key is
part of the address that the console prints.

The key is needed because other users of the machine can also connect to a loopback address. A
session starts with the key, so that only readers of the printed address get the permissions of the
console's login.
"""

import hmac
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from ottla.console.access.form_tokens import SECRET_BYTES
from ottla.console.access.gate import NOTICES_MAX, RenderPage, SignedIn, UserClients
from ottla.console.access.hosts import HostNames
from ottla.console.access.session_cookies import LOGIN_PATH, SessionCookies
from ottla.console.access.sessions import SessionTable
from ottla.console.http_errors import PageError
from ottla.console.page_types import UserRole
from ottla.console.path_route import PathRoute
from ottla.console.requests_driver import query_of
from ottla.console.seams import ConsoleSeams

REASON = "Open the address that 'ottla console' printed: it has the key."


class KeyGate:
    """Access control by the key in the address that the console prints. Its users have the
    permissions of the console's own login."""

    def __init__(
        self,
        clients: UserClients,
        role: UserRole,
        key: str,
        table: SessionTable,
        seams: ConsoleSeams,
        names: HostNames,
        *,
        port: int,
        has_tls: bool,
    ) -> None:
        self._clients = clients
        self._role = role
        self._key = key
        self._table = table
        self._seams = seams
        self._cookies = SessionCookies(table, seams, names, port=port, has_tls=has_tls)
        self._render: RenderPage

    def attach(self, render: RenderPage) -> list[BaseRoute]:
        """Set the function that renders login pages. Returns the HTTP routes of login and
        logout."""
        self._render = render
        return [PathRoute(LOGIN_PATH, "GET", self._sign_in)]

    async def admit(self, request: Request) -> SignedIn | Response:
        """Return the signed-in user of a request, or a page that asks for the key."""
        signed = self._cookies.user_of(request)
        if signed is not None:
            return signed
        answer = self._cookies.ask_for_login(request)
        return answer if answer.status_code != HTTPStatus.SEE_OTHER else self._refuse(request)

    async def _sign_in(self, request: Request, _: Mapping[str, str]) -> Response:
        try:
            key = query_of(request).get("key", "")
        except PageError:
            key = ""
        if not hmac.compare_digest(key.encode("utf-8", "replace"), self._key.encode()):
            return self._refuse(request)
        signed = SignedIn(
            user="",
            role=self._role,
            form_secret=self._seams.random_bytes(SECRET_BYTES),
            clients=self._clients,
            notices=deque(maxlen=NOTICES_MAX),
        )
        secret = self._table.begin(signed, lambda: None, self._seams.now_ms())
        self._seams.audit(
            action="login",
            user="",
            role=self._role.name.lower(),
            host=request.client.host if request.client else "",
            values={},
            outcome="done",
        )
        response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
        self._cookies.begin(response, secret)
        return response

    def _refuse(self, request: Request) -> Response:
        context = {"next": "", "reason": REASON}
        return self._render(request, "login", context, HTTPStatus.UNAUTHORIZED)
