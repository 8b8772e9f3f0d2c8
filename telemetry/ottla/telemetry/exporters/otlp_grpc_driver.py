"""OTLP over gRPC: one call per batch. A trio task awaits the call, without an additional thread.

All other code uses gRPC through `rpc/`, with an asyncio thread, but telemetry must not import that
package. For occasional calls, gRPC's callback API is sufficient and needs no event loop. It starts
a call at once, and reports its end from a thread of gRPC, which wakes the trio task.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import trio
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]  # no stubs
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]  # it ships none

from ottla.model.settings.telemetry.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.exporters.collector_tls_driver import (
    CollectorTls,
    renewed,
    system_certificates,
)
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict
from ottla.telemetry.exporters.otlp_outcomes import sent

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

PATH = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
RECONNECT_MS_MAX = 1_000
"""Maximum delay in ms before gRPC reconnects to a collector. The exporter, not gRPC, decides when a
batch is retried."""
OPTIONS = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
    ("grpc.enable_retries", 0),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
)
RETRIABLE = {
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
}
"""gRPC status codes after which OTLP's specification allows an export to be retried.
RESOURCE_EXHAUSTED is also retriable if the collector requests a delay."""
DETAILS_KEY = "grpc-status-details-bin"


class GrpcSender:
    """Sender of OTLP requests to one collector, over a gRPC channel that is opened with the first
    batch."""

    def __init__(self, endpoint: OtlpEndpoint, config: ExporterConfig) -> None:
        self._address = _address_of(endpoint)
        self._tls = CollectorTls(config) if endpoint.is_encrypted else None
        self._tls_version = 0
        self._headers = config.otlp_headers
        self._timeout_ms = config.otlp_timeout_ms
        self._compression = _compression_of(config)
        self._channel: grpc.Channel | None = None
        self._export: Any = None

    async def send(self, body: bytes) -> ExportOutcome:
        """Send an export request (`body`) to the collector, and return the outcome. Any problem
        with the collector is an outcome, not an exception."""
        if self._tls is not None and self._tls.look() != self._tls_version:
            self.close()
        if self._channel is None:
            self._channel = self._open()
            self._export = self._channel.unary_unary(PATH)  # requests and responses are bytes
        ended = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def tell(_: object) -> None:
            with suppress(trio.RunFinishedError):  # the node has stopped
                token.run_sync_soon(ended.set)

        call = self._export.future(
            body,
            timeout=self._timeout_ms / 1_000,
            metadata=self._headers,
            compression=self._compression,
        )
        call.add_done_callback(tell)
        try:
            await ended.wait()
        except trio.Cancelled:
            call.cancel()
            raise
        return _outcome_of(call)

    def close(self) -> None:
        """Close the gRPC channel to the collector. A later batch would open it again."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _open(self) -> grpc.Channel:
        if self._tls is not None:
            self._tls_version = self._tls.look()
            return grpc.secure_channel(self._address, _credentials_of(self._tls), OPTIONS)
        return grpc.insecure_channel(self._address, OPTIONS)


def span_exporter(endpoint: OtlpEndpoint, config: ExporterConfig) -> "SpanExporter":
    """Return the OpenTelemetry SDK's span exporter for the collector at `endpoint`."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    def make() -> "SpanExporter":
        return OTLPSpanExporter(
            endpoint=f"{'http' if tls is None else 'https'}://{_address_of(endpoint)}",
            insecure=tls is None,
            credentials=None if tls is None else _credentials_of(tls),
            headers=config.otlp_headers,
            timeout=config.otlp_timeout_ms / 1_000,
            compression=_compression_of(config),
        )

    tls = CollectorTls(config) if endpoint.is_encrypted else None
    return make() if tls is None else renewed(tls, make)


def _credentials_of(tls: CollectorTls) -> grpc.ChannelCredentials:
    material = tls.material
    parts = (material.trusted, material.key, material.chain)
    trusted, key, chain = (part.encode() or None for part in parts)
    # gRPC's built-in CAs differ from those of the machine.
    return grpc.ssl_channel_credentials(trusted or system_certificates(), key, chain)


def _address_of(endpoint: OtlpEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def _compression_of(config: ExporterConfig) -> grpc.Compression:
    if config.otlp_compression == "gzip":
        return grpc.Compression.Gzip
    return grpc.Compression.NoCompression


def _outcome_of(call: Any) -> ExportOutcome:
    code = call.code()
    if code is grpc.StatusCode.OK:
        return sent(call.result())
    retry_after_ms = _retry_after_ms(call.trailing_metadata() or ())
    is_retriable = code in RETRIABLE or (
        code is grpc.StatusCode.RESOURCE_EXHAUSTED and retry_after_ms is not None
    )
    return ExportOutcome(
        verdict=ExportVerdict.RETRY if is_retriable else ExportVerdict.REFUSED,
        why=f"{code.name}: {call.details()}",
        retry_after_ms=retry_after_ms,
    )


def _retry_after_ms(trailers: Any) -> int | None:
    """Return the delay in ms that a collector requests in the details of a gRPC error, or None if
    it requests no delay."""
    for key, value in trailers:
        if key == DETAILS_KEY:
            try:
                details = Status.FromString(value).details
                for detail in details:
                    wanted = RetryInfo()
                    if detail.Unpack(wanted):
                        return int(wanted.retry_delay.ToMilliseconds())
            except DecodeError:
                return None
    return None
