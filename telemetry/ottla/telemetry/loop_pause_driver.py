"""Measures how long the loop is held (the longest stretch between two waits for I/O), and idle.

Whatever holds it (a handler, a metadata load, the garbage collector) delays every client, so it is
a metric of its own.
"""

import time

from trio.abc import Instrument

from ottla.telemetry.instruments import Histogram, MetricKind, Registry
from ottla.telemetry.kafka_names import prometheus_name

NANOSECONDS_PER_MS = 1_000_000

PAUSE_NS_MIN = NANOSECONDS_PER_MS
"""Shorter turns are not counted: they are most, and nobody feels them."""

PAUSE_BOUNDS_NS = tuple(ms * NANOSECONDS_PER_MS for ms in (2, 5, 10, 20, 50, 100, 200, 500, 1_000))

IDLE_MBEANS = (
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)

SHARE_NS_MIN = 5_000_000_000
"""The shortest time whose idle share is told: two scrapes close together see the same one."""


class LoopPauseMeter(Instrument):
    """A trio instrument; `trio.lowlevel.add_instrument` it in the loop to be measured."""

    def __init__(self) -> None:
        self._started_ns = time.perf_counter_ns()
        self._longest_ns = 0
        self._longest_ever_ns = 0
        self._waits_since_ns = self._started_ns
        self.idle_ns = 0
        """How long the loop has had nothing to do, since the start."""
        self.pauses = Histogram(PAUSE_BOUNDS_NS)
        """The stretches of more than a millisecond, in nanoseconds."""
        self._share_since_ns = self._started_ns
        self._share_idle_ns = 0
        self._idle_share = 1.0

    def after_io_wait(self, timeout: float) -> None:
        """Tasks begin to run."""
        now_ns = time.perf_counter_ns()
        self.idle_ns += now_ns - self._waits_since_ns
        self._started_ns = now_ns

    def before_io_wait(self, timeout: float) -> None:
        """Every task that could run has run."""
        self._waits_since_ns = now_ns = time.perf_counter_ns()
        held_ns = now_ns - self._started_ns
        if held_ns > self._longest_ns:
            self._longest_ns = held_ns
        if held_ns > PAUSE_NS_MIN:
            self.pauses.observe(held_ns)

    @property
    def idle_share(self) -> float:
        """The part of the time since this was asked last in which there was nothing to do.

        The time is at least five seconds; asked sooner again it says the same.
        """
        now_ns = time.perf_counter_ns()
        elapsed_ns = now_ns - self._share_since_ns
        if elapsed_ns >= SHARE_NS_MIN:
            self._idle_share = min(1.0, (self.idle_ns - self._share_idle_ns) / elapsed_ns)
            self._share_since_ns, self._share_idle_ns = now_ns, self.idle_ns
        return self._idle_share

    @property
    def longest_ever_ms(self) -> float:
        """The longest pause since the start."""
        return max(self._longest_ns, self._longest_ever_ns) / NANOSECONDS_PER_MS

    def take_longest_ms(self) -> float:
        """Return the longest pause since the last call, and begin again."""
        longest_ns, self._longest_ns = self._longest_ns, 0
        self._longest_ever_ns = max(self._longest_ever_ns, longest_ns)
        return longest_ns / NANOSECONDS_PER_MS

    def register(self, registry: Registry) -> None:
        """Show what is measured; Kafka's threads are one loop here, so their idleness is one."""
        for mbean in IDLE_MBEANS:
            registry.read(
                prometheus_name(mbean),
                MetricKind.GAUGE,
                "Part of the time in which this process's loop had nothing to do.",
                lambda: self.idle_share,
            )
        registry.read(
            "ottla_loop_idle_seconds_total",
            MetricKind.COUNTER,
            "How long this process's loop has had nothing to do.",
            lambda: self.idle_ns / 1e9,
        )
        registry.read(
            "ottla_loop_pause_seconds",
            MetricKind.HISTOGRAM,
            "Stretches of more than a millisecond for which one turn held this process's loop.",
            lambda: self.pauses.buckets(unit=1e9),
        )
        registry.read(
            "ottla_loop_pause_longest_seconds",
            MetricKind.GAUGE,
            "The longest such stretch since the start.",
            lambda: self.longest_ever_ms / 1_000,
        )
