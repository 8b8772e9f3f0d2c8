"""Wrapper of an OpenTelemetry SDK exporter, which logs the start and the end of an outage once.

The SDK itself logs several lines for each attempt during an outage. These lines are suppressed
while a wrapped exporter is sending, and the last of them is logged as the reason of the outage.
"""

import logging
import threading
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

logger = logging.getLogger("ottla.telemetry")

SDK_LOGGERS = (
    "opentelemetry.exporter.otlp.proto.grpc.exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
)
"""Names of the loggers of the OpenTelemetry SDK's exporters, whose log messages are suppressed."""


class _LastLine(threading.local):
    """Log filter that stores the last message of an exporter of the OpenTelemetry SDK, one message
    for each thread."""

    is_listening = False
    text = "it does not answer"

    def keep_back(self, record: logging.LogRecord) -> bool:
        """Return False for messages of wrapped exporters, which must not be logged. They are stored
        as the possible reason of an outage."""
        if self.is_listening:
            self.text = record.getMessage()
        return not self.is_listening


_LAST_LINE = _LastLine()


class WatchedExporter(SpanExporter):
    """Span exporter for one collector. It wraps an exporter of the SDK, and logs outages. The SDK
    calls it in one of its threads."""

    def __init__(self, name: str, exporter: SpanExporter) -> None:
        """Wrap a span exporter. `name` is the address of the collector, for log messages."""
        self._name = name
        self._exporter = exporter
        self._lost_count = 0
        """Number of trace spans in failed batches since the last batch that the collector
        accepted."""
        for sdk_logger in map(logging.getLogger, SDK_LOGGERS):
            # Adding a filter that is present already has no effect.
            sdk_logger.addFilter(_LAST_LINE.keep_back)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send trace spans to the collector, and return the result of the wrapped exporter. Spans
        are lost if the collector does not accept them in time."""
        _LAST_LINE.is_listening = True
        try:
            result = self._exporter.export(spans)
        finally:
            _LAST_LINE.is_listening = False
        if result is not SpanExportResult.SUCCESS:
            if not self._lost_count:
                logger.warning("%s does not accept traces: %s", self._name, _LAST_LINE.text)
            self._lost_count += len(spans)
        elif self._lost_count:
            logger.warning(
                "%s accepts traces again; %d spans were lost", self._name, self._lost_count
            )
            self._lost_count = 0
        return result

    def shutdown(self) -> None:
        """Stop waiting for the collector, and close the connection to it."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing, because this exporter has no queue. Returns True."""
        return True
