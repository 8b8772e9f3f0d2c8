"""Counters, gauges and histograms of this node: plain integers, and a registry that reads them.

Pure, and independent of OpenTelemetry, whose collection of 10,000 series blocks the event loop
longer than a client may wait. Counting is one integer addition (`cell.value += 1`); all other work
is done at a scrape. A registry has *collectors*.  Each collector yields families, and each family
yields its samples one by one, so that the reader decides when to yield to other tasks. Other tasks
may run between two samples, so a collector iterates over a copy of any data that can change.

A collector or family that processes much data before its first number yields None from time to
time. The reader may then yield to other tasks.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

UNCOUNTED_MAX = 128
"""Number of observed values that a histogram stores before it sorts and counts them. With a smaller
number, each value costs more time. With a larger number, a histogram uses more memory."""
"""`QUANTILES` has the quantiles of Kafka's own histograms, which dashboards use."""


class MetricKind(Enum):
    """Type of a metric family, as Prometheus names it: counter, gauge, histogram or summary."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Summary(NamedTuple):
    """Value of a metric: a distribution as quantiles of the recent past, with the count and sum of
    all values since the process started."""

    value_count: int
    value_sum: float
    quantiles: tuple[tuple[float, float], ...]


class Buckets(NamedTuple):
    """Value of a metric: a distribution as counts. `counts[i]` is the number of values that are at
    most `bounds[i]` and above the previous bound. The last count has all values above the last
    bound."""

    bounds: Sequence[float]
    counts: Sequence[int]
    value_sum: float


Value: TypeAlias = float | Summary | Buckets
Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[Labels, Value]


class Family(NamedTuple):
    """One metric name with all its samples. A sample is a value with one label value for each
    label.

    As in Kafka, one sample may have the empty tuple as its labels. This sample is the total of all
    other samples.
    """

    name: str
    kind: MetricKind
    help: str
    label_names: Labels
    samples: Iterable[Sample | None]


Collector: TypeAlias = Callable[[], Iterator[Family | None]]


class Registry:
    """The metrics collectors (functions that yield metric families) of one process. Metric names
    are unique."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Add a collector (a function that yields metric families). Its metrics follow the metrics
        of all earlier collectors."""
        self._collectors.append(collector)

    def collect(self) -> Iterator[Family | None]:
        """Yield all metric families in order of registration. Samples are read when the caller
        iterates over them."""
        for collector in list(self._collectors):
            yield from collector()

    def names(self) -> list[str]:
        """Return the names of all metric families, in order of registration."""
        return [family.name for family in self.collect() if family is not None]

    # ---- common collectors, created and registered in one call

    def counter(self, name: str, help_text: str) -> "Counter":
        """Register and return a new counter without labels."""
        counter = Counter()
        self.read(name, MetricKind.COUNTER, help_text, lambda: counter.value)
        return counter

    def counters(self, name: str, help_text: str, label_names: Labels) -> "Counters":
        """Register and return a new family of counters with the labels `label_names`."""
        counters = Counters()
        family = Family(name, MetricKind.COUNTER, help_text, label_names, ())
        self.register(lambda: iter((family._replace(samples=counters.samples()),)))
        return counters

    def read(self, name: str, kind: MetricKind, help_text: str, value: Callable[[], Value]) -> None:
        """Register a metric that is a single number without labels. `value` is called to read it at
        each scrape."""
        family = Family(name, kind, help_text, (), ())
        self.register(lambda: iter((family._replace(samples=(((), value()),)),)))

    def read_each(
        self,
        name: str,
        kind: MetricKind,
        help_text: str,
        label_names: Labels,
        samples: Callable[[], Iterable[Sample | None]],
    ) -> None:
        """Register a metric family. `samples` is called to read its samples at each scrape."""
        family = Family(name, kind, help_text, label_names, ())
        self.register(lambda: iter((family._replace(samples=samples()),)))


class Counter:
    """A metric that only increases. Callers count by adding to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Counters:
    """Counters of one metric family by label values, created on demand.

    Code that counts often should store the counter instead of calling `of` each time.
    """

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[Labels, Counter] = {}

    def of(self, *labels: str) -> Counter:
        """Return the counter with these label values. It is created if it does not exist."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = Counter()
        return cell

    def samples(self) -> Iterator[Sample]:
        """Yield the label values and the value of every counter."""
        for labels, cell in list(self._cells.items()):
            yield labels, cell.value


class Histogram:
    """Distribution of observed values, as counts by fixed bounds. Quantiles of the recent past are
    computed from differences between counts.

    Observed values are stored first and counted later. Sorting and counting many values together
    takes a fifth of the time of counting them one by one. The recent past covers one to two
    windows, or more if there are no scrapes, because only a scrape starts a new window.
    """

    __slots__ = ("_counts", "_older", "_recent", "_recent_since", "_sum", "_uncounted", "bounds")

    def __init__(self, bounds: Sequence[int]) -> None:
        assert list(bounds) == sorted(set(bounds))
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0
        self._uncounted: list[int] = []
        self._older = list(self._counts)
        self._recent = list(self._counts)
        self._recent_since: float | None = None

    def observe(self, value: int) -> None:
        """Add one observed value to the histogram."""
        uncounted = self._uncounted
        uncounted.append(value)
        if len(uncounted) >= UNCOUNTED_MAX:
            self._count()

    def _count(self) -> None:
        """Sort the stored values of the histogram that are not counted yet, and count them in their
        buckets."""
        values, self._uncounted = self._uncounted, []
        self.observe_all(values)

    def observe_all(self, values: list[int]) -> None:
        """Add many observed values to the histogram, and count them now. `values` is sorted in
        place."""
        values.sort()
        self._sum += sum(values)
        bounds, counts = self.bounds, self._counts
        at, end = 0, len(values)
        while at < end:
            bucket = bisect_left(bounds, values[at])
            after = end if bucket == len(bounds) else bisect_right(values, bounds[bucket], at)
            counts[bucket] += after - at
            at = after

    @property
    def counts(self) -> list[int]:
        """Number of observed values in each bucket of the histogram. The last bucket has the values
        above the last bound."""
        if self._uncounted:
            self._count()
        return self._counts

    @property
    def sum(self) -> int:
        """Sum of all values that the histogram has observed."""
        if self._uncounted:
            self._count()
        return self._sum

    @property
    def count(self) -> int:
        """Number of all values that the histogram has observed."""
        return sum(self.counts)

    def recent(self, now_ms: int, *, window_ms: int) -> list[int]:
        """Return the number of values of the recent past in each bucket. Starts a new window if the
        current window is full. `window_ms` is the length of a window in ms."""
        if self._recent_since is None:
            self._recent_since = now_ms
        if now_ms - self._recent_since >= window_ms:
            self._older, self._recent = self._recent, list(self.counts)
            self._recent_since = now_ms
        return [new - old for new, old in zip(self.counts, self._older, strict=True)]

    def buckets(self, *, unit: float = 1.0) -> Buckets:
        """Return the distribution of all values that the histogram has observed, with bounds
        divided by `unit`."""
        bounds = [bound / unit for bound in self.bounds]
        return Buckets(bounds, list(self.counts), self.sum / unit)


def summary_of(
    histograms: Sequence[Histogram], now_ms: int, *, window_ms: int, unit: float = 1.0
) -> Summary:
    """Return the combined distribution of histograms with equal bounds, as a summary.

    Values are divided by `unit`.
    """
    bounds = histograms[0].bounds
    recents = [histogram.recent(now_ms, window_ms=window_ms) for histogram in histograms]
    recent = [sum(counts) for counts in zip(*recents, strict=True)]
    return Summary(
        sum(histogram.count for histogram in histograms),
        sum(histogram.sum for histogram in histograms) / unit,
        tuple((q, quantile(bounds, recent, q) / unit) for q in QUANTILES),
    )


def quantile(bounds: Sequence[int], counts: Sequence[int], q: float) -> float:
    """Return the value below which a fraction `q` of the values lies, interpolated within its
    bucket. Returns 0 without values.

    A value above the last bound counts as the last bound.
    """
    rank = q * sum(counts)
    below = 0
    for index, count in enumerate(counts[:-1]):
        if count and below + count >= rank:
            low = bounds[index - 1] if index else 0
            return low + (bounds[index] - low) * (rank - below) / count
        below += count
    return float(bounds[-1]) if counts[-1] else 0.0
