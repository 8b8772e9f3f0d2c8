"""Exporter of clients' metrics as records of the topic `__client_metrics`.

The broker supplies `send`, because telemetry must not import a producer. `send` creates the topic
if it does not exist, and returns when the records are acknowledged.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import trio

from ottla.model.errors import RefusedError
from ottla.model.seams import Rng
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.telemetry.clients.client_record import encode_records
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.exporters.batching_driver import BatchingExporter
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict

TOPIC = "__client_metrics"


class TopicRecord(NamedTuple):
    """One record that the exporter writes to the topic `__client_metrics`."""

    key: bytes
    value: bytes
    timestamp_ms: int


Send = Callable[[Sequence[TopicRecord]], Awaitable[None]]
"""Async function that writes records to the topic `__client_metrics`, in order for each key. Raises
RefusedError if a record is not accepted."""


class TopicExporter:
    """Exporter of clients' metrics to the topic `__client_metrics`, with its queue."""

    def __init__(self, send: Send, config: ExporterConfig, rng: Rng) -> None:
        self.name = TOPIC
        self._send = send
        self._limiter = trio.CapacityLimiter(1)
        self._batching = BatchingExporter(TOPIC, self._deliver, config, rng)
        self.run = self._batching.run
        self.flush = self._batching.flush

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Queue the metric pushes of clients for the topic. Metrics of nodes are not written to the
        topic."""
        self._batching.offer([push for push in pushes if push.labels is not None])

    def counts(self) -> Mapping[str, int]:
        """Return the number of pushes to the topic by state; see `BatchingExporter.counts`."""
        return self._batching.counts()

    async def _deliver(self, batch: Sequence[LabelledPush]) -> ExportOutcome:
        records, left_out = await trio.to_thread.run_sync(_records_of, batch, limiter=self._limiter)
        try:
            await self._send(records)
        except RefusedError as error:
            verdict = ExportVerdict.RETRY if error.is_retriable else ExportVerdict.REFUSED
            return ExportOutcome(verdict=verdict, why=str(error))
        return ExportOutcome(verdict=ExportVerdict.SENT, rejected_points=left_out)


def _records_of(batch: Sequence[LabelledPush]) -> tuple[list[TopicRecord], int]:
    """Encode pushes as records of `__client_metrics`. Returns the records, and the number of data
    points that are too large for any record."""
    records: list[TopicRecord] = []
    left_out = 0
    for push in batch:
        assert push.labels is not None
        values, left_out_here = encode_records(push)
        key = push.labels.client_instance_id.bytes
        records += [TopicRecord(key, value, push.received_ms) for value in values]
        left_out += left_out_here
    return records, left_out
