"""Consumer that creates an OpenTelemetry span for each poll, and spans for the processing of
records. It also reports metrics to the program's MeterProvider."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from opentelemetry.trace import SpanKind

from ottla.client.consumer import RECORDS_PER_LOOK, Consumer
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.instrumentation.instruments import (
    LINKS_MAX,
    POLL,
    PROCESS,
    attributes_of,
    context_of,
    instruments,
    link_to,
)
from ottla.client.instrumentation.observed_clients import ConsumerReadings
from ottla.model.ids import TopicPartition

T = TypeVar("T")


class TracedConsumer(Consumer):
    """Consumer class that is used if the program has set an OpenTelemetry provider.

    Each `poll`, and each step of `async for`, is one span with links to the spans that sent the
    records. A poll that returns no records has no span.
    """

    _polled_s: float | None = None
    """Monotonic time at which the last poll ended, in seconds."""

    def _observed(self) -> AbstractContextManager[None]:
        group = self._group
        return instruments().observed.observing(
            ConsumerReadings(
                self._config.client_id,
                self._config.group_id,
                None if group is None else group.measures,
                self._positions.lags,
            )
        )

    def processing(self, record: ConsumerRecord) -> AbstractContextManager[None]:
        """Return a context manager that runs its block in a span, which is a child of the span that
        sent the record."""
        return process_span(record, self._config.client_id, self._config.group_id)

    async def _next_of(self, take: Callable[[], list[T]], timeout_s: float | None) -> list[T]:
        if self._polled_s is not None:
            attributes = attributes_of(POLL, None, self._config.client_id)
            if self._config.group_id is not None:
                attributes["messaging.consumer.group.name"] = self._config.group_id
            instruments().poll_interval.record(time.perf_counter() - self._polled_s, attributes)
        try:
            return await super()._next_of(take, timeout_s)
        finally:
            self._polled_s = time.perf_counter()

    async def _next(self, count: int, timeout_s: float | None = None) -> list[ConsumerRecord]:
        started_ns, started_s = time.time_ns(), time.perf_counter()
        records = await super()._next(count, timeout_s)
        if not records:
            return records
        took_s = time.perf_counter() - started_s
        places = {TopicPartition(record.topic, record.partition) for record in records}
        self._note(records[:LINKS_MAX], len(records), places, started_ns, took_s)
        return records

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record. The call also marks the previously returned record as
        processed."""
        self._records_left -= 1
        if self._records_left <= 0:
            self._records_left = RECORDS_PER_LOOK
            await self._yield_timer.yield_if_due()
        return (await self._next(1))[0]

    async def _next_batches(
        self, count: int, size_bytes: int | None, timeout_s: float | None
    ) -> list[RecordBatch]:
        started_ns, started_s = time.time_ns(), time.perf_counter()
        batches = await super()._next_batches(count, size_bytes, timeout_s)
        if not batches:
            return batches
        took_s = time.perf_counter() - started_s
        first = list(islice(chain.from_iterable(batch[:LINKS_MAX] for batch in batches), LINKS_MAX))
        record_count = sum(map(len, batches))
        self._note(first, record_count, {batch.at for batch in batches}, started_ns, took_s)
        return batches

    def _note(
        self,
        first: Sequence[ConsumerRecord],
        count: int,
        places: Collection[TopicPartition],
        started_ns: int,
        took_s: float,
    ) -> None:
        """Record the span and the metrics of a poll. The span gets links to the spans that sent the
        records in `first`."""
        poll = PollWithRecords(
            self._config.client_id, self._config.group_id, count, places, started_ns
        )
        attributes = note_poll(poll, first, took_s)
        instruments().consumed.add(count, attributes)


class PollWithRecords(NamedTuple):
    """Result of a poll that returned records, for the poll's span and metrics."""

    client_id: str
    group_id: str | None
    record_count: int
    places: Collection[TopicPartition]
    """Partitions of the records that the poll returned."""
    started_ns: int
    """Time in ns since 1970 at which the poll was called."""


def note_poll(
    poll: PollWithRecords, first: Sequence[ConsumerRecord], took_s: float
) -> dict[str, str | int | bool]:
    """Record the span of a poll, with links to the spans that sent the records in `first`, and its
    duration in seconds. Returns the attributes of metrics about the poll."""
    topics = {at.topic for at in poll.places}
    topic = topics.pop() if len(topics) == 1 else None
    attributes = attributes_of(POLL, topic, poll.client_id)
    if poll.group_id is not None:
        attributes["messaging.consumer.group.name"] = poll.group_id
    partitions = {at.partition for at in poll.places}
    if topic is not None and len(partitions) == 1:
        attributes["messaging.destination.partition.id"] = str(partitions.pop())
    links = [link for record in first if (link := link_to(record)) is not None]
    span = instruments().tracer.start_span(
        "poll" if topic is None else f"poll {topic}",
        kind=SpanKind.CLIENT,
        links=links,
        start_time=poll.started_ns,
        attributes={**attributes, "messaging.batch.message_count": poll.record_count},
    )
    if poll.record_count == 1:
        span.set_attribute("messaging.kafka.offset", first[0].offset)
    span.end()
    instruments().operation_duration.record(took_s, attributes)
    return attributes


@contextmanager
def process_span(
    record: ConsumerRecord, client_id: str, group_id: str | None, **others: int
) -> Iterator[None]:
    """Run the `with` block in a span that is a child of the span that sent the record. `others`
    contains further attributes of the span."""
    attributes = attributes_of(PROCESS, record.topic, client_id)
    attributes["messaging.destination.partition.id"] = str(record.partition)
    if group_id is not None:
        attributes["messaging.consumer.group.name"] = group_id
    started_s = time.perf_counter()
    # The span is current in the block, and records an exception of the block.
    with instruments().tracer.start_as_current_span(
        f"process {record.topic}",
        context=context_of(record),
        kind=SpanKind.CONSUMER,
        attributes={**attributes, "messaging.kafka.offset": record.offset, **others},
    ):
        try:
            yield
        except BaseException as error:
            attributes["error.type"] = type(error).__qualname__
            raise
        finally:
            took_s = time.perf_counter() - started_s
            instruments().process_duration.record(took_s, attributes)
