"""A client's bearer tokens: the time of a renewal, and the token used until it succeeds."""

import base64
import json
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.client.network.bearer_tokens import TokenStore, expiry_of, granted, store_of
from ottla.client.network.login import renew_after_s
from ottla.client.network.web_fetch import WebFetchError, fetch
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.security.oauthbearer import BearerToken
from ottla.model.settings.security.oauth import OAuthGrant
from ottla.model.settings.security.sasl import SaslLogin


class Source:
    """Gives tokens one after the other; its time is the store's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lasts_s: float | None = 100) -> None:
        self.now_s = 1_000.0
        self.lasts_s = lasts_s
        self.count = 0
        self.failure: Exception | None = None
        monkeypatch.setattr("time.time", lambda: self.now_s)

    async def __call__(self) -> BearerToken:
        if self.failure is not None:
            raise self.failure
        self.count += 1
        ends_s = None if self.lasts_s is None else self.now_s + self.lasts_s
        return BearerToken(f"token{self.count}", ends_s)


async def test_a_token_is_replaced_when_most_of_its_life_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(monkeypatch)
    store = TokenStore(source)
    assert await store.token() == "token1"
    source.now_s += 79
    assert await store.token() == "token1"
    source.now_s += 1
    assert await store.token() == "token2"


async def test_while_none_can_be_had_the_old_one_serves_as_long_as_it_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(monkeypatch)
    store = TokenStore(source)
    await store.token()
    source.now_s, source.failure = source.now_s + 99, OSError("no way")
    assert await store.token() == "token1"
    source.now_s += 1
    with pytest.raises(RefusedError, match="no token to log in with: no way") as caught:
        await store.token()
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION
    assert caught.value.is_retriable


async def test_a_function_that_is_not_async_is_called_in_a_thread() -> None:
    threads = []

    def provide() -> str:
        threads.append(threading.current_thread())
        return "opaque"

    assert await TokenStore(provide).token() == "opaque"
    assert threads != [threading.current_thread()]
    assert await TokenStore(partial(provide)).token() == "opaque"


async def test_a_token_without_an_end_is_asked_for_at_every_login(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source(monkeypatch, lasts_s=None)
    store = TokenStore(source)
    assert [await store.token(), await store.token()] == ["token1", "token2"]


def jwt(claims: Any) -> str:
    parts = (json.dumps(one).encode() for one in ({"alg": "RS256"}, claims))
    return ".".join(base64.urlsafe_b64encode(one).decode().rstrip("=") for one in parts) + ".AAAA"


def test_a_jwt_tells_its_end_itself() -> None:
    assert expiry_of(jwt({"exp": 5})) == 5.0
    for odd in ({}, {"exp": "x"}, {"exp": True}, {"exp": 10**400}, {"exp": -1}):
        assert expiry_of(jwt(odd)) is None
    assert expiry_of("opaque") is None


async def test_connections_of_one_source_share_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Source(monkeypatch)
    login, other = (SaslLogin("OAUTHBEARER", provider=source) for _ in range(2))
    assert store_of(login) is store_of(other)
    assert store_of(login) is not store_of(SaslLogin("OAUTHBEARER", provider=Source(monkeypatch)))


async def test_a_files_token_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    grant = OAuthGrant(token_url=f"file://{file}")
    with pytest.raises(WebFetchError, match="cannot be read: no such file"):
        await granted(grant)
    file.write_text(" one\n")
    assert (await granted(grant)).value == "one"


def test_what_is_too_long_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(bytes(11))
    assert len(fetch(f"file://{file}", bytes_max=11)) == 11
    with pytest.raises(WebFetchError, match="longer than 10 bytes"):
        fetch(f"file://{file}", bytes_max=10)


@pytest.mark.parametrize(
    ("lifetime_ms", "after_s"), [(0, None), (60_000, 51.0), (1_300, 1.105), (1_150, 1.02)]
)
def test_a_session_is_renewed_before_its_end_and_not_within_a_second(
    lifetime_ms: int, after_s: float | None
) -> None:
    assert renew_after_s(lifetime_ms) == pytest.approx(after_s)
