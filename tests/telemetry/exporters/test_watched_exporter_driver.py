"""An outage of a trace collector: two log lines, however much the SDK logs during it."""

import logging
from collections.abc import Sequence
from itertools import count

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from ottla.telemetry.exporters.watched_exporter_driver import SDK_LOGGERS, WatchedExporter

NUMBERS = count()
SPANS = [ReadableSpan("a"), ReadableSpan("b")]


class Exporter(SpanExporter):
    """Logs errors as the SDK's does, and fails on demand."""

    is_failing = True

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self.is_failing:
            return SpanExportResult.SUCCESS
        for attempt in range(3):
            # The SDK lets no line through that it has logged just before.
            logging.getLogger(SDK_LOGGERS[0]).warning(f"Transient error {next(NUMBERS)}, {attempt}")
        logging.getLogger(SDK_LOGGERS[0]).error("Failed to export to %s", "h")
        return SpanExportResult.FAILURE


def test_an_outage_is_logged_once_with_its_reason_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exporter = Exporter()
    watched = WatchedExporter("grpc://h:4317", exporter)
    for _ in range(5):
        assert watched.export(SPANS) is SpanExportResult.FAILURE
    exporter.is_failing = False
    for _ in range(2):
        assert watched.export(SPANS) is SpanExportResult.SUCCESS

    assert [(line.name, line.getMessage()) for line in caplog.records] == [
        ("ottla.telemetry", "grpc://h:4317 does not accept traces: Failed to export to h"),
        ("ottla.telemetry", "grpc://h:4317 accepts traces again; 10 spans were lost"),
    ]


def test_lines_of_other_exporters_of_the_process_are_left_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    WatchedExporter("grpc://h:4317", Exporter()).export(SPANS)
    caplog.clear()
    Exporter().export(SPANS)
    names = [line.name for line in caplog.records]
    assert set(names) == {SDK_LOGGERS[0]}
    assert len(names) >= 3
