"""HTTP server for Prometheus and for probes: GET /metrics, /healthz and /readyz over HTTP or HTTPS.

The metrics text is rendered in slices of a few milliseconds, between which other tasks of the
process run. Each slice is sent at once. A scrape therefore does not block the event loop, and the
whole text is never in memory. The size and duration of requests, and the number of connections,
are limited. If there are too many connections, the connection that has been idle longest is
closed. If a token or users are configured, requests for /metrics without valid credentials are
refused.

/healthz shows that the event loop responds. /readyz shows whether the node is ready. If it is not
ready, the status is 503 and the text contains the reason. Both paths need no credentials, because
probes seldom have them, and reveal no names.
"""

import logging
import time
import zlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import trio

from ottla.model.errors import ConfigError, ProtocolError
from ottla.model.log_events import event
from ottla.model.settings.security.tls import TlsConfig
from ottla.model.settings.telemetry.metrics_access import OPEN_ACCESS, MetricsAccess
from ottla.model.tls.changed_files_driver import ChangedFiles
from ottla.model.tls.context_driver import server_context
from ottla.model.tls.stream_driver import TlsServerStream
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.metrics.prometheus_text import CONTENT_TYPE

_LOGGER = logging.getLogger(__name__)

PATH = "/metrics"
HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"

SLICE_NS = 2_000_000
"""Time in ns for which rendering one slice of the metrics text blocks the event loop. With a lower
value, clients are delayed less. With a higher value, a scrape ends sooner on a busy loop, where
each slice waits for other tasks."""

CHUNK_BYTES = 64 * 1024
"""Minimum size in bytes of a piece of the metrics text that the server sends, except for the last
piece."""

HEAD_BYTES_MAX = 8 * 1024
CONNECTION_COUNT_MAX = 16
REQUEST_TIMEOUT_S = 30.0
"""Timeout in seconds for a client of the metrics server. It limits the time to send a request, and
the time to read one chunk of the response."""

IDLE_TIMEOUT_S = 300.0
"""Time in seconds for which the metrics server keeps an idle connection for the next scrape. It is
longer than any usual scrape interval."""

GZIP_LEVEL = 1
"""Compression level of gzip for the metrics text. A higher level costs more time of the event loop
than it saves on the network."""

GZIP_WINDOW_BITS = 31

ANSWER_PATIENCE_S = 10.0
"""Time in seconds after which the metrics server may close the connection of a slow reader in
favour of a new connection. With a lower value, scrapes over slow networks are cut off. With a
higher value, slow readers exclude other clients for longer."""

Render = Callable[[], Iterator[bytes]]
"""Function that renders the metrics text of a new scrape, piece by piece. After an empty piece,
other tasks may run."""


Unready = Callable[[], str | None]
"""Function that returns the reason why the node is not ready, as a sentence, or None if the node is
ready."""


def always_ready() -> str | None:
    """Return None, which means that the node is ready. This is the default for nodes without a
    check: they are ready as soon as they respond."""
    return None


class Head(NamedTuple):
    """Request line and header fields of an HTTP request that the metrics server uses."""

    method: str
    path: str
    is_kept_alive: bool
    speaks_chunks: bool
    takes_gzip: bool
    authorization: str = ""


async def serve_metrics(
    render: Render,
    *,
    host: str,
    port: int,
    access: MetricsAccess = OPEN_ACCESS,
    errors: UnexpectedErrors | None = None,
    unready: Unready = always_ready,
    task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve /metrics and the probes (/healthz, /readyz) over HTTP until cancelled.
    `task_status.started` reports the port; with port 0, the system chooses the port.

    Raises ConfigError if the address cannot be opened.
    """
    try:
        listeners = await trio.open_tcp_listeners(port, host=host or None)
    except OSError as error:
        address = f"{host}:{port}"
        raise ConfigError(
            "metrics.prometheus.port", f"{address} cannot be opened ({error.strerror or error})"
        ) from error
    tls = None if access.tls is None else MetricsTls(access.tls)
    server = MetricsServer(render, errors or UnexpectedErrors(), access, tls, unready)
    bound: int = listeners[0].socket.getsockname()[1]
    task_status.started(bound)
    await trio.serve_listeners(server.serve, listeners)


class MetricsTls:
    """The TLS certificate of the metrics server. If its file changes, new connections use the new
    certificate."""

    def __init__(self, config: TlsConfig) -> None:
        """Read the certificate and private key of the metrics server. Raises ConfigError if they
        are unusable."""
        self._config = config
        self._files = ChangedFiles(config.files)
        self._context = server_context(config)

    def wrapped(self, stream: trio.abc.Stream) -> TlsServerStream:
        """Return a TLS stream over a client's stream. The handshake takes place with the first
        read."""
        if self._files.look():
            try:
                self._context = server_context(self._config)
            except ConfigError as error:
                _LOGGER.error(
                    "the new certificate of /metrics cannot be used, the previous one stays: %s",
                    error,
                    extra=event("certificate.refused"),
                )
        return TlsServerStream(stream, self._context)


class MetricsCaller:
    """One connection to the metrics server: whether the connection is idle or a response is being
    sent on it, and the time of the last change."""

    __slots__ = ("is_answered", "scope", "since")

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.turn_to(is_answered=False)

    def turn_to(self, *, is_answered: bool) -> None:
        """Record whether the server is sending a response on this connection (`is_answered`), or is
        waiting for the next request."""
        self.is_answered = is_answered
        self.since = trio.current_time()


class MetricsServer:
    """The HTTP server of /metrics and of the probes, with its open connections."""

    def __init__(
        self,
        render: Render,
        errors: UnexpectedErrors,
        access: MetricsAccess = OPEN_ACCESS,
        tls: MetricsTls | None = None,
        unready: Unready = always_ready,
    ) -> None:
        self._render = render
        self._errors = errors
        self._access = access
        self._tls = tls
        self._unready = unready
        self._callers: dict[MetricsCaller, None] = {}

    async def serve(self, socket: trio.abc.HalfCloseableStream) -> None:
        """Process the HTTP requests of one connection until it ends."""
        caller = MetricsCaller()
        stream: trio.abc.Stream = socket
        try:
            if len(self._callers) >= CONNECTION_COUNT_MAX and not self._make_room():
                await _refuse(stream, "503 Service Unavailable")
                return
            self._callers[caller] = None
            if self._tls is not None:
                stream = self._tls.wrapped(socket)
            with caller.scope:
                await self._serve_requests(stream, caller)
        except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
            pass  # the peer has disconnected, or does not behave
        except ProtocolError:
            await _refuse(stream, "400 Bad Request")
        except Exception as error:
            self._errors.note("connection", "to /metrics", error)
        finally:
            self._callers.pop(caller, None)
            await trio.aclose_forcefully(socket)

    def _make_room(self) -> bool:
        """Close the connection to the metrics server that has been idle longest. If no connection
        is idle, close a connection whose peer reads too slowly. Returns False if no connection can
        be closed."""
        now = trio.current_time()
        droppable = [
            caller
            for caller in self._callers
            if not caller.is_answered or now - caller.since > ANSWER_PATIENCE_S
        ]
        if not droppable:
            return False
        dropped = min(droppable, key=lambda caller: (caller.is_answered, caller.since))
        del self._callers[dropped]
        dropped.scope.cancel()
        return True

    async def _serve_requests(self, stream: trio.abc.Stream, caller: MetricsCaller) -> None:
        held = bytearray()
        is_kept = False
        while True:
            caller.turn_to(is_answered=False)
            if is_kept and not held:
                with trio.fail_after(IDLE_TIMEOUT_S):
                    held += await stream.receive_some(HEAD_BYTES_MAX)
            with trio.fail_after(REQUEST_TIMEOUT_S):
                head = await _next_head(stream, held)
            if head is None:
                return
            caller.turn_to(is_answered=True)
            if head.path not in (PATH, HEALTH_PATH, READY_PATH):
                await _refuse(stream, "404 Not Found")
                return
            if head.method != "GET":
                await _refuse(stream, "405 Method Not Allowed", "Allow: GET\r\n")
                return
            if head.path != PATH:
                await self._answer_probe(stream, head)
            elif not self._access.allows(head.authorization):
                fields = f"WWW-Authenticate: {self._access.challenge}\r\n"
                await _refuse(stream, "401 Unauthorized", fields)
                return
            else:
                await self._answer(stream, head)
            if not head.is_kept_alive:
                with trio.fail_after(REQUEST_TIMEOUT_S):
                    await _end(stream)
                return
            is_kept = True

    async def _answer_probe(self, stream: trio.abc.Stream, head: Head) -> None:
        reason = self._unready() if head.path == READY_PATH else None
        body = f"{reason or 'ok'}\n".encode()
        fields = (
            "HTTP/1.1 200 OK" if reason is None else "HTTP/1.1 503 Service Unavailable",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: keep-alive" if head.is_kept_alive else "Connection: close",
        )
        await _send(stream, "\r\n".join((*fields, "", "")).encode() + body)

    async def _answer(self, stream: trio.abc.Stream, head: Head) -> None:
        fields = [
            "HTTP/1.1 200 OK",
            f"Content-Type: {CONTENT_TYPE}",
            "Connection: keep-alive" if head.is_kept_alive else "Connection: close",
        ]
        if head.takes_gzip:
            fields.append("Content-Encoding: gzip")
        if head.speaks_chunks:
            fields.append("Transfer-Encoding: chunked")
        await _send(stream, "\r\n".join((*fields, "", "")).encode())
        compressor = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_WINDOW_BITS)
        text = bytearray()
        ends_ns = time.perf_counter_ns() + SLICE_NS
        for piece in self._render():
            text += compressor.compress(piece) if head.takes_gzip else piece
            if time.perf_counter_ns() >= ends_ns:
                if len(text) >= CHUNK_BYTES:
                    await _send(stream, _chunk(text, head))
                    text.clear()
                else:
                    await trio.lowlevel.checkpoint()
                ends_ns = time.perf_counter_ns() + SLICE_NS
        if head.takes_gzip:
            text += compressor.flush()
        last = b"0\r\n\r\n" if head.speaks_chunks else b""
        await _send(stream, _chunk(text, head) + last)


async def _next_head(stream: trio.abc.Stream, held: bytearray) -> Head | None:
    """Return the head of the next HTTP request, or None at the end of the stream. Raises
    ProtocolError if the head is malformed."""
    while (end := held.find(b"\r\n\r\n")) < 0:
        if len(held) > HEAD_BYTES_MAX:
            raise ProtocolError(f"a request of more than {HEAD_BYTES_MAX} bytes")
        data = await stream.receive_some(HEAD_BYTES_MAX)
        if not data:
            return None
        held += data
    head = parse_head(bytes(held[:end]))
    del held[: end + 4]
    return head


def parse_head(data: bytes) -> Head:
    """Return the request line and the header fields of an HTTP request. Raises ProtocolError if
    `data` is not the head of an HTTP/1 request."""
    lines = data.decode("latin-1").split("\r\n")
    request_line = lines[0].split(" ")
    if len(request_line) != 3 or not request_line[2].startswith("HTTP/1."):
        raise ProtocolError(f"request line {lines[0][:100]!r}")
    method, target, version = request_line
    fields: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or name != name.strip():
            raise ProtocolError(f"header field {line[:100]!r}")
        fields[name.lower()] = value.strip()
    authorization = fields.pop("authorization", "")
    fields = {name: value.lower() for name, value in fields.items()}
    has_body = fields.get("content-length", "0") != "0" or "transfer-encoding" in fields
    is_newest = version != "HTTP/1.0"
    return Head(
        method,
        target.partition("?")[0],
        # A body would be taken for the next request, so the connection is closed after this
        # response.
        is_kept_alive=is_newest and "close" not in fields.get("connection", "") and not has_body,
        speaks_chunks=is_newest,
        takes_gzip=_takes_gzip(fields.get("accept-encoding", "")),
        authorization=authorization,
    )


def _takes_gzip(accepted: str) -> bool:
    for one in accepted.split(","):
        coding, _, parameter = one.partition(";")
        if coding.strip() == "gzip":
            return parameter.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _chunk(text: bytearray, head: Head) -> bytes:
    if not head.speaks_chunks or not text:
        return bytes(text)
    return b"%x\r\n%b\r\n" % (len(text), bytes(text))


async def _send(stream: trio.abc.Stream, data: bytes) -> None:
    with trio.fail_after(REQUEST_TIMEOUT_S):
        await stream.send_all(data)


async def _refuse(stream: trio.abc.Stream, status: str, fields: str = "") -> None:
    """Send an HTTP error response and close the connection. The connection is closed even if the
    peer does not read the response."""
    text = f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n{fields}\r\n"
    try:
        with trio.move_on_after(REQUEST_TIMEOUT_S):
            await stream.send_all(text.encode())
            await _end(stream)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass


async def _end(stream: trio.abc.Stream) -> None:
    """End a connection to the metrics server: send TLS's close_notify, or close the sending side of
    a socket without TLS."""
    if isinstance(stream, trio.abc.HalfCloseableStream):
        await stream.send_eof()
    else:
        await stream.aclose()
