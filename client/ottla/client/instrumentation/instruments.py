"""Names and attributes of spans and metrics: OpenTelemetry's semantic conventions for Kafka.

Source: https://opentelemetry.io/docs/specs/semconv/messaging/ (spans, metrics, Kafka).  These
conventions are still experimental.  Durations are in seconds.
"""

from collections.abc import Mapping, Sequence
from functools import cache

from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter

from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.client.instrumentation.observed_clients import ObservedClients

SCOPE = "ottla.client"

SEND = {"messaging.operation.name": "send", "messaging.operation.type": "send"}
POLL = {"messaging.operation.name": "poll", "messaging.operation.type": "receive"}
PROCESS = {"messaging.operation.name": "process", "messaging.operation.type": "process"}

DURATION_BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Upper bounds of the buckets in histograms of durations, in seconds, as OpenTelemetry's semantic
conventions recommend."""

POLL_INTERVAL_BOUNDS_S = (0.001, 0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 120, 300, 600)
"""Upper bounds of the buckets in the histogram of poll intervals, in seconds. The bound 300 s is
the default of `max.poll.interval.ms`."""

LINKS_MAX = 128
"""Maximum number of links in the span of one poll, equal to the limit of OpenTelemetry's SDK. A
poll may return 500 records, each with a trace of its own."""


class Instruments:
    """Tracer and metric instruments that all clients of this process share."""

    def __init__(self) -> None:
        self.tracer = trace.get_tracer(SCOPE)
        meter = metrics.get_meter(SCOPE)
        self.operation_duration = meter.create_histogram(
            "messaging.client.operation.duration",
            unit="s",
            description="Duration of sending a record until its answer, or of a poll.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_S,
        )
        self.process_duration = meter.create_histogram(
            "messaging.process.duration",
            unit="s",
            description="Duration of processing a record.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS_S,
        )
        self.sent = meter.create_counter(
            "messaging.client.sent.messages",
            unit="{message}",
            description="Number of records that were sent.",
        )
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages",
            unit="{message}",
            description="Number of records that were delivered to the application.",
        )
        self.poll_interval = meter.create_histogram(
            "messaging.kafka.consumer.poll.interval",
            unit="s",
            description="Time from the end of a poll to the start of the next one, which "
            "max.poll.interval.ms bounds.",
            explicit_bucket_boundaries_advisory=POLL_INTERVAL_BOUNDS_S,
        )
        self.observed = ObservedClients(meter)


@cache
def instruments() -> Instruments:
    """Return the tracer and metric instruments of this process. They are created when the first
    client is opened."""
    return Instruments()


def attributes_of(
    operation: Mapping[str, str], topic: str | None, client_id: str
) -> dict[str, str | int | bool]:
    """Return the attributes that all spans and metrics of an operation (such as send or poll) have
    in common."""
    common: dict[str, str | int | bool] = {
        "messaging.system": "kafka",
        **operation,
        "messaging.client.id": client_id,
    }
    return common if topic is None else {**common, "messaging.destination.name": topic}


class _RecordHeaders(Getter[Sequence[tuple[str, bytes | None]]]):
    """Reader of propagated trace fields from the headers of a record."""

    def get(self, carrier: Sequence[tuple[str, bytes | None]], key: str) -> list[str] | None:
        found = [value for name, value in carrier if name == key and value is not None]
        return [value.decode("utf-8", "replace") for value in found] or None

    def keys(self, carrier: Sequence[tuple[str, bytes | None]]) -> list[str]:
        return [name for name, _ in carrier]


_GETTER = _RecordHeaders()


def context_of(record: ConsumerRecord) -> Context:
    """Return the trace context that a record's headers contain. The sender of the record has added
    it."""
    return propagate.extract(record.headers, context=Context(), getter=_GETTER)


def link_to(record: ConsumerRecord) -> trace.Link | None:
    """Return a link to the span that sent a record, or None if the record's headers contain no
    trace context."""
    if not record.headers:
        return None
    found = trace.get_current_span(context_of(record)).get_span_context()
    return trace.Link(found) if found.is_valid else None
