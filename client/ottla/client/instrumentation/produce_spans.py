"""Spans of Produce requests. They connect the spans of records with the spans that a broker
creates.

A request's span is a child of the span of its first record, and has links to the spans of its other
records. The context of the span is sent in the request header to brokers that support this, so that
the broker's spans belong to the same trace. Records whose spans are not recorded are ignored. A
cancelled request has no span.
"""

from collections import Counter
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context

from ottla.client.instrumentation.instruments import LINKS_MAX, instruments
from ottla.client.network.broker_link import Loss
from ottla.client.network.pipeline import Pipeline
from ottla.client.produce.partition_queue import ProducerBatch
from ottla.client.produce.producer_link import ProduceExchange, ProducerLink
from ottla.wire.messages.produce_response import ProduceResponse

SENDERS_MAX = 1 + LINKS_MAX
"""Maximum number of record spans that are kept per batch: one as the parent, the rest as links."""


class TracedProducerLink(ProducerLink):
    """The connection of a producer with tracing to one broker. Each Produce request gets a span."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._spans: dict[ProduceExchange, Span] = {}

    def _trace_context(self, pipeline: Pipeline, exchange: ProduceExchange) -> bytes | None:
        span = _begin_span(exchange, pipeline.address, self._settings.client_id)
        if span is None:
            return None
        self._spans[exchange] = span
        return traceparent_of(span) if pipeline.reads_trace_contexts else None

    async def _send_one(self, pipeline: Pipeline, batches: list[ProducerBatch]) -> None:
        await super()._send_one(pipeline, batches)
        if self._acks == 0:
            self._end_all()

    def _take(self, exchange: ProduceExchange, answer: ProduceResponse) -> None:
        # Ended before the spans of its records, which end when the response is processed.
        if (span := self._spans.pop(exchange, None)) is not None:
            span.end()
        super()._take(exchange, answer)

    def _lose(self, why: Loss) -> None:
        self._end_all(why)
        super()._lose(why)

    def _end_all(self, why: Loss | None = None) -> None:
        for span in self._spans.values():
            if why is not None:
                span.set_attribute("error.type", type(why).__qualname__)
                span.set_status(Status(StatusCode.ERROR, str(why)))
            span.end()
        self._spans.clear()


def _begin_span(exchange: ProduceExchange, address: str, client_id: str) -> Span | None:
    """Start the span of a Produce request. Returns None if none of the spans of its records is
    recorded."""
    senders: list[Span] = []
    for batch in exchange.batches:
        if batch.senders is not None and len(senders) < SENDERS_MAX:
            senders += batch.senders[: SENDERS_MAX - len(senders)]
    if not senders:
        return None
    host, _, port = address.rpartition(":")
    counts: Counter[str] = Counter()
    for batch in exchange.batches:
        counts[batch.partition.topic] += batch.record_count
    attributes: dict[str, str | int] = {
        "rpc.system": "kafka",
        "rpc.method": "Produce",
        "messaging.system": "kafka",
        "messaging.client.id": client_id,
        "messaging.batch.message_count": counts.total(),
        "server.address": host,
        "server.port": int(port),
    }
    if len(counts) == 1:
        attributes["messaging.destination.name"] = next(iter(counts))
    return instruments().tracer.start_span(
        "Produce",
        context=set_span_in_context(senders[0], Context()),
        kind=SpanKind.CLIENT,
        links=[Link(sender.get_span_context()) for sender in senders[1:]],
        attributes=attributes,
    )


def traceparent_of(span: Span) -> bytes:
    """Return the context of a span in W3C's `traceparent` format."""
    context = span.get_span_context()
    flags = int(context.trace_flags)
    return b"00-%032x-%016x-%02x" % (context.trace_id, context.span_id, flags)
