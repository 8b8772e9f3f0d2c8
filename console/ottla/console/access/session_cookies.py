"""Cookies of sessions. This module sets the cookie of a session, and finds the signed-in user of a
request by its cookie."""

from http import HTTPStatus
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ottla.console.access.form_tokens import FIELD, is_token_of
from ottla.console.access.gate import SignedIn
from ottla.console.access.hosts import HostNames
from ottla.console.access.sessions import SessionTable
from ottla.console.http_errors import PageError
from ottla.console.requests_driver import check_site, form_of
from ottla.console.seams import ConsoleSeams

LOGIN_PATH = "/login"
NEXT_CHARS_MAX = 2_000
RELOAD = (
    '<!doctype html><html lang="en"><meta charset="utf-8">'
    '<meta http-equiv="refresh" content="0"><title>Ottla</title><p>Loading …</p></html>'
)
"""HTML page that reloads itself, for users who followed a link on another site. Browsers send the
session's cookie with the reload, but not with the first request (SameSite=Strict)."""


class SessionCookies:
    """Sessions of browsers, identified by a cookie. Scripts cannot read the cookie, and browsers do
    not send it with requests from other sites."""

    def __init__(
        self,
        table: SessionTable,
        seams: ConsoleSeams,
        names: HostNames,
        *,
        port: int,
        has_tls: bool,
    ) -> None:
        self._table = table
        self._seams = seams
        self._names = names
        self._has_tls = has_tls
        # Browsers send a cookie to all ports of a host, so its name has the port.
        self.cookie = "__Host-ottla" if has_tls else f"ottla-console-{port}"
        """Name of the session's cookie. Browsers refuse a cookie with the prefix `__Host-` from a
        server without TLS and for another host."""

    def user_of(self, request: Request) -> SignedIn | None:
        """Return the signed-in user of a request, or None if the request's cookie belongs to no
        open session."""
        return self._table.find(request.cookies.get(self.cookie, ""), self._seams.now_ms())

    def ask_for_login(self, request: Request) -> Response:
        """Return the response to a request that belongs to no session: a redirect to the login
        page."""
        if request.method not in ("GET", "HEAD"):
            return Response(
                "the session has ended: sign in again\n",
                HTTPStatus.UNAUTHORIZED,
                media_type="text/plain",
            )
        if request.headers.get("sec-fetch-site") == "cross-site":
            return Response(RELOAD, media_type="text/html; charset=utf-8")
        where = _address_of(request)
        suffix = f"?next={quote(where, safe='')}" if where != "/" else ""
        return RedirectResponse(LOGIN_PATH + suffix, HTTPStatus.SEE_OTHER)

    def begin(self, response: Response, secret: str) -> None:
        """Set the cookie of a new session in a response. `secret` is the cookie's value."""
        response.set_cookie(
            self.cookie, secret, path="/", secure=self._has_tls, httponly=True, samesite="strict"
        )

    async def sign_out(self, request: Request) -> Response:
        """End the session of the browser that posted the logout form. Raises PageError if another
        site sent the form."""
        signed = self.user_of(request)
        if signed is not None:
            check_site(request, self._names)
            form = await form_of(request)
            if not is_token_of(form.get(FIELD, ""), signed.form_secret):
                raise PageError(HTTPStatus.FORBIDDEN, "the form is of another session")
            self._table.end(request.cookies.get(self.cookie, ""))
        response = RedirectResponse(LOGIN_PATH, HTTPStatus.SEE_OTHER)
        response.delete_cookie(
            self.cookie, path="/", secure=self._has_tls, httponly=True, samesite="strict"
        )
        return response


def safe_next(text: str) -> str:
    """Return the address to open after a login. A text that is not a path of the console is
    replaced by `/`."""
    if (
        len(text) > NEXT_CHARS_MAX
        or not text.startswith("/")
        or text.startswith(("//", "/\\"))
        or not text.isascii()
        or not text.isprintable()
        or "\\" in text
    ):
        return "/"
    parts = urlsplit(text)
    return "/" if parts.scheme or parts.netloc or parts.path == LOGIN_PATH else text


def _address_of(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or b"/"
    query: bytes = request.scope["query_string"]
    where = raw + (b"?" + query if query else b"")
    return safe_next(where.decode("ascii", "replace"))
