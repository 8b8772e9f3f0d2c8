"""Bearer tokens of a client for OAUTHBEARER. Tokens are read from a function, a URL or a file, and
are replaced before they expire.

All connections in one event loop that use the same source share one token. If the source supplies
no new token, the old token is used until it expires.
"""

import base64
import inspect
import json
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable
from functools import partial
from urllib.parse import quote, urlencode

import trio

from ottla.client.network.web_fetch import TIMEOUT_S, WebFetchError, fetch
from ottla.model.errors import ErrorCode, ProtocolError, RefusedError
from ottla.model.limits import MIB
from ottla.model.security.jwt_claims import SECONDS_MAX
from ottla.model.security.oauthbearer import BearerToken, parse_object, parse_token
from ottla.model.settings.security.oauth import OAuthGrant, is_file_url
from ottla.model.settings.security.sasl import SaslLogin, TokenProvider

REFRESH_AT = 0.8
"""Fraction of a token's lifetime after which the token is replaced, as in the Java client. It is
less than `login.RENEW_AT`, so that a renewed SASL session uses the new token."""

ANSWER_BYTES_MAX = MIB
PAUSE_S = 10.0
"""Seconds between two attempts to get a new token after a failure, while the old token is still
valid. Without this pause, each login would wait for another attempt."""
ALLOWED_URLS_VARIABLE = "OTTLA_OAUTHBEARER_ALLOWED_URLS"
STORES_MAX = 64
"""Maximum number of token sources whose current token is stored in memory. If there are more
sources, the oldest is dropped."""


class TokenStore:
    """The current bearer token from one source. It is replaced before it expires."""

    def __init__(self, provide: TokenProvider) -> None:
        self._provide = provide
        self._asking = trio.Lock()
        self._token: BearerToken | None = None
        self._refresh_at_s = 0.0

    async def token(self) -> str:
        """Return a valid token. Raises RefusedError if no token is available."""
        async with self._asking:
            now_s = time.time()
            if now_s >= self._refresh_at_s or not self._still_holds(now_s):
                try:
                    self._keep(await _provided(self._provide), now_s)
                except Exception as error:
                    if not self._still_holds(now_s):
                        raise RefusedError(
                            ErrorCode.NETWORK_EXCEPTION,
                            f"there is no token to log in with: {error}",
                        ) from error
                    self._refresh_at_s = now_s + PAUSE_S
            assert self._token is not None
            return self._token.value

    def _keep(self, token: BearerToken | str, now_s: float) -> None:
        if isinstance(token, str):
            token = BearerToken(token)
        ends_s = token.expires_at_s
        if ends_s is None:
            ends_s = expiry_of(token.value)
        self._token = BearerToken(token.value, ends_s)
        # A token with an unknown expiry time is requested again for every login.
        self._refresh_at_s = now_s if ends_s is None else now_s + REFRESH_AT * (ends_s - now_s)

    def _still_holds(self, now_s: float) -> bool:
        if self._token is None:
            return False
        ends_s = self._token.expires_at_s
        return ends_s is not None and now_s < ends_s


async def _provided(provide: TokenProvider) -> BearerToken | str:
    """Return the token of an application's provider. An async provider is awaited. Any other
    provider is called in a worker thread, because it may block."""
    if not inspect.iscoroutinefunction(provide) and not inspect.iscoroutinefunction(
        getattr(provide, "__call__", None)  # noqa: B004  # whether it is async, not callable
    ):
        found = await trio.to_thread.run_sync(provide, abandon_on_cancel=True)
    else:
        found = provide()
    return await found if isinstance(found, Awaitable) else found


_STORES: OrderedDict[object, TokenStore] = OrderedDict()


def store_of(login: SaslLogin) -> TokenStore:
    """Return the store of the login's bearer token. All connections of the running event loop share
    this store."""
    source = login.provider or login.grant
    assert source is not None
    provide = login.provider
    if provide is None:
        assert login.grant is not None
        provide = partial(granted, login.grant)
    key = (trio.lowlevel.current_trio_token(), source)
    found = _STORES.get(key)
    if found is None:
        found = _STORES[key] = TokenStore(provide)
        if len(_STORES) > STORES_MAX:
            _STORES.popitem(last=False)
    return found


async def granted(grant: OAuthGrant) -> BearerToken:
    """Request a token from the identity provider, with retries. Raises WebFetchError if no request
    succeeds."""
    allowed = os.environ.get(ALLOWED_URLS_VARIABLE)
    if allowed is not None and grant.token_url not in [one.strip() for one in allowed.split(",")]:
        raise WebFetchError(f"{ALLOWED_URLS_VARIABLE} does not list {grant.token_url}")
    ends_at_s = trio.current_time() + grant.retry_backoff_max_ms / 1_000
    wait_s = grant.retry_backoff_ms / 1_000
    while True:
        try:
            return await trio.to_thread.run_sync(_granted, grant, abandon_on_cancel=True)
        except WebFetchError as error:
            left_s = ends_at_s - trio.current_time()
            if error.is_final or is_file_url(grant.token_url) or left_s <= 0:
                raise
            await trio.sleep(min(wait_s, left_s))
            wait_s *= 2


def _granted(grant: OAuthGrant) -> BearerToken:
    """Request a token by the client credentials grant (RFC 6749, 4.4), or read it from its file.
    Blocks the calling thread."""
    url = grant.token_url
    if is_file_url(url):
        data = fetch(url, bytes_max=ANSWER_BYTES_MAX)
        return BearerToken(data.decode(errors="replace").strip())
    form = {"grant_type": "client_credentials"}
    if grant.scope:
        form["scope"] = grant.scope
    secret = f"{quote(grant.client_id, safe='')}:{quote(grant.client_secret, safe='')}"
    asked_s = time.time()
    data = fetch(
        url,
        bytes_max=ANSWER_BYTES_MAX,
        body=urlencode(form).encode(),
        headers={
            "Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}",
            "Accept": "application/json",
        },
        tls=grant.tls,
        connect_timeout_s=_seconds(grant.connect_timeout_ms),
        read_timeout_s=_seconds(grant.read_timeout_ms),
    )
    try:
        answer = json.loads(data)
        value, lasts_s = answer["access_token"], answer.get("expires_in")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise WebFetchError(f"{url} answers without access_token") from None
    if not isinstance(value, str):
        raise WebFetchError(f"{url} answers without access_token")
    if isinstance(lasts_s, int | float) and 0 <= lasts_s <= SECONDS_MAX:
        return BearerToken(value, asked_s + lasts_s)
    return BearerToken(value)


def _seconds(timeout_ms: int | None) -> float:
    return TIMEOUT_S if timeout_ms is None else timeout_ms / 1_000


def expiry_of(token: str) -> float | None:
    """Return the expiry time of a JWT, in seconds since 1970.  None for any other token."""
    try:
        ends = parse_object(parse_token(token).payload).get("exp")
    except ProtocolError:
        return None
    if isinstance(ends, bool) or not isinstance(ends, int | float):
        return None
    return float(ends) if 0 <= ends <= SECONDS_MAX else None
