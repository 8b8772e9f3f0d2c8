"""Runs the MCP (Model Context Protocol) server over streamable HTTP, for AI agents that do not
start it themselves.

- Every request needs the bearer token. All callers have the rights of the admin client's user.
- The address is a loopback address unless TLS is configured: a token in plain text can be read on
  the way.
- A web page cannot send requests through a browser on the same machine (DNS rebinding): requests
  with a foreign `Host` or `Origin` header are refused.
- No session is kept between requests. Bodies and the number of concurrent requests are bounded.
"""

import hashlib
import hmac
import socket
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ottla.client.admin import Admin
from ottla.insight.mcp_server_driver import server_of
from ottla.model.errors import ConfigError
from ottla.model.settings.endpoints import is_loopback, parse_address
from ottla.model.values import frozen

PATH = "/mcp"
TOKEN_CHARS_MIN = 32
"""Minimum length in characters of the MCP server's bearer token. A shorter token could be
guessed."""
TOKEN_CHARS_MAX = 1_024
BODY_BYTES_MAX = 256 * 1024
"""Maximum size of the body of a request to the MCP server in bytes. The largest call names a group
and a topic."""
REQUESTS_MAX = 32
"""Maximum number of concurrent requests to the MCP server with a valid token. Further requests are
refused with status 503."""
READ_TIMEOUT_S = 120
"""Time in seconds after which the MCP server closes a connection that sends no data. It exceeds the
time of the slowest answer, because a waiting client sends no data."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@frozen(kw_only=True)
class HttpSettings:
    """Address, bearer token and certificate of the MCP server over HTTP."""

    host: str
    port: int
    """TCP port of the MCP server. 0 for a free port."""
    token: str
    keystore: str | None = None
    """Path of the PEM file with the private key and the certificates. None for HTTP without TLS."""
    names: tuple[str, ...] = ()
    """Host names by which clients reach the MCP server, in addition to the host of its address."""


def settings_of(
    address: str, token_file: str | None, keystore: str | None, names: tuple[str, ...]
) -> HttpSettings:
    """Return checked settings of the MCP server over HTTP.

    Raises ConfigError if there is no token, or if a file cannot be used. Also raises ConfigError if
    there is no TLS and the address is not a loopback address."""
    try:
        host, port = parse_address(address)
    except ValueError:
        raise ConfigError("--http", f"is {address!r}; it must be HOST:PORT") from None
    if keystore is None and not is_loopback(host):
        raise ConfigError(
            "--http",
            f"is {address!r}, which is not a loopback address; --keystore FILE is needed, with "
            "which the token is sent over TLS",
        )
    if token_file is None:
        raise ConfigError("--token-file", "is missing; give a file with the token of the agents")
    if keystore is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(keystore, password="")
        except OSError as error:  # ssl.SSLError is an OSError
            raise ConfigError(
                "--keystore", f"{keystore} is no PEM file with a key and its certificate: {error}"
            ) from None
    return HttpSettings(
        host=host, port=port, token=read_token(token_file), keystore=keystore, names=names
    )


def read_token(path: str) -> str:
    """Return the bearer token in a file. Raises ConfigError if the token is missing, too short or
    not ASCII."""
    try:
        with Path(path).open("rb") as file:
            token = file.read(TOKEN_CHARS_MAX + 2).strip()
    except OSError as error:
        raise ConfigError("--token-file", f"{path}: {error.strerror}") from None
    if not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX or not all(
        ord("!") <= char <= ord("~") for char in token
    ):
        raise ConfigError(
            "--token-file",
            f"{path} has no token of {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} visible ASCII "
            f"characters; 'openssl rand -hex 32 > {path}' makes one",
        )
    return token.decode("ascii")


class TokenGate:
    """ASGI application that passes HTTP requests with the correct bearer token to the MCP
    application. It refuses all others with status 401, and requests in excess of REQUESTS_MAX with
    status 503."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._digest = hashlib.sha256(token.encode()).digest()
        self._request_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the bearer token of one ASGI connection, and pass the request on or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(Headers(scope=scope).getlist("authorization"))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            self._request_count += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._request_count -= 1
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1008})

    def _refusal(self, given: list[str]) -> Response | None:
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        # Digests have equal lengths: the comparison takes the same time for every wrong token.
        digest = hashlib.sha256(token.strip().encode()).digest()
        if not hmac.compare_digest(digest, self._digest) or scheme.lower() != "bearer":
            return Response("a bearer token is required", 401, {"WWW-Authenticate": "Bearer"})
        if self._request_count >= REQUESTS_MAX:
            return Response("too many concurrent requests", 503, {"Retry-After": "1"})
        return None


async def serve_http(
    admin: Admin,
    settings: HttpSettings,
    report: Callable[[str], None],
    *,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve MCP (Model Context Protocol) over HTTP until cancelled. `report` is called with the URL
    once the server accepts requests. `task_status` reports the TCP port."""
    listener = _listener(settings)
    port = int(listener.getsockname()[1])
    scheme = "http" if settings.keystore is None else "https"
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.certfile = config.keyfile = settings.keystore
    config.loglevel = "WARNING"
    config.read_timeout = READ_TIMEOUT_S
    config.include_server_header = False
    hosts = _hosts(settings, port)
    manager = StreamableHTTPSessionManager(
        server_of(admin),
        stateless=True,
        json_response=True,
        max_request_body_size=BODY_BYTES_MAX,
        security_settings=TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"{scheme}://{host}" for host in hosts]
        ),
    )
    # Without sessions there is no stream of messages to fetch by GET and no session to delete.
    routes = [Route(PATH, StreamableHTTPASGIApp(manager), methods=["POST"])]
    app: Any = TokenGate(Starlette(routes=routes), settings.token)
    async with manager.run(), trio.open_nursery() as nursery:
        await nursery.start(partial(serve, app, config, mode="asgi"))
        report(f"{scheme}://{hosts[0]}{PATH}")
        task_status.started(port)


def _listener(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        return socket.create_server((settings.host, settings.port), family=family)
    except OSError as error:
        place = f"{settings.host}:{settings.port}"
        raise ConfigError("--http", f"{place} cannot be used: {error.strerror}") from None


def _hosts(settings: HttpSettings, port: int) -> list[str]:
    """Return the accepted values of the `Host` header, starting with the address of this MCP
    server."""
    own = [f"[{settings.host}]" if ":" in settings.host else settings.host]
    if is_loopback(settings.host):
        own += LOOPBACK_NAMES
    is_default = port == (80 if settings.keystore is None else 443)
    # A named server may be behind a proxy or a port mapping: any port counts for its names.
    return [
        *(f"{name}:{port}" for name in own),
        *(own if is_default else ()),
        *settings.names,
        *(f"{name}:*" for name in settings.names),
    ]
