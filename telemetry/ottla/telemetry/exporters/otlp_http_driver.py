"""OTLP over HTTP: one POST per batch, in a worker thread, on a new connection.

Batches are sent at most a few times a second. A persistent connection would save little, because
the collector would often have closed it.
"""

import gzip
import http.client
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import trio

from ottla.model.limits import KIB
from ottla.model.settings.telemetry.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.exporters.collector_tls_driver import CollectorTls
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict
from ottla.telemetry.exporters.otlp_outcomes import sent

ANSWER_BYTES_MAX = 64 * KIB
"""Maximum number of bytes that are read of a collector's HTTP response. The response to a partial
success has a few hundred bytes."""
SECONDS_DIGITS_MAX = 9
RETRIABLE = {429, 502, 503, 504}
"""HTTP status codes after which OTLP's specification allows an export to be retried."""


class HttpSender:
    """Sender of OTLP requests to one collector. Each request uses a new HTTP connection."""

    def __init__(self, endpoint: OtlpEndpoint, config: ExporterConfig) -> None:
        self._endpoint = endpoint
        self._tls = CollectorTls(config) if endpoint.is_encrypted else None
        self._path = f"{endpoint.path}/v1/metrics"
        self._timeout_seconds = config.otlp_timeout_ms / 1_000
        self._is_packed = config.otlp_compression == "gzip"
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "User-Agent": "ottla",
            "Connection": "close",
            **({"Content-Encoding": "gzip"} if self._is_packed else {}),
            **dict(config.otlp_headers),
        }
        self._limiter = trio.CapacityLimiter(1)

    async def send(self, body: bytes) -> ExportOutcome:
        """Send an export request (`body`) to the collector, and return the outcome. Any problem
        with the collector is an outcome, not an exception."""
        # Abandoned when the node stops: the thread ends after its timeout.
        return await trio.to_thread.run_sync(
            self._post, body, abandon_on_cancel=True, limiter=self._limiter
        )

    def close(self) -> None:
        """Do nothing, because each HTTP connection is closed after its batch."""

    def _post(self, body: bytes) -> ExportOutcome:
        connection = self._connection()
        try:
            packed = gzip.compress(body) if self._is_packed else body
            connection.request("POST", self._path, packed, self._headers)
            answer = connection.getresponse()
            return _outcome_of(answer, answer.read(ANSWER_BYTES_MAX))
        except (OSError, http.client.HTTPException) as error:
            return ExportOutcome(
                verdict=ExportVerdict.RETRY, why=f"{type(error).__name__}: {error}"
            )
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._endpoint.host, self._endpoint.port
        if self._tls is not None:
            self._tls.look()
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout_seconds, context=self._tls.context
            )
        return http.client.HTTPConnection(host, port, timeout=self._timeout_seconds)


def _outcome_of(answer: http.client.HTTPResponse, body: bytes) -> ExportOutcome:
    if 200 <= answer.status < 300:
        return sent(body)
    return ExportOutcome(
        verdict=ExportVerdict.RETRY if answer.status in RETRIABLE else ExportVerdict.REFUSED,
        why=f"{answer.status} {answer.reason}",
        retry_after_ms=retry_after_ms(answer.getheader("Retry-After"), datetime.now(UTC)),
    )


def retry_after_ms(header: str | None, now: datetime) -> int | None:
    """Return the delay in ms that a Retry-After header requests, by a number of seconds or by a
    date. Returns None if the header is missing or has another format."""
    if header is None:
        return None
    seconds = header.strip()
    if seconds.isdecimal():
        # A longer number makes no difference, and one of thousands of digits cannot be parsed.
        return int(seconds[:SECONDS_DIGITS_MAX]) * 1_000
    try:
        until = parsedate_to_datetime(header)
    except ValueError:
        return None
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(int((until - now).total_seconds() * 1_000), 0)
