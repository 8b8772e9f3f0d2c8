"""Access control of a console with a login: users of the cluster sign in by SCRAM.

The console has no passwords: it connects to the cluster with the name and password of the form. The
session keeps these clients, so that each page shows only data that the user may read.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import trio
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute

from ottla.console.access.form_tokens import SECRET_BYTES
from ottla.console.access.gate import NOTICES_MAX, RenderPage, SignedIn, UserClients
from ottla.console.access.hosts import HostNames
from ottla.console.access.login_attempts import LoginAttempts
from ottla.console.access.roles import RoleTable
from ottla.console.access.session_cookies import LOGIN_PATH, SessionCookies, safe_next
from ottla.console.access.sessions import SessionTable
from ottla.console.http_errors import PageError
from ottla.console.path_route import PathRoute
from ottla.console.requests_driver import check_site, form_of, query_of
from ottla.console.seams import ConsoleSeams
from ottla.model.errors import OttlaError, RefusedError
from ottla.model.values import frozen

LOGINS_AT_ONCE = 4
"""Maximum number of logins that are checked at the same time. Each costs some milliseconds of
hashing."""
LOGINS_WAITING_MAX = 32
LOGIN_S = 20.0
NAME_CHARS_MAX = 256
PASSWORD_CHARS_MAX = 1_024
WRONG = "This name and password are not of a user of the cluster."


@frozen(kw_only=True)
class OpenedClients:
    """Clients of the cluster that act with the permissions of one user, and the function that
    closes them."""

    clients: UserClients
    close: Callable[[], None]


OpenClients = Callable[[str, str], Awaitable[OpenedClients]]
"""Function that opens clients of the cluster. Its arguments are a user name and a password. Raises
RefusedError if the cluster refuses the login."""


class LoginGate:
    """Access control by login: users sign in with the name and password of a SCRAM user of the
    cluster."""

    def __init__(
        self,
        open_clients: OpenClients,
        roles: RoleTable,
        table: SessionTable,
        seams: ConsoleSeams,
        names: HostNames,
        *,
        port: int,
        has_tls: bool,
    ) -> None:
        self._open_clients = open_clients
        self._roles = roles
        self._table = table
        self._seams = seams
        self._names = names
        self._cookies = SessionCookies(table, seams, names, port=port, has_tls=has_tls)
        self._attempts = LoginAttempts()
        self._limit = trio.CapacityLimiter(LOGINS_AT_ONCE)
        self._render: RenderPage

    def attach(self, render: RenderPage) -> list[BaseRoute]:
        """Set the function that renders login pages. Returns the HTTP routes of login and
        logout."""
        self._render = render
        return [
            PathRoute(LOGIN_PATH, "GET", self._form),
            PathRoute(LOGIN_PATH, "POST", self._sign_in),
            PathRoute("/logout", "POST", self._sign_out),
        ]

    async def admit(self, request: Request) -> SignedIn | Response:
        """Return the signed-in user of a request, or a redirect to the login page."""
        return self._cookies.user_of(request) or self._cookies.ask_for_login(request)

    async def _form(self, request: Request, _: Mapping[str, str]) -> Response:
        try:
            after = safe_next(query_of(request).get("next", "/"))
        except PageError:
            after = "/"
        return self._page(request, after)

    async def _sign_in(self, request: Request, _: Mapping[str, str]) -> Response:
        try:
            check_site(request, self._names)
            form = await form_of(request)
        except PageError as error:
            return self._page(request, "/", error.reason, error.status)
        user, password = form.get("user", ""), form.get("password", "")
        after = safe_next(form.get("next", "/"))
        host = request.client.host if request.client else ""
        if not 0 < len(user) <= NAME_CHARS_MAX or not 0 < len(password) <= PASSWORD_CHARS_MAX:
            return self._page(request, after, "Type your name and password.", 400)
        wait_ms = self._attempts.wait_ms(host, user, self._seams.now_ms())
        if wait_ms:
            self._audit(user, host, "refused: too many failed logins")
            reason = f"There were too many failed logins. Try again in {wait_ms // 1_000 + 1} s."
            return self._page(request, after, reason, HTTPStatus.TOO_MANY_REQUESTS)
        if self._limit.statistics().tasks_waiting >= LOGINS_WAITING_MAX:
            return self._page(request, after, "The console has too much to do.", 503)
        # Counted before the answer: attempts in parallel are as many as one after the other.
        self._attempts.note_failure(host, user, self._seams.now_ms())
        try:
            with trio.fail_after(LOGIN_S):
                async with self._limit:
                    opened = await self._open_clients(user, password)
        except RefusedError as error:
            self._audit(user, host, f"refused: {error.code.name}")
            return self._page(request, after, WRONG, HTTPStatus.UNAUTHORIZED)
        except (OttlaError, trio.TooSlowError) as error:
            self._audit(user, host, "failed: the cluster does not answer")
            reason = str(error) or "it took too long"
            return self._page(request, after, f"The cluster does not answer: {reason}", 503)
        self._attempts.note_success(host, user)
        return self._begin(user, host, opened, after)

    def _begin(self, user: str, host: str, opened: OpenedClients, after: str) -> Response:
        signed = SignedIn(
            user=user,
            role=self._roles.role_of(user),
            form_secret=self._seams.random_bytes(SECRET_BYTES),
            clients=opened.clients,
            notices=deque(maxlen=NOTICES_MAX),
            can_sign_out=True,
        )
        secret = self._table.begin(signed, opened.close, self._seams.now_ms())
        self._audit(user, host, "done", signed.role.name.lower())
        response = RedirectResponse(after, HTTPStatus.SEE_OTHER)
        self._cookies.begin(response, secret)
        return response

    async def _sign_out(self, request: Request, _: Mapping[str, str]) -> Response:
        try:
            return await self._cookies.sign_out(request)
        except PageError as error:
            return self._page(request, "/", error.reason, error.status)

    def _page(
        self, request: Request, after: str, reason: str = "", status: int = HTTPStatus.OK
    ) -> Response:
        return self._render(request, "login", {"next": after, "reason": reason}, status)

    def _audit(self, user: str, host: str, outcome: str, role: str = "") -> None:
        self._seams.audit(
            action="login", user=user, role=role, host=host, values={}, outcome=outcome
        )
