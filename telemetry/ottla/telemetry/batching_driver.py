"""The loop that every way out shares: wait, gather a batch, send it, and back off when it fails.

What differs is `deliver`, which sends one batch and says what became of it.  Only the queue's bound
is felt while nobody takes anything: `offer` costs the same, and the oldest pushes are dropped and
counted.  An outage is told once, and its end.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import trio

from ottla.model.limits import MIB
from ottla.model.seams import Rng
from ottla.model.settings.exporters import ExporterConfig
from ottla.telemetry.export_queue import BackOff, ExportOutcome, ExportVerdict, PushQueue
from ottla.telemetry.exporter import LabelledPush

BATCH_PUSHES_MAX = 1_000
"""Pushes sent at once."""
BATCH_BYTES_MAX = 1 * MIB
"""Their bytes in all; a collector takes 4 MiB unless it is told otherwise.  A larger push goes
alone.  Joining this much keeps the loop for a fraction of a millisecond."""

logger = logging.getLogger("ottla.telemetry")

Deliver = Callable[[Sequence[LabelledPush]], Awaitable[ExportOutcome]]


class BatchingExporter:
    """One way out; owns what waits for it."""

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
        """Queue pushes; never blocks."""
        self._queue.offer(pushes)
        self._has_pushes.set()

    def counts(self) -> Mapping[str, int]:
        """Return pushes sent, dropped for want of room, refused by the receiver, waiting, and those
        it has not answered yet.

        `failures` are batches that did not go through, `rejected_points` what was left out of
        batches that did.
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
        """Send for as long as the node runs; ends by being cancelled."""
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
        """Wait until what waits now has been sent, or the receiver fails."""
        end = self._settled + len(self._queue) + self._delivering_count
        while self._settled < end and not self._is_failing:
            self._has_outcome = trio.Event()
            await self._has_outcome.wait()

    @property
    def _settled(self) -> int:
        """How many pushes came to their end here, in the order they came."""
        return self._sent + self._refused + self._queue.dropped

    def _on_outcome(self, batch: Sequence[LabelledPush], outcome: ExportOutcome) -> int:
        """Count what became of a batch; return how long to wait before the next."""
        if outcome.verdict is ExportVerdict.SENT:
            self._sent += len(batch)
            self._rejected_points += outcome.rejected_points
            if self._is_failing:
                logger.warning("%s takes metrics again", self.name)
            self._is_failing = False
            self._back_off.reset()
            return 0
        self._failures += 1
        if not self._is_failing:
            logger.warning("%s does not take metrics: %s", self.name, outcome.why)
        self._is_failing = True
        if outcome.verdict is ExportVerdict.REFUSED:
            self._refused += len(batch)
        else:
            self._queue.give_back(batch)
        return self._back_off.next_ms(self._rng.random(), outcome.retry_after_ms)
