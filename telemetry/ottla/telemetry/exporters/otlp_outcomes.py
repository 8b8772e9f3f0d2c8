"""Outcome of a batch of metrics, as a collector's response reports it. Pure."""

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)

from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict


def sent(answer: bytes) -> ExportOutcome:
    """Return the outcome of a batch that a collector accepted with the response `answer`. The
    outcome includes the number of points that the collector rejected."""
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return ExportOutcome(verdict=ExportVerdict.SENT)
    return ExportOutcome(
        verdict=ExportVerdict.SENT,
        why=partial.error_message,
        rejected_points=max(partial.rejected_data_points, 0),
    )
