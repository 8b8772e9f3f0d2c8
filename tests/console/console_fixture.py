"""The console in a test: its ASGI application, a client over it, and requests for single views.

A test of a view needs no HTTP: `await view(page_request(admin))`. A test of routes, templates and
forms uses `open_browser`, with a real admin client of `open_test_cluster` or a fake one.
"""

import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import httpx2
import trio

from ottla.client.admin import Admin
from ottla.client.consumer import open_consumer
from ottla.client.network.background import lone_errors
from ottla.client.producer import open_producer
from ottla.console.access.form_tokens import SECRET_BYTES, token_of
from ottla.console.access.gate import OpenGate, UserClients
from ottla.console.access.hosts import host_names
from ottla.console.app import build_app
from ottla.console.links import address
from ottla.console.long_actions_driver import LongActions, StartTask
from ottla.console.page_types import ConsoleConfig, Page, PageRequest, UserRole
from ottla.console.pages import PAGES
from ottla.console.seams import ConsoleSeams

PORT = 8088
HOST = f"http://127.0.0.1:{PORT}"
NOW_MS = 1_790_000_000_000
SECRET = b"s" * SECRET_BYTES
TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


@asynccontextmanager
async def _same_admin(admin: Any) -> AsyncIterator[Admin]:
    yield cast(Admin, admin)


class FakeAdmin:
    """Admin client whose calls a test replaces: `FakeAdmin(list_topics=...)`."""

    def __init__(self, **calls: Any) -> None:
        for name, call in calls.items():
            setattr(self, name, call)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the view called {name}, which the test does not provide")


def clients_of(admin: Any, bootstrap: str = "127.0.0.1:1") -> UserClients:
    """Return clients of a cluster, over a real or a fake admin client."""
    return UserClients(
        admin=cast(Admin, admin),
        open_admin=partial(_same_admin, admin),
        open_consumer=lambda config=None: open_consumer(bootstrap, config),
        open_producer=lambda config=None: open_producer(bootstrap, config),
    )


def page_request(
    admin: Any,
    *,
    bootstrap: str = "127.0.0.1:1",
    path: Mapping[str, str] = {},
    query: Mapping[str, str] = {},
    form: Mapping[str, str] = {},
    role: UserRole = UserRole.ADMIN,
    config: ConsoleConfig | None = None,
    start_task: StartTask | None = None,
) -> PageRequest:
    """Return a request for a view or an action."""
    clients = clients_of(admin, bootstrap)
    return PageRequest(
        admin=clients.admin,
        open_admin=clients.open_admin,
        open_consumer=clients.open_consumer,
        open_producer=clients.open_producer,
        long_actions=LongActions(start_task or _start_none, seams_of(AuditLines())),
        role=role,
        path=path,
        query=query,
        form=form,
        now_ms=NOW_MS,
        config=config or ConsoleConfig(),
    )


def _start_none(_work: object) -> None:
    raise AssertionError("the view started a long action, for which the test has no nursery")


class AuditLines:
    """Audit log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __call__(self, **line: Any) -> None:
        self.lines.append(line)


def seams_of(audit: AuditLines) -> ConsoleSeams:
    """Return the effects of a console in a test: a fixed clock, fixed bytes, and `audit`."""
    return ConsoleSeams(
        now_ms=lambda: NOW_MS, random_bytes=lambda count: b"\x05" * count, audit=audit
    )


class Browser:
    """Client of the console that reads pages and sends their forms."""

    def __init__(
        self, http: httpx2.AsyncClient, pages: tuple[Page, ...], audit: AuditLines
    ) -> None:
        self.http = http
        self._pages = pages
        self.audit = audit

    def address(self, name: str, **values: str) -> str:
        """Return the address of a page, with values for the parameters of its path."""
        return address(next(one.path for one in self._pages if one.name == name), values)

    async def get(self, where: str, status: int = 200) -> str:
        """Return the HTML of a page, which must have the given status."""
        response = await self.http.get(where)
        assert response.status_code == status, response.text[-2_000:]
        return response.text

    async def post(self, address: str, form: Mapping[str, str] = {}) -> httpx2.Response:
        """Send a form with the token of this session. Returns the response; a redirect is not
        followed."""
        token = token_of(SECRET, os.urandom(len(SECRET)))
        return await self.http.post(address, data={**form, "csrf": token})

    async def act(self, address: str, form: Mapping[str, str] = {}) -> str:
        """Send a form that must succeed. Returns the HTML of the page that it leads to."""
        response = await self.post(address, form)
        assert response.status_code == HTTPStatus.SEE_OTHER, response.text[-2_000:]
        return await self.get(response.headers["location"])


@asynccontextmanager
async def open_browser(
    admin: Any,
    *,
    bootstrap: str = "127.0.0.1:1",
    role: UserRole = UserRole.ADMIN,
    pages: tuple[Page, ...] = PAGES,
    config: ConsoleConfig | None = None,
    templates: Any = None,
) -> AsyncIterator[Browser]:
    """Open the console without a login, and yield a client over it."""
    audit = AuditLines()
    seams = seams_of(audit)
    with lone_errors():
        async with trio.open_nursery() as nursery:
            app = build_app(
                OpenGate(clients_of(admin, bootstrap), role, SECRET),
                pages,
                names=host_names("127.0.0.1", PORT, has_tls=False),
                config=config or ConsoleConfig(),
                seams=seams,
                long_actions=LongActions(nursery.start_soon, seams),
                templates=templates,
            )
            transport = httpx2.ASGITransport(app=app)
            async with httpx2.AsyncClient(transport=transport, base_url=HOST) as http:
                yield Browser(http, pages, audit)
            nursery.cancel_scope.cancel()
