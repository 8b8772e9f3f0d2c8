"""Flushes the logs whose appends are acknowledged only when durable (`flush.messages`).

One flush covers all appends before its start (group commit). Each partition has at most one flush
in progress, and does not wait for the flushes of other partitions. A hanging disk therefore delays
only its own partitions.
"""

import logging
from collections.abc import Iterator

import trio

from ottla.broker.replicas.partition import Partition
from ottla.model.errors import RefusedError
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.metrics.instruments import Family, Histogram, MetricKind, summary_of
from ottla.telemetry.metrics.kafka_names import prometheus_name

BOUNDS_MS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

FLUSH_WINDOW_MS = 60_000
"""Age in milliseconds after which a log flush is no longer part of the summary of flush
durations."""

logger = logging.getLogger("ottla.broker.flush")


class Flusher:
    """Flushes partition logs to disk on request. Each waiting partition is queued once."""

    def __init__(self, clock: Clock, errors: UnexpectedErrors | None = None) -> None:
        self._clock = clock
        self._errors = errors or UnexpectedErrors()
        self.flushes = Histogram(BOUNDS_MS)
        """Histogram of the durations of log flushes, in milliseconds."""
        self._due: dict[Partition, None] = {}
        self._flushing: set[Partition] = set()
        self._is_due = trio.Event()

    def request(self, partition: Partition) -> None:
        """Request that the log of a partition is flushed to disk soon."""
        self._due[partition] = None
        if partition not in self._flushing:
            self._is_due.set()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that flushes logs, and its metrics."""
        parts.task("flusher", self.run)
        parts.families(self.families)

    def families(self) -> Iterator[Family]:
        """Yield the metric families of log flushes: their number and durations."""
        now_ms = self._clock.monotonic_ms()
        yield Family(
            prometheus_name("kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs"),
            MetricKind.SUMMARY,
            "Time of flushes for which acknowledgements wait (flush.messages).",
            (),
            (((), summary_of([self.flushes], now_ms, window_ms=FLUSH_WINDOW_MS)),),
        )

    async def run(self) -> None:
        """Flush the logs of queued partitions to disk until cancelled."""
        self._flushing.clear()
        async with trio.open_nursery() as nursery:
            while True:
                for partition in [one for one in self._due if one not in self._flushing]:
                    del self._due[partition]
                    self._flushing.add(partition)
                    nursery.start_soon(self._flush_in_turn, partition)
                await self._is_due.wait()
                self._is_due = trio.Event()

    async def _flush_in_turn(self, partition: Partition) -> None:
        try:
            await self._flush(partition)
        finally:
            self._flushing.discard(partition)
            if partition in self._due:  # Records were appended during the flush.
                self._is_due.set()

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        if log is None:
            return
        began_ms = self._clock.monotonic_ms()
        try:
            await log.flush()
        except RefusedError as error:
            # The log is offline now, and its waiting requests are answered with that error.
            logger.error("%r could not be flushed: %s", partition, error.message)
        except Exception as error:
            self._errors.note("partition", partition, error)
        now_ms = self._clock.monotonic_ms()
        self.flushes.observe(now_ms - began_ms)
        partition.on_flushed(log, now_ms)
