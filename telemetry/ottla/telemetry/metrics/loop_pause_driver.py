"""Measurement of the event loop: its pauses (the longest time between two waits for I/O), and its
idle time.

Any code that blocks the event loop (a handler, the loading of metadata, the garbage collector)
delays every client.
"""

import time

from trio.abc import Instrument

from ottla.telemetry.metrics.instruments import Histogram, MetricKind, Registry
from ottla.telemetry.metrics.kafka_names import prometheus_name

NANOSECONDS_PER_MS = 1_000_000

PAUSE_NS_MIN = NANOSECONDS_PER_MS
"""Minimum duration in ns of an event-loop pause that is counted. Most iterations of the event loop
are shorter, and have no effect on clients."""

PAUSE_BOUNDS_NS = tuple(ms * NANOSECONDS_PER_MS for ms in (2, 5, 10, 20, 50, 100, 200, 500, 1_000))

IDLE_MBEANS = (
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
)

SHARE_NS_MIN = 5_000_000_000
"""Minimum interval in ns for which the idle fraction of the event loop is computed. Scrapes within
this interval get the same value."""


class LoopPauseMeter(Instrument):
    """A trio instrument that measures the pauses and the idle time of an event loop. The loop's
    process installs it with `trio.lowlevel.add_instrument`."""

    def __init__(self) -> None:
        self._started_ns = time.perf_counter_ns()
        self._longest_ns = 0
        self._longest_ever_ns = 0
        self._waits_since_ns = self._started_ns
        self.idle_ns = 0
        """Total idle time of the event loop in ns since the process started."""
        self.pauses = Histogram(PAUSE_BOUNDS_NS)
        """Histogram, in ns, of the event loop's pauses that are longer than a millisecond."""
        self._share_since_ns = self._started_ns
        self._share_idle_ns = 0
        self._idle_share = 1.0

    def after_io_wait(self, timeout: float) -> None:
        """Record the start of an event-loop iteration: tasks begin to run."""
        now_ns = time.perf_counter_ns()
        self.idle_ns += now_ns - self._waits_since_ns
        self._started_ns = now_ns

    def before_io_wait(self, timeout: float) -> None:
        """Record the end of an event-loop iteration: all runnable tasks have run."""
        self._waits_since_ns = now_ns = time.perf_counter_ns()
        held_ns = now_ns - self._started_ns
        if held_ns > self._longest_ns:
            self._longest_ns = held_ns
        if held_ns > PAUSE_NS_MIN:
            self.pauses.observe(held_ns)

    @property
    def idle_share(self) -> float:
        """Fraction of the time since the last read in which the event loop was idle.

        The interval is at least five seconds. A read within five seconds of the last read returns
        the same value.
        """
        now_ns = time.perf_counter_ns()
        elapsed_ns = now_ns - self._share_since_ns
        if elapsed_ns >= SHARE_NS_MIN:
            self._idle_share = min(1.0, (self.idle_ns - self._share_idle_ns) / elapsed_ns)
            self._share_since_ns, self._share_idle_ns = now_ns, self.idle_ns
        return self._idle_share

    @property
    def longest_ever_ms(self) -> float:
        """Longest pause of the event loop in ms since the process started."""
        return max(self._longest_ns, self._longest_ever_ns) / NANOSECONDS_PER_MS

    def take_longest_ms(self) -> float:
        """Return the longest pause of the event loop since the last call, in ms, and reset it."""
        longest_ns, self._longest_ns = self._longest_ns, 0
        self._longest_ever_ns = max(self._longest_ever_ns, longest_ns)
        return longest_ns / NANOSECONDS_PER_MS

    def register(self, registry: Registry) -> None:
        """Register the metrics of the event loop. The loop does the work of all of Kafka's threads,
        so its idle fraction is reported for each of Kafka's idle ratios."""
        for mbean in IDLE_MBEANS:
            registry.read(
                prometheus_name(mbean),
                MetricKind.GAUGE,
                "Fraction of the time in which this process's event loop was idle.",
                lambda: self.idle_share,
            )
        registry.read(
            "ottla_loop_idle_seconds_total",
            MetricKind.COUNTER,
            "Idle time of this process's event loop.",
            lambda: self.idle_ns / 1e9,
        )
        registry.read(
            "ottla_loop_pause_seconds",
            MetricKind.HISTOGRAM,
            "Pauses of this process's event loop of more than a millisecond.",
            lambda: self.pauses.buckets(unit=1e9),
        )
        registry.read(
            "ottla_loop_pause_longest_seconds",
            MetricKind.GAUGE,
            "The longest such pause since the start.",
            lambda: self.longest_ever_ms / 1_000,
        )
