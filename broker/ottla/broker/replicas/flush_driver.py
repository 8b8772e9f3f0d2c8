"""Flushes the logs whose appends are acknowledged only when durable (`flush.messages`).

One flush covers every append made before it began (group commit).  Each partition has one flush
under way, and waits for no other partition's: a disk that hangs delays its own alone.
"""

import logging

import trio

from ottla.broker.replicas.partition import Partition
from ottla.model.errors import RefusedError
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.instruments import Histogram

BOUNDS_MS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)

logger = logging.getLogger("ottla.broker.flush")


class Flusher:
    """Partitions that wait for a flush; each at most once, however many appends asked."""

    def __init__(self, clock: Clock, errors: UnexpectedErrors | None = None) -> None:
        self._clock = clock
        self._errors = errors or UnexpectedErrors()
        self.flushes = Histogram(BOUNDS_MS)
        """How long flushes took, in milliseconds."""
        self._due: dict[Partition, None] = {}
        self._flushing: set[Partition] = set()
        self._is_due = trio.Event()

    def request(self, partition: Partition) -> None:
        """Have a partition flushed soon."""
        self._due[partition] = None
        if partition not in self._flushing:
            self._is_due.set()

    async def run(self) -> None:
        """Flush until cancelled."""
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
            if partition in self._due:  # appended to meanwhile
                self._is_due.set()

    async def _flush(self, partition: Partition) -> None:
        log = partition.log
        if log is None:
            return
        began_ms = self._clock.monotonic_ms()
        try:
            await log.flush()
        except RefusedError as error:
            # The log is offline now; who waits on it is answered by that.
            logger.error("%r could not be flushed: %s", partition, error.message)
        except Exception as error:
            self._errors.note("partition", partition, error)
        now_ms = self._clock.monotonic_ms()
        self.flushes.observe(now_ms - began_ms)
        partition.on_flushed(log, now_ms)
