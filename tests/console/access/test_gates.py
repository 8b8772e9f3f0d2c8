"""Ways into the console, by HTTP, with logins that a fake cluster checks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from ottla.console.access.gate import AccessGate
from ottla.console.access.hosts import HostNames, host_names
from ottla.console.access.key_gate import KeyGate
from ottla.console.access.login_attempts import FREE_FAILURES_OF_ADDRESS
from ottla.console.access.login_gate import LoginGate, OpenedClients
from ottla.console.access.proxy_gate import ProxyGate, parse_networks
from ottla.console.access.roles import RoleTable
from ottla.console.access.sessions import IDLE_MS, SessionTable
from ottla.console.app import build_app
from ottla.console.long_actions_driver import LongActions
from ottla.console.page_types import (
    Action,
    ConsoleConfig,
    Page,
    PageRequest,
    PageView,
    UserRole,
)
from ottla.console.seams import ConsoleSeams
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from tests.console.console_fixture import TOKEN, AuditLines, FakeAdmin, clients_of

HOST = "http://127.0.0.1:8088"
ROLES = RoleTable(by_user={"alice": UserRole.ADMIN}, default=UserRole.VIEWER)
ALICE = {"user": "alice", "password": "right"}


async def who(request: PageRequest) -> PageView:
    return PageView(context={}, template="who")


async def change(request: PageRequest) -> PageView:
    return PageView(context={}, location="/")


PAGES = (
    Page(
        name="overview",
        path="/",
        title="Overview",
        command="",
        view=who,
        actions=(Action(name="change", path="/change", command="", run=change),),
    ),
    Page(name="thing", path="/things/{thing}", title="Thing", command="", view=who),
)


class FakeCluster:
    """Cluster whose users have the password `right`. Counts the logins and the open clients."""

    def __init__(self) -> None:
        self.logins = 0
        self.open: list[str] = []
        self.error: Exception | None = None

    async def open_clients(self, user: str, password: str) -> OpenedClients:
        self.logins += 1
        if self.error is not None:
            raise self.error
        if password != "right":
            raise RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED)
        self.open.append(user)
        return OpenedClients(clients=clients_of(FakeAdmin()), close=lambda: self.open.remove(user))


class Console:
    """A console with a fake cluster, and the time that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.audit = AuditLines()
        self.cluster = FakeCluster()
        self.names: HostNames = host_names("127.0.0.1", 8088, has_tls=False)
        self._count = 0
        self.seams = ConsoleSeams(
            now_ms=lambda: self.now_ms, random_bytes=self._next_bytes, audit=self.audit
        )
        self.table = SessionTable(self.seams.random_bytes)

    def _next_bytes(self, count: int) -> bytes:
        self._count += 1
        return self._count.to_bytes(count, "big")

    def login_gate(self, *, has_tls: bool = False) -> LoginGate:
        return LoginGate(
            self.cluster.open_clients,
            ROLES,
            self.table,
            self.seams,
            self.names,
            port=8088,
            has_tls=has_tls,
        )

    @asynccontextmanager
    async def open(
        self, gate: AccessGate, tmp_path: Any, *, client: str = "10.0.0.9", has_tls: bool = False
    ) -> AsyncIterator[httpx2.AsyncClient]:
        templates = [str(tmp_path), *_own_templates()]
        (tmp_path / "who.html").write_text(
            '{% extends "base.html" %}{% block content %}user={{ user }} role={{ role.name }}'
            '<input name="csrf" value="{{ csrf }}">{% endblock %}'
        )
        app = build_app(
            gate,
            PAGES,
            names=self.names,
            config=ConsoleConfig(),
            seams=self.seams,
            long_actions=LongActions(_start_none, self.seams),
            templates=templates,
            has_tls=has_tls,
        )
        transport = httpx2.ASGITransport(app=app, client=(client, 1))
        base = HOST.replace("http:", "https:") if has_tls else HOST
        async with httpx2.AsyncClient(transport=transport, base_url=base) as http:
            yield http


def _start_none(_work: object) -> None:
    raise AssertionError("no test of a login starts a long action")


def _own_templates() -> list[str]:
    from ottla.console.rendering import FOLDER

    return [str(FOLDER)]


async def test_a_user_signs_in_and_out(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        asked = await http.get("/things/a%2Fb?q=1")
        assert asked.status_code == 303
        assert asked.headers["location"] == "/login?next=%2Fthings%2Fa%252Fb%3Fq%3D1"
        page = (await http.get(asked.headers["location"])).text
        assert 'value="/things/a%2Fb?q=1"' in page
        signed = await http.post("/login", data={**ALICE, "next": "/things/a%2Fb?q=1"})
        assert (signed.status_code, signed.headers["location"]) == (303, "/things/a%2Fb?q=1")
        cookie = signed.headers["set-cookie"]
        assert cookie.startswith("ottla-console-8088=")
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "right" not in cookie
        html = (await http.get("/")).text
        assert "user=alice role=ADMIN" in html
        assert console.cluster.open == ["alice"]
        found = TOKEN.search(html)
        assert found
        assert (await http.post("/logout", data={"csrf": "forged"})).status_code == 403
        assert (await http.post("/logout", data={"csrf": found[1]})).status_code == 303
        assert console.cluster.open == []
        assert (await http.get("/")).status_code == 303
        assert [one["outcome"] for one in console.audit.lines] == ["done"]


async def test_with_tls_the_cookie_is_bound_to_the_host(tmp_path: Any) -> None:
    console = Console()
    gate = console.login_gate(has_tls=True)
    async with console.open(gate, tmp_path, has_tls=True) as http:
        signed = await http.post("/login", data=ALICE)
        cookie = signed.headers["set-cookie"]
        assert cookie.startswith("__Host-ottla=")
        assert "Secure" in cookie
        assert "Domain" not in cookie
        assert "max-age" in signed.headers["strict-transport-security"]


async def test_a_login_never_adopts_a_cookie_of_the_browser(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        planted = {"cookie": f"ottla-console-8088={'ab' * 32}"}
        signed = await http.post("/login", data=ALICE, headers=planted)
        assert "ab" * 32 not in signed.headers["set-cookie"]
        http.cookies.clear()
        assert (await http.get("/", headers=planted)).status_code == 303


async def test_two_logins_have_two_sessions_and_secrets(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        first = await http.post("/login", data=ALICE)
        page = (await http.get("/")).text
        second = await http.post("/login", data={"user": "bob", "password": "right"})
        assert first.headers["set-cookie"] != second.headers["set-cookie"]
        found = TOKEN.search(page)
        assert found
        # A form of the first session is worth nothing in the second one.
        assert (await http.post("/change", data={"csrf": found[1]})).status_code == 403


async def test_a_stolen_cookie_ends_with_its_session(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        await http.post("/login", data=ALICE)
        stolen = {"cookie": "; ".join(f"{name}={value}" for name, value in http.cookies.items())}
        http.cookies.clear()
        assert (await http.get("/", headers=stolen)).status_code == 200
        console.now_ms += IDLE_MS
        assert (await http.get("/", headers=stolen)).status_code == 303
        assert console.cluster.open == []


async def test_brute_force_is_slowed_down_and_logged(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        statuses = [
            (await http.post("/login", data={"user": "alice", "password": f"{one}"})).status_code
            for one in range(200)
        ]
        assert statuses == [401] * FREE_FAILURES_OF_ADDRESS + [429] * (200 - 5)
        assert console.cluster.logins == FREE_FAILURES_OF_ADDRESS
        assert (await http.post("/login", data=ALICE)).status_code == 429
        console.now_ms += 2_000
        assert (await http.post("/login", data=ALICE)).status_code == 303
        outcomes = {one["outcome"] for one in console.audit.lines}
        assert outcomes == {
            "refused: SASL_AUTHENTICATION_FAILED",
            "refused: too many failed logins",
            "done",
        }
        assert "right" not in str(console.audit.lines)


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"user": "", "password": ""}, 400),
        ({"user": "alice"}, 400),
        ({"user": "a" * 257, "password": "right"}, 400),
        ({"user": "alice", "password": "x" * 1_025}, 400),
        ({"user": "<b>", "password": "wrong"}, 401),
    ],
)
async def test_wrong_logins_are_refused(form: dict[str, str], status: int, tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        answer = await http.post("/login", data=form)
        assert answer.status_code == status
        assert "set-cookie" not in answer.headers
        assert "<b>" not in answer.text


async def test_a_login_of_another_site_is_refused(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            answer = await http.post("/login", data=ALICE, headers=headers)
            assert answer.status_code == 403
        assert console.cluster.logins == 0


async def test_a_cluster_that_does_not_answer_is_no_wrong_password(tmp_path: Any) -> None:
    console = Console()
    console.cluster.error = OttlaError("no broker answers <b>")
    async with console.open(console.login_gate(), tmp_path) as http:
        answer = await http.post("/login", data=ALICE)
        assert answer.status_code == 503
        assert "no broker answers &lt;b&gt;" in answer.text


async def test_a_link_of_another_site_reloads_so_that_the_cookie_is_sent(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        answer = await http.get("/things/a", headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 200
        assert 'http-equiv="refresh"' in answer.text
        answer = await http.post("/change", headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 401


async def test_a_foreign_host_name_reaches_nothing(tmp_path: Any) -> None:
    console = Console()
    async with console.open(console.login_gate(), tmp_path) as http:
        for host in ("evil.example", "evil.example:8088", "127.0.0.1", "localhost:1"):
            for path in ("/", "/login", "/static/console.js"):
                assert (await http.get(path, headers={"host": host})).status_code == 421
        assert (await http.get("/login", headers={"host": "localhost:8088"})).status_code == 200


async def test_the_key_of_the_printed_address_begins_a_session(tmp_path: Any) -> None:
    console = Console()
    gate = KeyGate(
        clients_of(FakeAdmin()),
        UserRole.OPERATOR,
        "k" * 64,
        console.table,
        console.seams,
        console.names,
        port=8088,
        has_tls=False,
    )
    async with console.open(gate, tmp_path) as http:
        for path in ("/", "/login", "/login?key=", "/login?key=wrong", "/login?key=%ff"):
            answer = await http.get(path)
            assert answer.status_code == 401
            assert "Open the address that" in answer.text
        assert (await http.post("/change")).status_code == 401
        assert (await http.get(f"/login?key={'k' * 64}")).status_code == 303
        assert "role=OPERATOR" in (await http.get("/")).text
        assert [one["role"] for one in console.audit.lines] == ["operator"]


def proxy_gate() -> ProxyGate:
    return ProxyGate(
        clients_of(FakeAdmin()),
        ROLES,
        b"secret",
        header="x-user",
        networks=parse_networks(["10.0.0.0/24"]),
    )


async def test_a_proxy_names_the_user(tmp_path: Any) -> None:
    console = Console()
    async with console.open(proxy_gate(), tmp_path) as http:
        page = (await http.get("/", headers={"x-user": "alice"})).text
        assert "user=alice role=ADMIN" in page
        bob = (await http.get("/", headers={"x-user": "bob"})).text
        assert "user=bob role=VIEWER" in bob
        found = TOKEN.search(page)
        assert found
        form = {"csrf": found[1]}
        ok = await http.post("/change", data=form, headers={"x-user": "alice"})
        assert ok.status_code == 303
        forged = await http.post("/change", data=form, headers={"x-user": "bob"})
        assert forged.status_code == 403
        assert "Sign out" not in page


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("x-user", "")],
        [("x-user", "alice"), ("x-user", "bob")],
        [("x-user", "a" * 257)],
        [("x-user", "a\x1bb")],
    ],
)
async def test_a_proxy_must_name_one_user(headers: list[tuple[str, str]], tmp_path: Any) -> None:
    console = Console()
    async with console.open(proxy_gate(), tmp_path) as http:
        assert (await http.get("/", headers=headers)).status_code == 403


@pytest.mark.parametrize("client", ["10.0.1.9", "127.0.0.1", "::1", "nonsense"])
async def test_the_header_counts_from_the_proxy_only(client: str, tmp_path: Any) -> None:
    console = Console()
    async with console.open(proxy_gate(), tmp_path, client=client) as http:
        headers = {"x-user": "alice", "x-forwarded-for": "10.0.0.9"}
        assert (await http.get("/", headers=headers)).status_code == 403
