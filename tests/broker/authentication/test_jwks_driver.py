"""Schedule of reading the token keys (JWKS), in virtual time: at start, periodic, on demand."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.client.network import web_fetch
from ottla.client.network.web_fetch import WebFetchError
from ottla.model.settings.security.oauth import OAuthRules
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.authentication.authenticators import KeyPlan
from ottla.node.authentication.jwks import KeySource
from ottla.node.authentication.jwks_driver import FORCED_PAUSE_S, KeyReader

URL = "https://issuer.example/keys"


class Web:
    """The server of the keys."""

    def __init__(self, jwks: bytes) -> None:
        self.jwks = jwks
        self.failure: str | None = None
        self.read_at_s: list[float] = []

    def fetch(self, url: str, *, bytes_max: int, tls: object = None) -> bytes:
        assert url == URL
        self.read_at_s.append(round(trio.current_time(), 1))
        if self.failure is not None:
            raise WebFetchError(self.failure)
        return self.jwks


@pytest.fixture
def web(issuer: Any, monkeypatch: pytest.MonkeyPatch) -> Web:
    found = Web(issuer.jwks("RS256"))

    async def run_sync(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return work(*arguments)

    monkeypatch.setattr(trio.to_thread, "run_sync", run_sync)
    monkeypatch.setattr(web_fetch, "fetch", found.fetch)
    return found


async def reading(nursery: trio.Nursery, refresh_ms: int = 3_600_000) -> KeySource:
    source = KeySource(URL)
    rules = OAuthRules(jwks_url=URL, refresh_ms=refresh_ms)
    nursery.start_soon(KeyReader([KeyPlan(source, rules)], UnexpectedErrors()).run)
    return source


async def test_keys_are_read_at_the_start_and_again_after_a_while(
    autojump_clock: MockClock, web: Web
) -> None:
    async with trio.open_nursery() as nursery:
        source = await reading(nursery)
        await trio.sleep(7_300)
        assert web.read_at_s == [0, 3_600, 7_200]
        assert [one.key_id for one in source.keys or ()] == ["RS256"]
        nursery.cancel_scope.cancel()


async def test_failures_are_tried_again_less_and_less_often_and_old_keys_count_meanwhile(
    autojump_clock: MockClock, web: Web
) -> None:
    web.failure = "no way"
    async with trio.open_nursery() as nursery:
        source = await reading(nursery)
        await trio.sleep(30)
        assert web.read_at_s == [0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 12.7, 22.7]
        assert source.keys is None
        assert source.problem == "the keys of OAUTHBEARER's tokens: no way"
        web.failure = None
        await trio.sleep(10)
        assert source.problem == ""
        assert source.keys is not None
        web.jwks = json.dumps({"keys": []}).encode()
        await trio.sleep(3_600)
        assert "no public key" in source.problem
        assert [one.key_id for one in source.keys] == ["RS256"]
        nursery.cancel_scope.cancel()


async def test_unknown_keys_have_them_read_at_once_and_not_for_each_stranger(
    autojump_clock: MockClock, web: Web, issuer: Any
) -> None:
    async with trio.open_nursery() as nursery:
        source = await reading(nursery)
        await trio.sleep(1_000)
        web.jwks = issuer.jwks()
        source.on_wanted()
        await trio.sleep(1)
        assert web.read_at_s == [0, 1_000]
        assert len(source.keys or ()) == 3
        for _ in range(600):
            source.on_wanted()
            await trio.sleep(0.1)
        asked = len(web.read_at_s) - 2
        assert 60 / FORCED_PAUSE_S - 2 <= asked <= 60 / FORCED_PAUSE_S + 1
        nursery.cancel_scope.cancel()
