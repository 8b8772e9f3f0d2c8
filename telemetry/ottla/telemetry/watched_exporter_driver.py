"""An exporter of OpenTelemetry's SDK, of which an outage is logged once, and its end.

The SDK's own lines are several for each attempt, while an outage lasts.  They are kept back
while an exporter of ours works, and the last one is the reason that is logged.
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
"""Where the SDK's exporters log what goes wrong."""


class _Heard(threading.local):
    """The last line of the SDK's exporter that works in this thread."""

    is_listening = False
    text = "it does not answer"

    def keep_back(self, record: logging.LogRecord) -> bool:
        """Return whether to log a line: not one of an exporter of ours."""
        if self.is_listening:
            self.text = record.getMessage()
        return not self.is_listening


_HEARD = _Heard()


class WatchedExporter(SpanExporter):
    """Sends spans to one collector, by another exporter, in a thread of the SDK."""

    def __init__(self, name: str, exporter: SpanExporter) -> None:
        """`name` is the collector's address, as the log calls it."""
        self._name = name
        self._exporter = exporter
        self._lost_count = 0
        """Spans of batches that were not taken since the last one that was."""
        for sdk_logger in map(logging.getLogger, SDK_LOGGERS):
            # A filter that is there already is not added again.
            sdk_logger.addFilter(_HEARD.keep_back)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; those that the collector does not take in time are lost."""
        _HEARD.is_listening = True
        try:
            result = self._exporter.export(spans)
        finally:
            _HEARD.is_listening = False
        if result is not SpanExportResult.SUCCESS:
            if not self._lost_count:
                logger.warning("%s does not take traces: %s", self._name, _HEARD.text)
            self._lost_count += len(spans)
        elif self._lost_count:
            logger.warning("%s takes traces again; %d spans are lost", self._name, self._lost_count)
            self._lost_count = 0
        return result

    def shutdown(self) -> None:
        """End a wait for the collector, and close the connection."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: an exporter holds no spans."""
        return True
