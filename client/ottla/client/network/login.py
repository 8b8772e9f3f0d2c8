"""SASL authentication of a client on one connection.

The context variable `LOGIN` applies to a task and to all tasks that it starts. Requests between
brokers and requests of a command are therefore authenticated without passing the login as an
argument through every layer.
"""

import secrets
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import trio

from ottla.model.errors import ErrorCode, RefusedError, row_of

if TYPE_CHECKING:
    from ottla.model.security.scram import ScramHash
    from ottla.model.settings.security.sasl import SaslLogin
    from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse

LOGIN: ContextVar["SaslLogin | None"] = ContextVar("login", default=None)
"""Login of the current task. It applies to connections that have no login of their own."""

SALTED_PASSWORDS_MAX = 32
"""Maximum number of salted passwords in the cache. Without a cache, each login would spend
milliseconds on computing the salted password."""

RENEW_AT = 0.85
"""Fraction of a SASL session's lifetime after which the session is renewed, as in the Java client.
"""

RENEW_AT_LATEST = 0.95
RENEWAL_PAUSE_MS = 1_020
"""Minimum time in ms between a login and its renewal. Brokers refuse a renewal within the first
second."""

HANDSHAKE_VERSION = 1
"""Version of SaslHandshake requests. From this version on, SASL tokens are sent in SaslAuthenticate
requests."""

Ask = Callable[[Any, type[Any], int | None], Awaitable[Any]]
"""Function that sends a request and returns its response. Its arguments are the message, the class
of the response, and the version."""


async def log_in(login: "SaslLogin", ask: Ask, address: str) -> float | None:
    """Authenticate the connection by SASL.

    Returns the seconds until the session must be renewed, or None if the session does not expire.
    Raises RefusedError if the broker rejects the login.
    """
    # Imported on demand: most programs of a cluster without logins never need these.
    from ottla.model.security.oauthbearer import OAUTHBEARER
    from ottla.model.settings.security.sasl import PLAIN
    from ottla.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
    from ottla.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
    from ottla.wire.messages.sasl_handshake_request import SaslHandshakeRequest
    from ottla.wire.messages.sasl_handshake_response import SaslHandshakeResponse

    handshake = await ask(
        SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse, HANDSHAKE_VERSION
    )
    code = handshake.error_code
    if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        served = ", ".join(handshake.mechanisms)
        raise RefusedError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            f"the broker at {address} does not serve {login.mechanism}, but {served}",
        )
    if code == ErrorCode.ILLEGAL_SASL_STATE:
        raise RefusedError(
            ErrorCode.ILLEGAL_SASL_STATE, f"the broker at {address} asks for no login there"
        )
    _raise_for(code, None)

    async def exchange(token: bytes) -> "SaslAuthenticateResponse":
        answer: SaslAuthenticateResponse = await ask(
            SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, None
        )
        _raise_for(answer.error_code, answer.error_message)
        return answer

    if login.mechanism == PLAIN:
        token = f"\0{login.username}\0{login.password}".encode()
        answer = await exchange(token)
    elif login.mechanism == OAUTHBEARER:
        answer = await _show_token(login, exchange)
    else:
        answer = await _authenticate_by_scram(login, exchange)
    return renew_after_s(answer.session_lifetime_ms)


def renew_after_s(lifetime_ms: int) -> float | None:
    """Return the seconds until a SASL session must be renewed, or None if it does not expire."""
    if lifetime_ms <= 0:
        return None
    # A broker refuses a renewal within the first second.
    return max(lifetime_ms * RENEW_AT, min(RENEWAL_PAUSE_MS, lifetime_ms * RENEW_AT_LATEST)) / 1_000


async def _show_token(
    login: "SaslLogin", exchange: "Callable[[bytes], Awaitable[SaslAuthenticateResponse]]"
) -> "SaslAuthenticateResponse":
    """Authenticate by OAUTHBEARER, with a bearer token of the login's token store. Returns the
    broker's response."""
    # Imported on demand: fetching tokens needs an HTTP client.
    from ottla.client.network.bearer_tokens import store_of
    from ottla.model.security.oauthbearer import ACKNOWLEDGEMENT, bearer_message

    token = await store_of(login).token()
    try:
        first = bearer_message(token)
    except ValueError as error:
        raise RefusedError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error)) from None
    answer = await exchange(first)
    if answer.auth_bytes:
        # This is an error.  The broker sends its code after the acknowledgement.
        await exchange(ACKNOWLEDGEMENT)
        raise RefusedError(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            bytes(answer.auth_bytes).decode(errors="replace"),
        )
    return answer


async def _authenticate_by_scram(
    login: "SaslLogin", exchange: "Callable[[bytes], Awaitable[SaslAuthenticateResponse]]"
) -> "SaslAuthenticateResponse":
    """Authenticate by SCRAM: prove that this client has the password, and verify that the broker
    has the matching credential. Returns the broker's last response."""
    from ottla.model.security.scram import SCRAM_BY_NAME, ScramClient

    hashing = SCRAM_BY_NAME[login.mechanism]
    client = ScramClient(hashing, login.username, secrets.token_hex(16), is_token=login.is_token)
    first = await exchange(client.first)
    salt, iterations = client.on_server_first(bytes(first.auth_bytes))
    salted = await trio.to_thread.run_sync(
        _salted_password, hashing, login.password, salt, iterations, abandon_on_cancel=True
    )
    last = await exchange(client.final(salted))
    client.check_server_final(bytes(last.auth_bytes))
    return last


@lru_cache(maxsize=SALTED_PASSWORDS_MAX)
def _salted_password(hashing: "ScramHash", password: str, salt: bytes, iterations: int) -> bytes:
    return hashing.salted_password(password, salt, iterations)


def _raise_for(code: int, message: str | None) -> None:
    if code != ErrorCode.NONE:
        row = row_of(code)
        raise RefusedError(ErrorCode(row.code), message or row.meaning)


def starter_of(nursery: trio.Nursery) -> Callable[..., None]:
    """Return a function with the signature of `nursery.start_soon`. Each task that it starts gets
    the login and TLS settings of the task that calls `starter_of`.

    trio starts a task in the context of the task that calls `start_soon`. Without this function,
    tasks that another task starts would send unauthenticated requests.
    """
    context = copy_context()

    def start_soon(work: Callable[..., Awaitable[object]], *arguments: object) -> None:
        context.run(lambda: nursery.start_soon(work, *arguments))

    return start_soon
