"""A producer that makes a span of each record, and puts its context into the record's headers."""

import time
from typing import Any

import trio
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanKind, Status, StatusCode

from ottla.client.instrumentation.instruments import SEND, attributes_of, instruments
from ottla.client.instrumentation.produce_spans import SENDERS_MAX, TracedProducerLink
from ottla.client.produce.delivery import Delivery, note_sender
from ottla.client.produce.record_arguments import checked_headers
from ottla.client.producer import Producer
from ottla.model.errors import RefusedError
from ottla.wire.batch_builder import EncodedHeaders, Headers, encode_headers


class RecordSpan:
    """The span of one record: from `send` until it is known what became of the record."""

    def __init__(self, topic: str, value: bytes | None, client_id: str) -> None:
        self._started_s = time.perf_counter()
        self._attributes = attributes_of(SEND, topic, client_id)
        self._span = instruments().tracer.start_span(
            f"send {topic}", kind=SpanKind.PRODUCER, attributes=self._attributes
        )
        if value is None:
            self._span.set_attribute("messaging.kafka.message.tombstone", True)

    def headers(self, headers: Headers | EncodedHeaders) -> EncodedHeaders:
        """Return the record's headers with this span's context.

        It replaces the context of a record that is passed on.  Headers that were encoded before
        stay as they are.
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
        """End with the record's delivery report; the request that brings it learns this span."""
        if self._span.get_span_context().trace_flags.sampled:
            note_sender(delivery, self._span, count_max=SENDERS_MAX)
        delivery.when_settled(lambda: self._on_settled(delivery))

    def fail(self, error: BaseException) -> None:
        """End with a record that was not accepted."""
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
    """A producer of a program that has set a provider; `send_run` makes no spans."""

    link_class = TracedProducerLink

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        headers: Headers | EncodedHeaders = (),
        **others: Any,
    ) -> Delivery:
        """Take one record, as `Producer.send` does."""
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
        """Take one record at once, as `Producer.send_nowait` does."""
        span = RecordSpan(topic, value, self._config.client_id)
        try:
            encoded = span.headers(headers)
            delivery = super().send_nowait(topic, value, headers=encoded, **others)
        except trio.WouldBlock:
            # Nothing was taken: a span that never ends is never exported.
            raise
        except BaseException as error:
            span.fail(error)
            raise
        span.follow(delivery)
        return delivery
