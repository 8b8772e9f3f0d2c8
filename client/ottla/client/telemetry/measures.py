"""Counters and durations that a client keeps for KIP-714.

Pure.  Each costs an addition or two for a batch or a request, and nothing for a record.  Times are
seconds.  Averages and maxima are of the time since they were last taken, as librdkafka's are: a
push that follows five minutes after another one covers all five.
"""

from typing import NamedTuple

MS_PER_S = 1_000.0


class Extent(NamedTuple):
    """Average and maximum of the values of one interval, in the unit of the metric."""

    average: float
    highest: float


NO_EXTENT = Extent(0.0, 0.0)
"""Of an interval without values; librdkafka reports the same, so that its series stay."""


class MeasuredValues:
    """Sum, number and maximum of the values since they were last taken."""

    __slots__ = ("count", "highest", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.highest = 0.0

    def note(self, value: float) -> None:
        """Add one value."""
        self.count += 1
        self.sum += value
        if value > self.highest:
            self.highest = value

    def move_to(self, *others: "MeasuredValues") -> None:
        """Add these values to others, and begin an interval without values."""
        for other in others:
            other.count += self.count
            other.sum += self.sum
            other.highest = max(other.highest, self.highest)
        self.count, self.sum, self.highest = 0, 0.0, 0.0

    def take_of(self, count: int) -> Extent:
        """Take as `take` does where only values above 0 were noted, and there were `count`."""
        self.count = max(self.count, count)
        return self.take()

    def take(self, scale: float = 1.0) -> Extent:
        """Return average and maximum times `scale`, and begin an interval without values."""
        if not self.count:
            return NO_EXTENT
        taken = Extent(self.sum / self.count * scale, self.highest * scale)
        self.count, self.sum, self.highest = 0, 0.0, 0.0
        return taken


class ConnectionMeasures:
    """Connections of one client, and the latencies of its requests by address (`host:port`)."""

    __slots__ = ("created_count", "latencies_s")

    def __init__(self) -> None:
        self.created_count = 0
        self.latencies_s: dict[str, MeasuredValues] = {}

    def note_connection(self, address: str) -> MeasuredValues:
        """Count a new connection; return where the latencies of its requests belong."""
        self.created_count += 1
        found = self.latencies_s.get(address)
        if found is None:
            found = self.latencies_s[address] = MeasuredValues()
        return found


class ProduceMeasures:
    """Batches of one producer, from the first record to the last answer."""

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
        """Times from a batch's first record to its first attempt."""
        self.throttle_times_ms = MeasuredValues()
        """Throttle times that brokers answered with, above 0."""
        self.request_count = 0
        self.batch_bytes = 0
        """Bytes of batches at their first attempts, compressed."""
        self.record_count = 0
        """Records of first attempts."""
        self.error_count = 0
        """Records that were not delivered."""
        self.retry_count = 0
        """Records sent again."""


class FetchMeasures:
    """Fetches of one consumer."""

    __slots__ = ("fetch_bytes", "fetched_bytes", "latencies_s", "throttle_times_ms")

    def __init__(self) -> None:
        self.latencies_s = MeasuredValues()
        self.throttle_times_ms = MeasuredValues()
        """Throttle times that brokers answered with, above 0."""
        self.fetch_bytes = MeasuredValues()
        """Sizes of the record batches of one response that has some."""
        self.fetched_bytes = 0


class CoordinatorMeasures:
    """Commits and rebalances of one member of a group."""

    __slots__ = ("commits_s", "rebalances_s", "rebalances_sum_s")

    def __init__(self) -> None:
        self.commits_s = MeasuredValues()
        self.rebalances_s = MeasuredValues()
        self.rebalances_sum_s = 0.0
        """Time of all rebalances since the client's start."""

    def note_rebalance(self, duration_s: float) -> None:
        """Count one completed rebalance."""
        self.rebalances_s.note(duration_s)
        self.rebalances_sum_s += duration_s


class PollIdleTime:
    """The time that an application waits in `poll`, of all time."""

    __slots__ = ("_idle_s", "_taken_s", "_waiting_since_s")

    def __init__(self, now_s: float) -> None:
        self._idle_s = 0.0
        self._taken_s = now_s
        self._waiting_since_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Begin a wait."""
        self._waiting_since_s = now_s

    def end(self, now_s: float) -> None:
        """End the wait."""
        if self._waiting_since_s is not None:
            self._idle_s += now_s - self._waiting_since_s
            self._waiting_since_s = None

    def take(self, now_s: float) -> float:
        """Return the part of the time since the last call that was spent waiting, from 0 to 1."""
        waiting = self._waiting_since_s
        if waiting is not None:
            self.end(now_s)
            self.begin(now_s)
        idle_s, self._idle_s = self._idle_s, 0.0
        all_s, self._taken_s = now_s - self._taken_s, now_s
        return min(1.0, idle_s / all_s) if all_s > 0 else 0.0
