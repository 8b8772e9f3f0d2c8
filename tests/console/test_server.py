"""The console's server over a real cluster: logins of its users, rights, and hostile browsers."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2
import pytest
import trio
import trustme

from ottla.client.admin import open_admin
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.console import server_driver
from ottla.console.access.roles import RoleTable
from ottla.console.page_types import ConsoleConfig, UserRole
from ottla.console.server_driver import serve_console
from ottla.console.server_settings import AccessKind, ServerSettings
from ottla.model.settings.endpoints import parse_bootstrap
from tests.console.console_fixture import TOKEN

TIMEOUT_S = 120
ROLES = RoleTable(by_user={"alice": UserRole.OPERATOR}, default=UserRole.VIEWER)


def settings(access: AccessKind) -> ServerSettings:
    return ServerSettings(
        host="127.0.0.1", port=0, access=access, roles=ROLES, config=ConsoleConfig()
    )


@asynccontextmanager
async def open_server(
    cluster: ClusterUnderTest, used: ServerSettings
) -> AsyncIterator[tuple[int, str]]:
    """Serve a console, and yield its port and the address that it reported."""
    reports: list[str] = []
    async with trio.open_nursery() as nursery:
        bootstrap = parse_bootstrap(cluster.bootstrap)
        serve = partial(serve_console, bootstrap, used, reports.append)
        port: int = await nursery.start(serve)
        yield port, reports[0]
        nursery.cancel_scope.cancel()


async def test_users_of_the_cluster_sign_in_with_their_own_rights() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(is_secure=True) as cluster:
            assert cluster.security is not None
            async with open_admin(cluster.bootstrap, security=cluster.security) as admin:
                await admin.set_password("alice", "SCRAM-SHA-512", "alice's password")
            used = replace(settings(AccessKind.LOGIN), security=cluster.security)
            async with (
                open_server(cluster, used) as (port, address),
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
            ):
                assert address == f"http://127.0.0.1:{port}/"
                wrong = {"user": "alice", "password": "wrong"}
                assert (await http.post("/login", data=wrong)).status_code == 401
                right = {"user": "alice", "password": "alice's password"}
                assert (await http.post("/login", data=right)).status_code == 303
                page = (await http.get("/")).text
                assert "alice (operator)" in page
                # She may not list users, although the cluster's administrator may.
                users = (await http.get("/users")).text
                assert "alice&#39; lacks the right to describe on the cluster" in users
                found = TOKEN.search(page)
                assert found
                assert (await http.post("/logout", data={"csrf": found[1]})).status_code == 303
                assert (await http.get("/")).status_code == 303


async def test_a_console_with_a_login_of_its_own_needs_the_key() -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(is_secure=True) as cluster:
            assert cluster.security is not None
            LOGIN.set(cluster.security.login())
            tls = cluster.security.tls()
            TLS.set(None if tls is None else TlsDialer(tls))
            used = replace(settings(AccessKind.KEY), roles=ROLES)
            async with (
                open_server(cluster, used) as (port, address),
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
            ):
                assert (await http.get("/")).status_code == 401
                assert (await http.get(address)).status_code == 303
                assert "no cause found" in (await http.get("/")).text


async def test_slow_and_wrong_browsers_are_dropped_and_others_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            monkeypatch.setattr(server_driver, "IDLE_S", 1)
            async with open_server(cluster, settings(AccessKind.OPEN)) as (port, _):
                slow = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(50)]
                for stream in slow:
                    await stream.send_all(b"GET / HTTP/1.1\r\nHost: 127")
                large = await trio.open_tcp_stream("127.0.0.1", port)
                await large.send_all(b"GET / HTTP/1.1\r\nX: " + b"x" * 200_000 + b"\r\n\r\n")
                async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
                    assert (await http.get("/")).status_code == 200
                for stream in slow:
                    while await stream.receive_some(1_024):
                        pass
                    await stream.aclose()
                assert (await large.receive_some(1_024)).split(b"\r\n")[0] == b"HTTP/1.1 431 "
                await large.aclose()


async def test_https_serves_pages_and_secure_cookies(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    path = tmp_path / "console.pem"
    certificate.private_key_and_cert_chain_pem.write_to_path(str(path))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    used = replace(settings(AccessKind.KEY), certificate=str(path), key=str(path), link_key="k")
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_server(cluster, used) as (port, address),
            httpx2.AsyncClient(verify=context) as http,
        ):
            assert address == f"https://127.0.0.1:{port}/login?key=k"
            answer = await http.get(address)
            assert answer.headers["set-cookie"].startswith("__Host-ottla=")
            assert "Secure" in answer.headers["set-cookie"]
            page = await http.get(f"https://127.0.0.1:{port}/explain")
            assert page.status_code == 200
            assert "strict-transport-security" in page.headers


async def test_a_browser_that_reads_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_driver, "UNREAD_MS", 500)
    request = b"GET /static/uPlot.iife.min.js HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_server(cluster, settings(AccessKind.OPEN)) as (port, _),
        ):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            with pytest.raises(trio.BrokenResourceError):
                while True:
                    await stream.send_all(request % port)
                    await trio.sleep(0.01)
            await stream.aclose()
