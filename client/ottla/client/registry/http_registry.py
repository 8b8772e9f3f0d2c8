"""Client of a schema registry over HTTP, for trio, asyncio and blocking programs.

The body of a response is read in pieces, so that a response that is too large is refused before all
of it is in memory. Compressed responses are refused, because their decompressed size is unknown.
Redirects are not followed.
"""

import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.client.registry.failover import RETRIED_STATUSES, FailoverPlan
from ottla.client.registry.registry_errors import (
    MissingExtraError,
    RegistryUnavailableError,
    SchemaTooLargeError,
)
from ottla.client.registry.schema_registry import RegistryCall, RegistryReply, SchemaRegistry
from ottla.client.registry.schema_values import SCHEMA_BYTES_MAX
from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    import httpx2

REPLY_BYTES_MAX = 2 * SCHEMA_BYTES_MAX
"""Maximum size of a response in bytes. It allows for a schema of maximum size inside a JSON text,
in which quotes are escaped."""

MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConfig:
    """Settings of the client of a schema registry."""

    basic_auth: tuple[str, str] | None = None
    """User name and password. They may also be in the address: `https://user:password@host`."""
    bearer_token: str | Callable[[], str] | None = field(default=None, repr=False)
    """Bearer token, or a function that returns the current token. The function must not block."""
    ca_file: str | None = None
    """PEM file with the trusted CAs. By default, the CAs of the operating system are trusted."""
    certificate_file: str | None = None
    """PEM file with the client's certificate. It also contains the private key if `key_file` is
    None."""
    key_file: str | None = None
    """PEM file with the client's private key."""
    timeout_s: float = 10.0
    """Maximum duration of one attempt to send a request, in seconds."""
    retry_count: int = 3
    """Number of additional rounds over all addresses after temporary errors."""
    retry_pause_s: float = 0.2
    """Pause, in seconds, before the second round of attempts. The pause doubles with each further
    round."""
    retry_pause_max_s: float = 5.0
    """Maximum pause between two rounds, in seconds."""
    headers: tuple[tuple[str, str], ...] = ()
    """Additional HTTP headers, such as `target-sr-cluster` for Confluent Cloud."""


@asynccontextmanager
async def open_registry(
    urls: str | Iterable[str], config: RegistryConfig | None = None
) -> AsyncIterator[SchemaRegistry]:
    """Open and yield the client of a schema registry, in trio or asyncio. The client is closed at
    the end of the caller's block.

    `urls` contains one address, or several addresses that are tried one after another. No request
    is sent before the first call.
    """
    client = _ClientSettings(urls, config or RegistryConfig())
    async with _httpx().AsyncClient(**client.arguments()) as http:
        yield SchemaRegistry(_AsyncTransport(http, client))


@contextmanager
def open_blocking_registry(
    urls: str | Iterable[str], config: RegistryConfig | None = None
) -> Iterator[SchemaRegistry]:
    """Open and yield the client of a schema registry for a program without an event loop.

    Its methods are coroutines that block the thread and never wait for an event loop. Run them with
    `run_blocking`, for example `run_blocking(registry.schema_by_id(7))`.
    """
    client = _ClientSettings(urls, config or RegistryConfig())
    with _httpx().Client(**client.arguments()) as http:
        yield SchemaRegistry(_BlockingTransport(http, client))


class _ClientSettings:
    """The addresses of a registry, and the settings that all requests share."""

    def __init__(self, urls: str | Iterable[str], config: RegistryConfig) -> None:
        self.config = config
        self._auth = config.basic_auth
        listed = urls.split(",") if isinstance(urls, str) else list(urls)
        addresses = [self._address(url.strip()) for url in listed if url.strip()]
        self._has_tls = any(url.startswith("https:") for url in addresses)
        self.plan = FailoverPlan(
            addresses or _no_address(),
            retry_count=config.retry_count,
            pause_s=config.retry_pause_s,
            pause_max_s=config.retry_pause_max_s,
        )
        if self._auth is not None and config.bearer_token is not None:
            raise ConfigError("bearer_token", "set either basic_auth or bearer_token")

    def _address(self, url: str) -> str:
        """Return an address without its user and password, which are stored separately as the
        login."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError("urls", f"{parts.hostname or url!r}: it must be http(s)://host:port")
        if parts.username is not None:
            self._auth = (unquote(parts.username), unquote(parts.password or ""))
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for creating an httpx client."""
        # Loading the CAs of the machine takes a quarter of a second, for nothing without TLS.
        context: ssl.SSLContext | bool = self._has_tls
        if self.config.ca_file or self.config.certificate_file:
            context = _tls_context(self.config)
        return {"auth": self._auth, "timeout": self.config.timeout_s, "verify": context}

    def request(self, url: str, call: RegistryCall) -> dict[str, Any]:
        """Return the arguments of one httpx request."""
        headers = {
            # A compressed response could be larger in memory than all that was received.
            "Accept-Encoding": "identity",
            "Accept": f"{MEDIA_TYPE}, application/json",
            # Newer registries refuse fields of old clients without it, see Confluent's clients.
            "Confluent-Accept-Unknown-Properties": "true",
            **dict(self.config.headers),
        }
        if call.body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        token = self.config.bearer_token
        if token is not None:
            headers["Authorization"] = f"Bearer {token() if callable(token) else token}"
        return {
            "method": call.method,
            "url": f"{url}/{call.path}",
            "params": dict(call.query),
            "content": call.body,
            "headers": headers,
        }


class _BodyReader:
    """Collects the body of a response, up to a maximum size."""

    def __init__(self, response: "httpx2.Response") -> None:
        self._body = bytearray()
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise RegistryUnavailableError(f"{response.url}: the response is compressed")
        size = response.headers.get("Content-Length", "")
        self._check(int(size) if size.isdecimal() else 0)

    def add(self, piece: bytes) -> None:
        """Append a piece of the body. Raises SchemaTooLargeError if the body becomes too large."""
        self._check(len(self._body) + len(piece))
        self._body += piece

    def reply(self, status: int) -> RegistryReply:
        """Return the complete response, with its status."""
        return RegistryReply(status, bytes(self._body))

    def _check(self, size_bytes: int) -> None:
        if size_bytes > REPLY_BYTES_MAX:
            raise SchemaTooLargeError(
                f"the registry's response has more than {REPLY_BYTES_MAX} bytes"
            )


class _AsyncTransport:
    """Transport of registry calls over HTTP in trio's or asyncio's event loop."""

    def __init__(self, http: "httpx2.AsyncClient", settings: _ClientSettings) -> None:
        self._http = http
        self._settings = settings

    async def exchange(self, call: RegistryCall) -> RegistryReply:
        """Send a request to the schema registry, and return the response."""
        import anyio

        reasons: list[str] = []
        for pause_s, url in self._settings.plan.attempts():
            if pause_s:
                await anyio.sleep(pause_s)
            try:
                # httpx limits each read; a registry that sends single bytes must end, too.
                with anyio.fail_after(self._settings.config.timeout_s):
                    reply = await self._send(url, call)
            except (_httpx().TransportError, TimeoutError) as error:
                reasons.append(_reason(url, error))
                continue
            if reply.status not in RETRIED_STATUSES:
                self._settings.plan.responded(url)
                return reply
            reasons.append(f"{url}: HTTP status {reply.status}")
        raise _unavailable(reasons)

    async def _send(self, url: str, call: RegistryCall) -> RegistryReply:
        async with self._http.stream(**self._settings.request(url, call)) as response:
            body = _BodyReader(response)
            async for piece in response.aiter_raw():
                body.add(piece)
            return body.reply(response.status_code)


class _BlockingTransport:
    """Transport of registry calls over HTTP that blocks its thread. Its coroutines never
    suspend."""

    def __init__(self, http: "httpx2.Client", settings: _ClientSettings) -> None:
        self._http = http
        self._settings = settings

    async def exchange(self, call: RegistryCall) -> RegistryReply:
        """Send a request to the schema registry, and return the response."""
        reasons: list[str] = []
        for pause_s, url in self._settings.plan.attempts():
            time.sleep(pause_s)
            try:
                reply = self._send(url, call)
            except (_httpx().TransportError, TimeoutError) as error:
                reasons.append(_reason(url, error))
                continue
            if reply.status not in RETRIED_STATUSES:
                self._settings.plan.responded(url)
                return reply
            reasons.append(f"{url}: HTTP status {reply.status}")
        raise _unavailable(reasons)

    def _send(self, url: str, call: RegistryCall) -> RegistryReply:
        ends_at = time.monotonic() + self._settings.config.timeout_s
        with self._http.stream(**self._settings.request(url, call)) as response:
            body = _BodyReader(response)
            for piece in response.iter_raw():
                body.add(piece)
                if time.monotonic() > ends_at:
                    raise TimeoutError
            return body.reply(response.status_code)


def _httpx() -> Any:
    try:
        import httpx2
    except ImportError as error:
        raise MissingExtraError("httpx2", "a schema registry over HTTP") from error
    return httpx2


def _tls_context(config: RegistryConfig) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.certificate_file:
            context.load_cert_chain(config.certificate_file, config.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("ca_file, certificate_file", f"cannot be loaded: {error}") from error
    return context


def _no_address() -> list[str]:
    raise ConfigError("urls", "no address of a registry is given")


def _reason(url: str, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        # An error of TLS arrives as the cause of an error without a text.
        cause = cause.__cause__ or cause.__context__
    return f"{url}: {cause or type(error).__name__}"


def _unavailable(reasons: list[str]) -> RegistryUnavailableError:
    shown = "; ".join(dict.fromkeys(reasons))
    return RegistryUnavailableError(f"no registry responded in {len(reasons)} attempts: {shown}")
