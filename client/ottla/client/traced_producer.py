"""Producer that creates an OpenTelemetry span for each record, and adds the context of the span to
the record's headers. It also reports metrics to the program's MeterProvider."""

import time
from contextlib import AbstractContextManager
from typing import Any

import trio
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from ottla.client.instrumentation.instruments import SEND, attributes_of, instruments
from ottla.client.instrumentation.observed_clients import ProducerReadings
from ottla.client.instrumentation.produce_spans import SENDERS_MAX, TracedProducerLink
from ottla.client.produce.delivery import Delivery, note_sender
from ottla.client.produce.record_arguments import checked_headers
from ottla.client.producer import Producer
from ottla.model.errors import RefusedError
from ottla.wire.batch_builder import EncodedHeaders, Headers, encode_headers


class RecordSpan:
    """OpenTelemetry span of one record, from `send` until the record is delivered or has failed."""

    def __init__(self, topic: str, value: bytes | None, client_id: str) -> None:
        self._started_s = time.perf_counter()
        self._attributes = attributes_of(SEND, topic, client_id)
        self._span = instruments().tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=self._attributes
        )
        if value is None:
            self._span.set_attribute("messaging.kafka.message.tombstone", True)

    def headers(self, headers: Headers | EncodedHeaders) -> EncodedHeaders:
        """Return the headers of the record, with the context of this span added.

        If the headers already contain a context, because the application forwards a record, the
        context of this span replaces it. Headers that are already encoded are returned unchanged.
        """
        headers = checked_headers(headers)
        if isinstance(headers, bytes):
            return headers
        carrier: dict[str, str] = {}
        propagate.inject(carrier, context=trace.set_span_in_context(self._span))
        kept = [(name, value) for name, value in headers if name not in carrier]
        added = [(name, text.encode()) for name, text in carrier.items()]
        return encode_headers([*kept, *added])

    def follow(self, delivery: Delivery) -> None:
        """End the span when the record is delivered or has failed. Also add the span to the
        record's batch. The span of the Produce request then becomes a child of this span, or gets a
        link to it."""
        if self._span.get_span_context().trace_flags.sampled:
            note_sender(delivery, self._span, count_max=SENDERS_MAX)
        delivery.when_settled(lambda: self._on_settled(delivery))

    def fail(self, error: BaseException) -> None:
        """End the span of a record that was refused or not delivered, and record the error in the
        span."""
        code = error.code.name if isinstance(error, RefusedError) else type(error).__qualname__
        self._end({"error.type": code}, str(error))

    def _on_settled(self, delivery: Delivery) -> None:
        failure = delivery.failure
        if failure is not None:
            self.fail(failure)
            return
        _, partition, offset, _ = delivery.result()
        self._span.set_attribute("messaging.kafka.offset", offset)
        self._end({"messaging.destination.partition.id": str(partition)}, None)

    def _end(self, more: dict[str, str], failure: str | None) -> None:
        self._span.set_attributes(more)
        if failure is not None:
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end()
        attributes = {**self._attributes, **more}
        instruments().sent.add(1, attributes)
        took_s = time.perf_counter() - self._started_s
        instruments().operation_duration.record(took_s, attributes)


class TracedProducer(Producer):
    """Producer class that is used if the program has set an OpenTelemetry provider. Its `send_run`
    creates no spans."""

    _link_class = TracedProducerLink

    def _observed(self) -> AbstractContextManager[None]:
        return instruments().observed.observing(
            ProducerReadings(
                self._config.client_id,
                self._gathered.measures,
                lambda: self._gathered.buffered_bytes,
                self._config.buffer_bytes_max,
            )
        )

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        headers: Headers | EncodedHeaders = (),
        **others: Any,
    ) -> Delivery:
        """Buffer one record for delivery, as `Producer.send` does, and return its delivery
        report."""
        span = RecordSpan(topic, value, self._config.client_id)
        try:
            encoded = span.headers(headers)
            delivery = await super().send(topic, value, headers=encoded, **others)
        except BaseException as error:
            span.fail(error)
            raise
        span.follow(delivery)
        return delivery

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        headers: Headers | EncodedHeaders = (),
        **others: Any,
    ) -> Delivery:
        """Buffer one record for delivery without waiting, as `Producer.send_nowait` does, and
        return its delivery report."""
        span = RecordSpan(topic, value, self._config.client_id)
        try:
            encoded = span.headers(headers)
            delivery = super().send_nowait(topic, value, headers=encoded, **others)
        except trio.WouldBlock:
            # No record was accepted.  The span is not ended, so it is never exported.
            raise
        except BaseException as error:
            span.fail(error)
            raise
        span.follow(delivery)
        return delivery
