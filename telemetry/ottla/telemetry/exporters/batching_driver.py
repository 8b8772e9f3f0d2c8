"""The loop that all exporters of metrics share: it collects a batch, sends it, and waits before a
retry if sending fails.

Exporters differ in `deliver`, which sends one batch and returns the outcome. During an outage of
the receiver, `offer` takes no longer than usual; the oldest pushes are dropped and counted. The
start and the end of an outage are logged once.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ottla.model.limits import MIB
from ottla.model.seams import Rng
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.exporters.export_queue import BackOff, ExportOutcome, ExportVerdict, PushQueue

BATCH_PUSHES_MAX = 1_000
"""Maximum number of pushes that an exporter sends in one batch."""
BATCH_BYTES_MAX = 1 * MIB
"""Maximum size, in bytes, of a batch that an exporter sends. A collector accepts 4 MiB by default.
A larger push is sent in a separate batch. Joining this many bytes blocks the event loop for a
fraction of a millisecond."""

logger = logging.getLogger("ottla.telemetry")

Deliver = Callable[[Sequence[LabelledPush]], Awaitable[ExportOutcome]]


class BatchingExporter:
    """The queue, the loop and the counters of one exporter of metrics. The caller supplies
    `deliver`, which sends one batch."""

    def __init__(self, name: str, deliver: Deliver, config: ExporterConfig, rng: Rng) -> None:
        self.name = name
        self._deliver = deliver
        self._linger_ms = config.linger_ms
        self._queue = PushQueue(
            pushes_max=config.queue_pushes_max, bytes_max=config.queue_bytes_max
        )
        self._rng = rng
        self._back_off = BackOff()
        self._has_pushes = trio.Event()
        self._has_outcome = trio.Event()
        self._delivering_count = 0
        self._is_failing = False
        self._sent = self._refused = self._failures = self._rejected_points = 0

    def offer(self, pushes: Sequence[LabelledPush]) -> None:
        """Queue pushes of metrics for export without blocking."""
        self._queue.offer(pushes)
        self._has_pushes.set()

    def counts(self) -> Mapping[str, int]:
        """Return the number of pushes by state: sent, dropped because the queue was full, refused
        by the receiver, queued, or sent without a response yet.

        `failures` is the number of batches that failed. `rejected_points` is the number of points
        that the receiver rejected in accepted batches.
        """
        return {
            "sent": self._sent,
            "dropped": self._queue.dropped,
            "refused": self._refused,
            "failures": self._failures,
            "rejected_points": self._rejected_points,
            "queued": len(self._queue),
            "sending": self._delivering_count,
            "queued_bytes": self._queue.bytes,
        }

    async def run(self) -> None:
        """Send the queued pushes in batches until this call is cancelled."""
        while True:
            if not self._queue:
                self._has_pushes = trio.Event()
                await self._has_pushes.wait()
            if len(self._queue) < BATCH_PUSHES_MAX and self._queue.bytes < BATCH_BYTES_MAX:
                await trio.sleep(self._linger_ms / 1_000)
            batch = self._queue.take(pushes_max=BATCH_PUSHES_MAX, bytes_max=BATCH_BYTES_MAX)
            self._delivering_count = len(batch)
            outcome = await self._deliver(batch)
            self._delivering_count = 0
            wait_ms = self._on_outcome(batch, outcome)
            self._has_outcome.set()
            await trio.sleep(wait_ms / 1_000)

    async def flush(self) -> None:
        """Wait until each push that is queued or being sent has been sent, refused or dropped.
        Stops waiting if the receiver fails."""
        end = self._settled + len(self._queue) + self._delivering_count
        while self._settled < end and not self._is_failing:
            self._has_outcome = trio.Event()
            await self._has_outcome.wait()

    @property
    def _settled(self) -> int:
        """Total number of pushes that were sent, dropped or refused. Because pushes leave the queue
        in order of arrival, these are the oldest pushes."""
        return self._sent + self._refused + self._queue.dropped

    def _on_outcome(self, batch: Sequence[LabelledPush], outcome: ExportOutcome) -> int:
        """Count the outcome of a batch that the exporter sent. Returns the delay in ms before the
        next batch is sent."""
        if outcome.verdict is ExportVerdict.SENT:
            self._sent += len(batch)
            self._rejected_points += outcome.rejected_points
            if self._is_failing:
                logger.warning("%s accepts metrics again", self.name)
            self._is_failing = False
            self._back_off.reset()
            return 0
        self._failures += 1
        if not self._is_failing:
            logger.warning("%s does not accept metrics: %s", self.name, outcome.why)
        self._is_failing = True
        if outcome.verdict is ExportVerdict.REFUSED:
            self._refused += len(batch)
        else:
            self._queue.give_back(batch)
        return self._back_off.next_ms(self._rng.random(), outcome.retry_after_ms)
