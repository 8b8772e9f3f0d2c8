"""A share consumer that creates an OpenTelemetry span for each poll, and spans for the processing
of records. It also reports metrics to the program's MeterProvider."""

import time
from contextlib import AbstractContextManager
from itertools import chain, islice

from ottla.client.instrumentation.instruments import LINKS_MAX, POLL, attributes_of, instruments
from ottla.client.share.share_records import ShareBatch, ShareRecord
from ottla.client.share_consumer import ShareConsumer
from ottla.client.traced_consumer import PollWithRecords, note_poll, process_span

DELIVERY_COUNT = "ottla.share.delivery_count"
"""Attribute of a process span: number of deliveries of the record. The semantic conventions define
no such attribute for Kafka."""


class TracedShareConsumer(ShareConsumer):
    """Share consumer class that is used if the program has set an OpenTelemetry provider.

    Each `poll`, and each step of `async for`, is one span with links to the spans of the senders. A
    poll that returns no records has no span. `work` creates a process span for each record, and no
    span for its polls.
    """

    def processing(self, record: ShareRecord) -> AbstractContextManager[None]:
        """Return a context manager that runs its block in a span, which is a child of the span that
        sent the record."""
        return process_span(
            record.data,
            self._config.client_id,
            self._config.group_id,
            **{DELIVERY_COUNT: record.delivery_count},
        )

    async def _next(
        self, count: int, fetched_count: int, timeout_s: float | None
    ) -> list[ShareBatch]:
        started_ns, started_s = time.time_ns(), time.perf_counter()
        batches = await super()._next(count, fetched_count, timeout_s)
        if not batches:
            return batches
        took_s = time.perf_counter() - started_s
        poll = PollWithRecords(
            self._config.client_id,
            self._config.group_id,
            sum(map(len, batches)),
            {batch.at for batch in batches},
            started_ns,
        )
        rows = chain.from_iterable(batch.records[:LINKS_MAX] for batch in batches)
        note_poll(poll, list(islice(rows, LINKS_MAX)), took_s)
        return batches

    def _take(self, count: int) -> list[ShareBatch]:
        batches = super()._take(count)
        for batch in batches:
            attributes = attributes_of(POLL, batch.at.topic, self._config.client_id)
            attributes["messaging.consumer.group.name"] = self._config.group_id
            attributes["messaging.destination.partition.id"] = str(batch.at.partition)
            instruments().consumed.add(len(batch), attributes)
        return batches
