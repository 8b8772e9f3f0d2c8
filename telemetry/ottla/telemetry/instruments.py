"""Counters, gauges and histograms of our own: plain integers, and a registry that reads them.

Pure, and nothing of OpenTelemetry: its collection of 10,000 series holds the loop for longer than
a client may wait.  To count is one integer addition (`cell.value += 1`); everything else is done
when somebody asks.  A registry holds *collectors*; asked, each yields its families, and a family
its samples, one by one, so that whoever asks decides when to pause.  Between two samples the loop
may have run: a collector walks over a copy of what can change.

A collector or family that must look through much before it knows a number yields None now and
then, which means: a pause is welcome here.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, TypeAlias

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)

UNCOUNTED_MAX = 128
"""Values that a histogram keeps before it counts them.  Fewer cost more each, more hold memory."""
"""What Kafka's own histograms tell, so what dashboards ask for."""


class MetricKind(Enum):
    """What a family's numbers are, in Prometheus's words."""

    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"
    HISTOGRAM = "histogram"


class Summary(NamedTuple):
    """A distribution as quantiles of the recent past, and count and sum since the start."""

    value_count: int
    value_sum: float
    quantiles: tuple[tuple[float, float], ...]


class Buckets(NamedTuple):
    """A distribution as counts: `counts[i]` values were at most `bounds[i]`, the last above all."""

    bounds: Sequence[float]
    counts: Sequence[int]
    value_sum: float


Value: TypeAlias = float | Summary | Buckets
Labels: TypeAlias = tuple[str, ...]
Sample: TypeAlias = tuple[Labels, Value]


class Family(NamedTuple):
    """One name with all its samples; every sample has a value for each label.

    One sample may have none, (): it speaks of all the others together, as Kafka's do.
    """

    name: str
    kind: MetricKind
    help: str
    label_names: Labels
    samples: Iterable[Sample | None]


Collector: TypeAlias = Callable[[], Iterator[Family | None]]


class Registry:
    """The collectors of one process; a name is given once."""

    def __init__(self) -> None:
        self._collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        """Ask this one too, after those that were there before."""
        self._collectors.append(collector)

    def collect(self) -> Iterator[Family | None]:
        """Yield every family, in order of registration; its samples are read when asked for."""
        for collector in list(self._collectors):
            yield from collector()

    def names(self) -> list[str]:
        """Return the name of every family, in order."""
        return [family.name for family in self.collect() if family is not None]

    # ---- the usual collectors, made and registered at once

    def counter(self, name: str, help_text: str) -> "Counter":
        """Return a new counter without labels."""
        counter = Counter()
        self.read(name, MetricKind.COUNTER, help_text, lambda: counter.value)
        return counter

    def counters(self, name: str, help_text: str, label_names: Labels) -> "Counters":
        """Return a new family of counters."""
        counters = Counters()
        family = Family(name, MetricKind.COUNTER, help_text, label_names, ())
        self.register(lambda: iter((family._replace(samples=counters.samples()),)))
        return counters

    def read(self, name: str, kind: MetricKind, help_text: str, value: Callable[[], Value]) -> None:
        """Have one number, without labels, read whenever somebody asks."""
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
        """Have a family's samples read whenever somebody asks."""
        family = Family(name, kind, help_text, label_names, ())
        self.register(lambda: iter((family._replace(samples=samples()),)))


class Counter:
    """A number that only grows; whoever counts adds to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0


class Counters:
    """Counters by the values of their labels, made when first asked for.

    What is counted often is asked for once and kept.
    """

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells: dict[Labels, Counter] = {}

    def of(self, *labels: str) -> Counter:
        """Return the counter of these labels."""
        cell = self._cells.get(labels)
        if cell is None:
            cell = self._cells[labels] = Counter()
        return cell

    def samples(self) -> Iterator[Sample]:
        """Yield every counter's value."""
        for labels, cell in list(self._cells.items()):
            yield labels, cell.value


class Histogram:
    """Counts values by fixed bounds; quantiles of the recent past come from the differences.

    A value is only kept at first: many are sorted and counted together for a fifth of what each
    would cost alone.  The recent past is between one and two windows long, longer where nobody
    asks: it ends whenever somebody asks, and is cut then.
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
        """Count one value."""
        uncounted = self._uncounted
        uncounted.append(value)
        if len(uncounted) >= UNCOUNTED_MAX:
            self._count()

    def _count(self) -> None:
        """Count what was only kept until now."""
        values, self._uncounted = self._uncounted, []
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
        """How many values each bucket has; the last one is for those above the last bound."""
        if self._uncounted:
            self._count()
        return self._counts

    @property
    def sum(self) -> int:
        """The sum of the values."""
        if self._uncounted:
            self._count()
        return self._sum

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def recent(self, now_ms: int, *, window_ms: int) -> list[int]:
        """Return the counts of the recent past, and cut it where a window is full."""
        if self._recent_since is None:
            self._recent_since = now_ms
        if now_ms - self._recent_since >= window_ms:
            self._older, self._recent = self._recent, list(self.counts)
            self._recent_since = now_ms
        return [new - old for new, old in zip(self.counts, self._older, strict=True)]

    def buckets(self, *, unit: float = 1.0) -> Buckets:
        """Return the distribution since the start, in units of so many of what was counted."""
        bounds = [bound / unit for bound in self.bounds]
        return Buckets(bounds, list(self.counts), self.sum / unit)


def summary_of(
    histograms: Sequence[Histogram], now_ms: int, *, window_ms: int, unit: float = 1.0
) -> Summary:
    """Return what histograms of the same bounds have counted together.

    It is told in units of so many of what was counted.
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
    """Return the value that a part `q` of the counted lie below, as if even within each bucket.

    0 where nothing was counted.  What lies above the last bound is told as that bound.
    """
    rank = q * sum(counts)
    below = 0
    for index, count in enumerate(counts[:-1]):
        if count and below + count >= rank:
            low = bounds[index - 1] if index else 0
            return low + (bounds[index] - low) * (rank - below) / count
        below += count
    return float(bounds[-1]) if counts[-1] else 0.0
