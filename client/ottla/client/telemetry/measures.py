"""Counters and durations that a client collects for KIP-714.

Pure. A measurement costs one or two additions per batch or request, and nothing per record. Times
are in seconds. As in librdkafka, averages and maxima cover the whole time since the previous
report, for example five minutes.
"""

from typing import NamedTuple

MS_PER_S = 1_000.0


class AverageAndMax(NamedTuple):
    """Average and maximum of the values in one interval, in the unit of the metric."""

    average: float
    highest: float


NO_VALUES = AverageAndMax(0.0, 0.0)
"""Average and maximum of an interval without values: zeros, as in librdkafka, so that time series
have no gaps."""


class MeasuredValues:
    """Sum, count and maximum of the values added since the last call of `take`."""

    __slots__ = ("count", "highest", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.highest = 0.0

    def note(self, value: float) -> None:
        """Add one value to the current interval."""
        self.count += 1
        self.sum += value
        if value > self.highest:
            self.highest = value

    def move_to(self, *others: "MeasuredValues") -> None:
        """Add the collected values to each of `others`, and start a new interval without values."""
        for other in others:
            other.count += self.count
            other.sum += self.sum
            other.highest = max(other.highest, self.highest)
        self.count, self.sum, self.highest = 0, 0.0, 0.0

    def take_of(self, count: int) -> AverageAndMax:
        """Return the average and maximum of `count` values, and start a new interval. Values that
        were not added by `note` count as 0."""
        self.count = max(self.count, count)
        return self.take()

    def take(self, scale: float = 1.0) -> AverageAndMax:
        """Return the average and maximum of the current interval, multiplied by `scale`, and start
        a new interval."""
        if not self.count:
            return NO_VALUES
        taken = AverageAndMax(self.sum / self.count * scale, self.highest * scale)
        self.count, self.sum, self.highest = 0, 0.0, 0.0
        return taken


class ConnectionMeasures:
    """Number of connections of one client, and latencies of its requests by address
    (`host:port`)."""

    __slots__ = ("created_count", "latencies_s")

    def __init__(self) -> None:
        self.created_count = 0
        self.latencies_s: dict[str, MeasuredValues] = {}

    def note_connection(self, address: str) -> MeasuredValues:
        """Count a new connection to an address, and return the object that collects the latencies
        of requests to this address."""
        self.created_count += 1
        found = self.latencies_s.get(address)
        if found is None:
            found = self.latencies_s[address] = MeasuredValues()
        return found


class ProduceMeasures:
    """Measurements of one producer's batches, from their first record to their last response."""

    __slots__ = (
        "batch_bytes",
        "error_count",
        "queue_times_ms",
        "record_count",
        "request_count",
        "retry_count",
        "throttle_times_ms",
    )

    def __init__(self) -> None:
        self.queue_times_ms = MeasuredValues()
        """Time in ms from a batch's first record to its first attempt."""
        self.throttle_times_ms = MeasuredValues()
        """Throttle times in responses, in ms. Times of 0 are not included."""
        self.request_count = 0
        self.batch_bytes = 0
        """Total compressed size of all batches, in bytes. Only the first attempt of each batch
        counts."""
        self.record_count = 0
        """Number of records in all batches that were sent. Only the first attempt of each batch
        counts."""
        self.error_count = 0
        """Number of records that were not delivered."""
        self.retry_count = 0
        """Number of records in batches that were sent again. Each further attempt counts."""


class FetchMeasures:
    """Measurements of one consumer's fetch requests."""

    __slots__ = ("fetch_bytes", "fetched_bytes", "latencies_s", "throttle_times_ms")

    def __init__(self) -> None:
        self.latencies_s = MeasuredValues()
        self.throttle_times_ms = MeasuredValues()
        """Throttle times in responses, in ms. Times of 0 are not included."""
        self.fetch_bytes = MeasuredValues()
        """Total size of the record batches per response, in bytes. Responses without record batches
        are not included."""
        self.fetched_bytes = 0


class CoordinatorMeasures:
    """Measurements of the commits and rebalances of one group member."""

    __slots__ = ("commits_s", "rebalance_count", "rebalances_s", "rebalances_sum_s")

    def __init__(self) -> None:
        self.commits_s = MeasuredValues()
        self.rebalances_s = MeasuredValues()
        self.rebalance_count = 0
        """Number of completed rebalances since the client was opened."""
        self.rebalances_sum_s = 0.0
        """Total duration of all rebalances since the client was opened, in seconds."""

    def note_rebalance(self, duration_s: float) -> None:
        """Count one completed rebalance. `duration_s` is its duration in seconds."""
        self.rebalances_s.note(duration_s)
        self.rebalance_count += 1
        self.rebalances_sum_s += duration_s


class PollIdleTime:
    """Fraction of time for which the application waits in `poll`."""

    __slots__ = ("_idle_s", "_taken_s", "_waiting_since_s")

    def __init__(self, now_s: float) -> None:
        self._idle_s = 0.0
        self._taken_s = now_s
        self._waiting_since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Record that the application has started waiting in `poll`."""
        self._waiting_since_s = now_s

    def end(self, now_s: float) -> None:
        """Record that the application no longer waits in `poll`."""
        if self._waiting_since_s is not None:
            self._idle_s += now_s - self._waiting_since_s
            self._waiting_since_s = None

    def take(self, now_s: float) -> float:
        """Return the fraction of time for which the application has waited in `poll` since the last
        call, from 0 to 1."""
        waiting = self._waiting_since_s
        if waiting is not None:
            self.end(now_s)
            self.begin(now_s)
        idle_s, self._idle_s = self._idle_s, 0.0
        all_s, self._taken_s = now_s - self._taken_s, now_s
        return min(1.0, idle_s / all_s) if all_s > 0 else 0.0
