"""The ASGI application of the console. It has a route for each page, action and live part (a part
of a page that is updated while the page is open).

Every response has the security headers of `HEADERS`. If a view (the function that computes a page)
raises an error, the response is a page with one sentence. Only errors that are bugs are logged with
their traceback.
"""

import gzip
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import trio
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.console.access.form_tokens import FIELD, is_token_of, token_of
from ottla.console.access.gate import AccessGate, SignedIn
from ottla.console.access.hosts import HostNames
from ottla.console.command_lines import command_line
from ottla.console.event_stream import EventStream
from ottla.console.http_errors import PageError, failure_of
from ottla.console.links import address
from ottla.console.long_actions_driver import LongActions
from ottla.console.page_types import (
    Action,
    ConsoleConfig,
    Download,
    Live,
    Page,
    PageRequest,
    PageView,
    UserRole,
)
from ottla.console.path_route import PathRoute
from ottla.console.rendering import build_environment
from ottla.console.requests_driver import check_site, form_of, query_of
from ottla.console.seams import ConsoleSeams
from ottla.console.static_files import PREFIX, StaticFile, read_static_files
from ottla.model.errors import only_error
from ottla.model.visible_text import visible

LOG = logging.getLogger(__name__)

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
HSTS = {"strict-transport-security": "max-age=31536000"}
PAGE_S = 30.0
"""Maximum seconds for computing a page. Without this limit, open pages would accumulate if brokers
do not respond."""
ACTION_S = 120.0
"""Maximum seconds for an action of a form, such as a reset of 10,000 offsets."""
PAGES_AT_ONCE = 16
"""Maximum number of pages and actions that are computed at the same time; further requests wait."""
AT_WORK_OF_SESSION_MAX = 12
"""Maximum number of pages and actions of one session that are computed or wait. A browser opens up
to six connections at a time."""
STREAMS_MAX = 100
STREAMS_OF_SESSION_MAX = 8
"""Maximum number of open event streams of one session. Each open page may have one. Browsers keep
at most six HTTP/1.1 connections to a server open."""
WAITING_MAX = 256
"""Maximum number of requests that wait to be processed. The console refuses further requests with
status 503."""
COMPRESSED_FROM_BYTES = 1_024
COMPRESSION_LEVEL = 5


class ConsoleApp:
    """HTTP endpoints of the console, for one access gate and one table of pages."""

    def __init__(
        self,
        gate: AccessGate,
        pages: tuple[Page, ...],
        *,
        names: HostNames,
        config: ConsoleConfig,
        seams: ConsoleSeams,
        long_actions: LongActions,
        templates: Any = None,
    ) -> None:
        self._gate = gate
        self._pages = pages
        self._config = config
        self._seams = seams
        self._long_actions = long_actions
        self._files = read_static_files()
        folders = {} if templates is None else {"folder": templates}
        self._environment = build_environment(pages, self._static_address, **folders)
        self._names = names
        self._limit = trio.CapacityLimiter(PAGES_AT_ONCE)
        self._at_work: Counter[bytes] = Counter()
        self._streams: Counter[bytes] = Counter()
        self._home = pages[0]

    def routes(self) -> list[BaseRoute]:
        """Return the HTTP routes of all pages, actions, live parts and static files."""
        found = self._gate.attach(self._lone_page)
        for page in self._pages:
            found.append(PathRoute(page.path, "GET", partial(self._page, page)))
            found += [
                PathRoute(one.path, "POST", partial(self._action, page, one))
                for one in page.actions
            ]
            found += [
                PathRoute(one.path, "GET", partial(self._live, page, one)) for one in page.lives
            ]
        found.append(PathRoute(PREFIX + "{name}", "GET", self._static))
        return found

    async def not_found(self, request: Request, _: Exception) -> Response:
        """Return the error page for a path that no route serves."""
        signed = await self._gate.admit(request)
        if isinstance(signed, Response):
            return signed
        error = PageError(HTTPStatus.NOT_FOUND, "there is no page at this address")
        return self._failure(request, signed, self._home, {}, error)

    async def _page(self, page: Page, request: Request, values: Mapping[str, str]) -> Response:
        signed = await self._gate.admit(request)
        if isinstance(signed, Response):
            return signed
        try:
            _check_role(signed, page.role)
            asked = self._page_request(signed, values, query_of(request), {})
            view = await self._worked(signed, partial(page.view, asked), PAGE_S)
            return self._response(request, signed, page, asked, view)
        except Exception as error:
            return self._failure(request, signed, page, values, _one_error(error))

    async def _action(
        self, page: Page, action: Action, request: Request, values: Mapping[str, str]
    ) -> Response:
        signed = await self._gate.admit(request)
        if isinstance(signed, Response):
            return signed
        outcome = "refused"
        try:
            form = await checked_form(request, signed, self._names)
            _check_role(signed, action.role)
            # Pages show control characters as escapes, which is what a user can type.
            typed, name = form.get("confirm", ""), values.get(action.confirms, "")
            if action.confirms and visible(typed) != visible(name):
                raise PageError(
                    HTTPStatus.BAD_REQUEST,
                    f"nothing was changed: type the name {name!r} to confirm",
                )
            asked = self._page_request(signed, values, query_of(request), form)
            outcome = "failed"
            view = await self._worked(signed, partial(action.run, asked), ACTION_S)
            outcome = "done"
            return self._response(request, signed, page, asked, view)
        except Exception as error:
            found = _one_error(error)
            outcome = f"{outcome}: {found}"
            return self._failure(request, signed, page, values, found)
        finally:
            self._seams.audit(
                action=action.name,
                user=signed.user,
                role=signed.role.name.lower(),
                host=request.client.host if request.client else "",
                values=values,
                outcome=outcome,
            )

    async def _live(
        self, page: Page, live: Live, request: Request, values: Mapping[str, str]
    ) -> Response:
        signed = await self._gate.admit(request)
        if isinstance(signed, Response):
            return signed
        try:
            _check_role(signed, live.role)
            asked = self._page_request(signed, values, query_of(request), {})
            self._begin_stream(signed)
        except PageError as error:
            return self._failure(request, signed, page, values, error)

        def render(view: PageView) -> str:
            name = view.template or f"live/{live.name}"
            template = self._environment.get_template(f"{name}.html")
            return template.render(self._context(signed, page, asked, view))

        return EventStream(live.stream(asked), render, partial(self._end_stream, signed))

    def _begin_stream(self, signed: SignedIn) -> None:
        own = self._streams[signed.form_secret]
        if own >= STREAMS_OF_SESSION_MAX or self._streams.total() >= STREAMS_MAX:
            raise PageError(HTTPStatus.TOO_MANY_REQUESTS, "too many live pages are open")
        self._streams[signed.form_secret] += 1

    def _end_stream(self, signed: SignedIn) -> None:
        self._streams[signed.form_secret] -= 1
        self._streams += Counter()  # removes zeros

    async def _static(self, request: Request, values: Mapping[str, str]) -> Response:
        file = self._files.get(values["name"])
        if file is None:
            return Response("not found\n", 404, {"content-type": "text/plain"})
        if request.headers.get("if-none-match") == file.headers["etag"]:
            return Response(None, 304, file.headers)
        if _accepts_gzip(request):
            return Response(file.compressed, 200, {**file.headers, "content-encoding": "gzip"})
        return Response(file.content, 200, file.headers)

    def _static_address(self, name: str) -> str:
        file: StaticFile = self._files[name]
        return f"{PREFIX}{name}?v={file.digest}"

    async def _worked(
        self, signed: SignedIn, work: Callable[[], Awaitable[PageView]], limit_s: float
    ) -> PageView:
        """Return the result of a page's view, within the limits of time and of concurrent pages."""
        if self._at_work[signed.form_secret] >= AT_WORK_OF_SESSION_MAX:
            raise PageError(HTTPStatus.TOO_MANY_REQUESTS, "too many pages are asked for at once")
        if self._limit.statistics().tasks_waiting >= WAITING_MAX:
            raise PageError(HTTPStatus.SERVICE_UNAVAILABLE, "the console has too much to do")
        self._at_work[signed.form_secret] += 1
        try:
            with trio.fail_after(limit_s):
                async with self._limit:
                    return await work()
        except trio.TooSlowError:
            raise TimeoutError from None
        finally:
            self._at_work[signed.form_secret] -= 1
            self._at_work += Counter()  # removes zeros

    def _lone_page(
        self, request: Request, template: str, context: Mapping[str, object], status: int = 200
    ) -> Response:
        """Return a page without the console's frame (navigation), such as the login page."""
        return _html(
            request, self._environment.get_template(f"{template}.html").render(context), status
        )

    def _page_request(
        self,
        signed: SignedIn,
        values: Mapping[str, str],
        query: Mapping[str, str],
        form: Mapping[str, str],
    ) -> PageRequest:
        return PageRequest(
            admin=signed.clients.admin,
            open_admin=signed.clients.open_admin,
            open_consumer=signed.clients.open_consumer,
            open_producer=signed.clients.open_producer,
            long_actions=self._long_actions,
            user=signed.user,
            role=signed.role,
            path=values,
            query=query,
            form=form,
            now_ms=self._seams.now_ms(),
            config=self._config,
        )

    def _context(
        self,
        signed: SignedIn,
        page: Page,
        asked: PageRequest,
        view: PageView,
    ) -> dict[str, object]:
        def here(**changes: object) -> str:
            """Return the address of the present page with other query parameters. It is derived
            from the page's path, because actions and live parts have other paths."""
            return address(page.path, asked.path, {**asked.query, **changes})

        pad = self._seams.random_bytes(len(signed.form_secret))
        return {
            "page": page,
            "user": signed.user,
            "role": signed.role,
            "can_sign_out": signed.can_sign_out,
            "csrf": token_of(signed.form_secret, pad),
            "path": asked.path,
            "query": asked.query,
            "here": here,
            "here_path": address(page.path, asked.path),
            "hides_messages": asked.hides_messages,
            "now_ms": asked.now_ms,
            "command": _command_of(page, asked),
            **view.context,
        }

    def _response(
        self,
        request: Request,
        signed: SignedIn,
        page: Page,
        asked: PageRequest,
        view: PageView,
    ) -> Response:
        if view.notice:
            signed.notices.append(view.notice)
        if view.download is not None:
            return _download(view.download)
        if view.location:
            return RedirectResponse(view.location, HTTPStatus.SEE_OTHER)
        template = self._environment.get_template(f"{view.template or page.name}.html")
        context = self._context(signed, page, asked, view)
        notices = list(signed.notices)
        html = template.render(context, notices=notices)
        signed.notices.clear()
        return _html(request, html, view.status)

    def _failure(
        self,
        request: Request,
        signed: SignedIn,
        page: Page,
        values: Mapping[str, str],
        error: Exception,
    ) -> Response:
        failure = failure_of(error)
        if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            LOG.error("page %s failed", page.name, exc_info=error)
        asked = self._page_request(signed, values, {}, {})
        view = PageView(context={"failure": failure}, template="failure", status=failure.status)
        return self._response(request, signed, page, asked, view)


async def checked_form(request: Request, signed: SignedIn, names: HostNames) -> Mapping[str, str]:
    """Return the submitted fields of a form. Raises PageError if the form was not created by this
    console for the current session."""
    check_site(request, names)
    form = dict(await form_of(request))
    if not is_token_of(form.pop(FIELD, ""), signed.form_secret):
        raise PageError(HTTPStatus.FORBIDDEN, "the form is of another session: load its page again")
    return form


class SecurityHeaders:
    """ASGI middleware that adds the security headers to each response. By default, these headers
    forbid browsers and proxies to store pages."""

    def __init__(self, app: ASGIApp, extra: Mapping[str, str] = {}) -> None:
        self._app = app
        self._headers = {**HEADERS, **extra}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the application, and add the security headers to its response."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


class HostCheck:
    """ASGI middleware that refuses requests with a foreign host name, and all connections other
    than HTTP."""

    def __init__(self, app: ASGIApp, names: HostNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the application, or refuse it because of its host name."""
        if scope["type"] == "http":
            given = Headers(scope=scope).getlist("host")
            if len(given) != 1 or not self._names.has(given[0]):
                text = "this host name is not the console's; --host-name NAME adds one\n"
                response = Response(text, HTTPStatus.MISDIRECTED_REQUEST, media_type="text/plain")
                await response(scope, receive, send)
                return
        elif scope["type"] != "lifespan":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return
        await self._app(scope, receive, send)


def build_app(
    gate: AccessGate,
    pages: tuple[Page, ...],
    *,
    names: HostNames,
    config: ConsoleConfig,
    seams: ConsoleSeams,
    long_actions: LongActions,
    templates: Any = None,
    has_tls: bool = False,
) -> Starlette:
    """Return the console's ASGI application. `names` are the host names by which browsers reach the
    console. `templates` replaces the console's templates in tests."""
    console = ConsoleApp(
        gate,
        pages,
        names=names,
        config=config,
        seams=seams,
        long_actions=long_actions,
        templates=templates,
    )
    app = Starlette(routes=console.routes(), exception_handlers={404: console.not_found})
    app.router.redirect_slashes = False
    app.add_middleware(HostCheck, names=names)
    app.add_middleware(SecurityHeaders, extra=HSTS if has_tls else {})
    return app


def _check_role(signed: SignedIn, needed: UserRole) -> None:
    if signed.role < needed:
        raise PageError(
            HTTPStatus.FORBIDDEN,
            f"this needs the role {needed.name.lower()}; yours is {signed.role.name.lower()}",
        )


def _one_error(error: Exception) -> Exception:
    if isinstance(error, ClientDisconnect):
        raise error
    found = only_error(error) if isinstance(error, ExceptionGroup) else error
    return found if isinstance(found, Exception) else error


def _command_of(page: Page, asked: PageRequest) -> str:
    return command_line(page.command, {**asked.query, **asked.path})


def _accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _html(request: Request, html: str, status: int) -> Response:
    # Lone surrogates cannot be sent; values have escapes for them already.
    body = html.encode("utf-8", "replace")
    headers = {"content-type": "text/html; charset=utf-8", "vary": "accept-encoding"}
    if len(body) >= COMPRESSED_FROM_BYTES and _accepts_gzip(request):
        body = gzip.compress(body, COMPRESSION_LEVEL)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers)


def _download(file: Download) -> Response:
    name = "".join(
        one if one.isascii() and (one.isalnum() or one in "-_.") else "_"
        for one in visible(file.name)
    )
    headers = {
        "content-type": file.content_type,
        "content-disposition": f'attachment; filename="{name}"',
    }
    return Response(file.content, 200, headers)
