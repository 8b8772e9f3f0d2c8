"""`ottla mcp --http`, asked by the HTTP client of the official SDK, and by clients that must be
refused."""

import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import trio
import trustme
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from ottla.client.admin import Admin, open_admin
from ottla.client.testing import open_test_cluster
from ottla.insight import mcp_http_driver
from ottla.insight.answers import ANSWERS
from ottla.insight.answers_driver import answer
from ottla.insight.mcp_http_driver import (
    BODY_BYTES_MAX,
    TOKEN_CHARS_MIN,
    HttpSettings,
    serve_http,
    settings_of,
)
from ottla.model.errors import ConfigError
from tests.insight.test_mcp_server import text_of

TIMEOUT_S = 60
TOKEN = "7f" * 32
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}
LIST_TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@asynccontextmanager
async def serving(admin: Admin, **settings: Any) -> AsyncIterator[str]:
    """Serve HTTP in the background; yields the URL."""
    urls: list[str] = []
    fields: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "token": TOKEN, **settings}
    with trio.fail_after(TIMEOUT_S):
        async with trio.open_nursery() as nursery:

            async def run(task_status: Any) -> None:
                await serve_http(
                    admin, HttpSettings(**fields), urls.append, task_status=task_status
                )

            await nursery.start(run)
            yield urls[0]
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving_nothing(**settings: Any) -> AsyncIterator[str]:
    """Serve HTTP for a cluster that does not exist; yields the URL."""
    async with open_admin("127.0.0.1:1", timeout_s=1) as admin, serving(admin, **settings) as url:
        yield url


async def ask(url: str, headers: dict[str, str], **request: Any) -> httpx2.Response:
    body: dict[str, Any] = {"json": LIST_TOOLS} if "content" not in request else {}
    async with httpx2.AsyncClient() as client:
        method = request.pop("method", "POST")
        return await client.request(
            method, url, headers={**JSON_HEADERS, **headers}, **body, **request
        )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_official_client_lists_and_calls_the_tools(mode: str) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with (
            open_test_cluster() as cluster,
            open_admin(cluster.bootstrap) as admin,
            serving(admin) as url,
            httpx2.AsyncClient(headers=BEARER) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            await admin.create_topic("orders", partition_count=1)
            tools = (await client.list_tools()).tools
            assert [one.name for one in tools] == [one.tool for one in ANSWERS]
            found = await client.call_tool("explain_unavailable", {"topic": "orders"})
            expected = await answer(admin, "unavailable", {"topic": "orders"})
            assert json.loads(text_of(found)) == expected.as_json


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN}0"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN},
        {"Authorization": "Bearer \xff\xfe"},
    ],
)
async def test_a_request_without_the_token_is_refused(headers: dict[str, str]) -> None:
    async with serving_nothing() as url:
        raw: Any = {key: value.encode("latin-1") for key, value in headers.items()}
        found = await ask(url, raw)
        assert found.status_code == 401
        assert found.headers["www-authenticate"] == "Bearer"
        assert (await ask(url, BEARER)).status_code == 200


async def test_a_foreign_host_or_origin_is_refused_even_with_the_token() -> None:
    async with serving_nothing() as url:
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": f"evil.example:{url.split(':')[2][:5]}"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": url.removesuffix("/mcp")}, 200),
        ):
            assert (await ask(url, {**BEARER, **headers})).status_code == status, headers


async def test_a_named_host_is_served() -> None:
    async with serving_nothing(names=("ottla.example",)) as url:
        assert (await ask(url, {**BEARER, "Host": "ottla.example"})).status_code == 200
        assert (await ask(url, {**BEARER, "Host": "ottla.example.evil"})).status_code == 421


async def test_only_bounded_posts_to_the_one_path_are_served() -> None:
    async with serving_nothing() as url:
        assert (await ask(url, BEARER, content=b" " * (BODY_BYTES_MAX + 1))).status_code == 413
        for method in ("GET", "DELETE", "PUT"):
            assert (await ask(url, BEARER, method=method)).status_code == 405
        assert (await ask(url.replace("/mcp", "/else"), BEARER)).status_code == 404
        assert (await ask(url, BEARER, content=b"{")).status_code == 400
        answered = await ask(url, BEARER)
        assert "mcp-session-id" not in answered.headers


async def test_requests_beyond_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_http_driver, "REQUESTS_MAX", 0)
    async with serving_nothing() as url:
        assert (await ask(url, BEARER)).status_code == 503
        assert (await ask(url, {})).status_code == 401


async def test_the_token_is_sent_over_tls(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "own.pem")
    context = ssl.create_default_context()
    ca.configure_trust(context)
    async with (
        serving_nothing(keystore=str(tmp_path / "own.pem")) as url,
        httpx2.AsyncClient(headers=BEARER, verify=context) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        assert url.startswith("https://")
        assert (await client.list_tools()).tools


def test_settings_that_would_expose_the_token_or_guess_it_are_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(f"{TOKEN}\n")
    assert settings_of("127.0.0.1:0", str(token), None, ()).token == TOKEN
    for address, file, keystore, reason in (
        ("0.0.0.0:1", str(token), None, "not a loopback address"),
        ("127.0.0.1", str(token), None, "HOST:PORT"),
        ("127.0.0.1:0", None, None, "is missing"),
        ("127.0.0.1:0", str(tmp_path / "none"), None, "No such file"),
        ("127.0.0.1:0", str(token), str(token), "no PEM file"),
    ):
        with pytest.raises(ConfigError, match=reason):
            settings_of(address, file, keystore, ())
    for text in ("", "a" * (TOKEN_CHARS_MIN - 1), "a b" * 20, "ä" * 40, "a" * 10_000):
        token.write_text(text)
        with pytest.raises(ConfigError, match="openssl rand -hex 32"):
            settings_of("127.0.0.1:0", str(token), None, ())


async def test_a_port_in_use_is_named() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ExceptionGroup) as raised,
    ):
        async with serving_nothing(port=taken.getsockname()[1]):
            raise AssertionError
    assert raised.group_contains(ConfigError, match="cannot be used")
