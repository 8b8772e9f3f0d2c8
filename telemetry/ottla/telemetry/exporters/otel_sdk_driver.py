"""Export of a node's trace spans to collectors, with the provider, batches and exporters of the
OpenTelemetry SDK.

Spans are created long after the responses to their requests, with the times that were recorded
during the request. The SDK's own threads encode and send the spans. Each collector has one thread
and a bounded queue that drops the oldest spans. The extra `otel` installs the SDK, which is
imported only if spans are exported.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.model.settings.telemetry.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.exporters.collector_tls_driver import system_trust

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from requests import Session

SPANS_QUEUED_MAX = 10_000
"""Maximum number of trace spans that are queued for each collector. The queue is sufficient for up
to four seconds."""

BATCH_SPANS_MAX = 512
"""Maximum number of trace spans in a batch to a collector, about 200 KB. Collectors accept 4 MiB by
default."""

EXPORT_INTERVAL_MS = 1_000

CLOSE_S_MAX = 3.0
"""Maximum time in seconds that the node's shutdown waits for collectors to accept the queued spans.
The limit for the clients' metric pushes is the same."""


def check_otel_sdk(setting: str) -> None:
    """Raise ConfigError if the OpenTelemetry SDK is not installed. The error names `setting`, which
    needs the SDK."""
    try:
        import opentelemetry.exporter.otlp.proto.grpc.trace_exporter
        import opentelemetry.exporter.otlp.proto.http.trace_exporter
        import opentelemetry.sdk.trace.export  # noqa: F401  # imported to see whether they can be
    except ImportError as error:
        raise ConfigError(
            setting,
            f"needs {error.name}, which is not installed; install it with: {install_hint('otel')}",
        ) from None


def open_tracer_provider(config: ExporterConfig, attributes: Mapping[str, str]) -> "TracerProvider":
    """Return a provider of OpenTelemetry tracers that sends spans to all collectors. The caller
    must end it with `close_tracer_provider`.

    `attributes` identify the node. Every span is recorded, because the code that creates spans has
    already decided which requests are sampled.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    from ottla.telemetry.exporters.watched_exporter_driver import WatchedExporter

    # Attributes of the environment (OTEL_RESOURCE_ATTRIBUTES) are added.  If a name occurs in both,
    # ours is used.
    resource = Resource.create(dict(attributes))
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    for endpoint in config.otlp_endpoints:
        provider.add_span_processor(
            BatchSpanProcessor(
                WatchedExporter(str(endpoint), _span_exporter(endpoint, config)),
                max_queue_size=SPANS_QUEUED_MAX,
                max_export_batch_size=BATCH_SPANS_MAX,
                schedule_delay_millis=EXPORT_INTERVAL_MS,
            )
        )
    return provider


async def close_tracer_provider(provider: "TracerProvider") -> None:
    """Send the queued trace spans for at most `CLOSE_S_MAX` seconds, and end the SDK's threads."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S_MAX):
        # The thread of a collector that hangs ends with the process.
        await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _span_exporter(endpoint: OtlpEndpoint, config: ExporterConfig) -> "SpanExporter":
    if endpoint.scheme.startswith("grpc"):
        from ottla.telemetry.exporters.otlp_grpc_driver import span_exporter

        return span_exporter(endpoint, config)
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=f"{endpoint}/v1/traces",
        # The file is read for each new connection.  Otherwise, requests would use CAs of its own.
        certificate_file=config.otlp_truststore_location or system_trust(),
        client_certificate_file=config.otlp_keystore_location or None,
        session=_session_to(str(endpoint)),
        headers=dict(config.otlp_headers),
        timeout=config.otlp_timeout_ms / 1_000,
        compression=Compression(config.otlp_compression),
    )


def _session_to(url: str) -> "Session":
    """Return an HTTP session for a collector's URL. It uses the proxy in the environment variables,
    and ignores all other settings in the environment.

    Otherwise REQUESTS_CA_BUNDLE would take precedence over the CAs in the node's settings.
    """
    from requests import Session
    from requests.utils import get_environ_proxies

    session = Session()
    session.trust_env = False
    session.proxies = get_environ_proxies(url)
    return session
