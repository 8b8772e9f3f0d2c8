"""Exporter of metrics to an OTLP collector, over gRPC or HTTP.

A batch consists of the concatenated bytes of pushes, which are a valid ExportMetricsServiceRequest.
Therefore no message is encoded again. The SDK's own exporters are not used, because they encode
only metrics that the SDK itself has measured. Failures are retried if they are retriable by OTLP's
specification.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.model.seams import Rng
from ottla.model.settings.telemetry.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.exporters.batching_driver import BatchingExporter
from ottla.telemetry.exporters.export_queue import ExportOutcome


class OtlpSender(Protocol):
    """Interface of a sender of export requests to one OTLP collector."""

    async def send(self, body: bytes) -> ExportOutcome:
        """Send an export request (`body`) to the collector, and return the outcome. Any problem
        with the collector is an outcome, not an exception."""
        ...

    def close(self) -> None:
        """Close the connection to the OTLP collector."""
        ...


class OtlpExporter:
    """Exporter of metrics to one OTLP collector, with its queue and connection."""

    def __init__(
        self,
        endpoint: OtlpEndpoint,
        config: ExporterConfig,
        rng: Rng,
        *,
        sender: OtlpSender | None = None,
    ) -> None:
        self._sender = sender or open_sender(endpoint, config)
        self._batching = BatchingExporter(str(endpoint), self._deliver, config, rng)
        self.name = self._batching.name
        self.offer = self._batching.offer
        self.flush = self._batching.flush

    def counts(self) -> Mapping[str, int]:
        """Return the number of pushes to the collector by state; see `BatchingExporter.counts`."""
        return self._batching.counts()

    async def run(self) -> None:
        """Send the queued pushes to the collector until this call is cancelled."""
        try:
            await self._batching.run()
        finally:
            self._sender.close()

    async def _deliver(self, batch: Sequence[LabelledPush]) -> ExportOutcome:
        return await self._sender.send(b"".join([push.otlp for push in batch]))


def open_sender(endpoint: OtlpEndpoint, config: ExporterConfig) -> OtlpSender:
    """Return the sender for an OTLP collector, over gRPC or HTTP. It connects with the first
    batch."""
    if endpoint.scheme.startswith("grpc"):
        from ottla.telemetry.exporters.otlp_grpc_driver import GrpcSender

        return GrpcSender(endpoint, config)
    from ottla.telemetry.exporters.otlp_http_driver import HttpSender

    return HttpSender(endpoint, config)
