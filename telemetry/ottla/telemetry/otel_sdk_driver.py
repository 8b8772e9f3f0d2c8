"""A node's spans on their way to collectors: the OpenTelemetry SDK's provider, batches, exporters.

Spans are made when their requests are long answered, with the instants that were noted then.  The
SDK's own threads encode and send them: one for each collector, each with a bounded queue that drops
the oldest.  The SDK comes with the extra `otel`, and is imported by who needs it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.model.settings.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.collector_tls_driver import system_trust

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from requests import Session

SPANS_QUEUED_MAX = 10_000
"""For each collector: those of four seconds, at the most."""

BATCH_SPANS_MAX = 512
"""Some 200 KB; collectors take 4 MiB unless they are told otherwise."""

EXPORT_INTERVAL_MS = 1_000

CLOSE_S_MAX = 3.0
"""How long a stop waits for collectors that take what waits for them; as for clients' pushes."""


def check_otel_sdk(setting: str) -> None:
    """Raise ConfigError, naming the setting that needs the SDK, if it is not installed."""
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
    """Return the provider whose spans go to every collector; `close_tracer_provider` ends it.

    `attributes` say which node it is.  Every span is recorded: who makes one has chosen it.
    """
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    from ottla.telemetry.watched_exporter_driver import WatchedExporter

    # What the environment says (OTEL_RESOURCE_ATTRIBUTES) is added; of one name, ours is kept.
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
    """Send what waits, for as long as that is worth a stop's time, and end the SDK's threads."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + CLOSE_S_MAX):
        # A collector that hangs keeps its thread, which ends with the process.
        await trio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def _span_exporter(endpoint: OtlpEndpoint, config: ExporterConfig) -> "SpanExporter":
    if endpoint.scheme.startswith("grpc"):
        from ottla.telemetry.otlp_grpc_driver import span_exporter

        return span_exporter(endpoint, config)
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(
        endpoint=f"{endpoint}/v1/traces",
        # Files are read for each connection that is made; requests has CAs of its own else.
        certificate_file=config.otlp_truststore_location or system_trust(),
        client_certificate_file=config.otlp_keystore_location or None,
        session=_session_to(str(endpoint)),
        headers=dict(config.otlp_headers),
        timeout=config.otlp_timeout_ms / 1_000,
        compression=Compression(config.otlp_compression),
    )


def _session_to(url: str) -> "Session":
    """Return a session that uses the environment's proxy and nothing else of it.

    REQUESTS_CA_BUNDLE would prevail over whom settings trust.
    """
    from requests import Session
    from requests.utils import get_environ_proxies

    session = Session()
    session.trust_env = False
    session.proxies = get_environ_proxies(url)
    return session
