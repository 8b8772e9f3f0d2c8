"""Metrics to an OTLP collector, over gRPC or HTTP.

A batch is the pushes' bytes in a row, which are an ExportMetricsServiceRequest as they stand, so
nothing is encoded again: that is why the SDK's own exporters, which encode what the SDK has
measured, are not in the way.  What is retried is what OTLP's specification names.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from ottla.model.seams import Rng
from ottla.model.settings.exporters import ExporterConfig, OtlpEndpoint
from ottla.telemetry.batching_driver import BatchingExporter
from ottla.telemetry.export_queue import ExportOutcome
from ottla.telemetry.exporter import LabelledPush


class OtlpSender(Protocol):
    """Brings one request to a collector."""

    async def send(self, body: bytes) -> ExportOutcome:
        """Send an export request; every trouble with the collector is an outcome."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


class OtlpExporter:
    """One collector; owns what waits for it and the connection to it."""

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
        """Return what `BatchingExporter.counts` does."""
        return self._batching.counts()

    async def run(self) -> None:
        """Send for as long as the node runs; ends by being cancelled."""
        try:
            await self._batching.run()
        finally:
            self._sender.close()

    async def _deliver(self, batch: Sequence[LabelledPush]) -> ExportOutcome:
        return await self._sender.send(b"".join([push.otlp for push in batch]))


def open_sender(endpoint: OtlpEndpoint, config: ExporterConfig) -> OtlpSender:
    """Return what speaks to a collector; nothing is dialled before the first batch."""
    if endpoint.scheme.startswith("grpc"):
        from ottla.telemetry.otlp_grpc_driver import GrpcSender

        return GrpcSender(endpoint, config)
    from ottla.telemetry.otlp_http_driver import HttpSender

    return HttpSender(endpoint, config)
