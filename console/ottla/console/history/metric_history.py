"""Stores the metrics of nodes over the last hour, within bounded memory. Pure.

Each value is a float of 8 bytes in an array. At most `SERIES_MAX` series are stored.
"""

import math
from array import array
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

SPAN_S = 3_600.0
"""Time in seconds for which samples of metrics are kept."""
SAMPLE_S_MIN = 10.0
"""Minimum interval, in seconds, between two samples that are stored."""
GAP_S = 60.0
"""Time in seconds without a sample after which a plot shows a gap."""
SAMPLES_MAX = 2 * round(SPAN_S / SAMPLE_S_MIN)
"""Maximum number of stored samples, including samples that mark gaps."""
SERIES_MAX = 2_000
"""Maximum number of series, each of which is a metric of one broker. All series need at most 12 MB
with `SAMPLES_MAX`."""


class MetricSeries(NamedTuple):
    """Values of one metric of one broker over time."""

    broker: int
    values: tuple[float | None, ...]
    """Value at each time of the history, or None at times without a value."""


class MetricHistory:
    """Samples of the metrics of all brokers, oldest first."""

    def __init__(self) -> None:
        self._times_s = array("d")
        self._series: dict[tuple[int, str], array[float]] = {}
        self._left_out_count = 0

    @property
    def times_s(self) -> tuple[float, ...]:
        """Times of the samples, in seconds of the clock of `add`."""
        return tuple(self._times_s)

    @property
    def is_complete(self) -> bool:
        """False if the latest sample had more series than can be stored."""
        return self._left_out_count == 0

    def add(self, at_s: float, metrics: Mapping[int, Mapping[str, float]]) -> None:
        """Add the metrics of brokers, by broker id and name. Does nothing if the last sample is
        less than SAMPLE_S_MIN old."""
        last_s = self._times_s[-1] if self._times_s else -math.inf
        if at_s - last_s < SAMPLE_S_MIN:
            return
        if self._times_s and at_s - last_s > GAP_S:
            self._append(last_s + SAMPLE_S_MIN, {})
        self._append(at_s, metrics)
        self._forget_before(at_s - SPAN_S)

    def series_of(self, name: str) -> list[MetricSeries]:
        """Return the values of one metric of each broker, in order of broker ids."""
        return [
            MetricSeries(broker, tuple(None if math.isnan(one) else one for one in values))
            for (broker, known), values in sorted(self._series.items())
            if known == name
        ]

    def rates_of(self, name: str) -> list[MetricSeries]:
        """Return the increase of a counter per second between consecutive samples, for each broker.
        The first value is None, and so is the value after the counter has decreased."""
        return [
            MetricSeries(broker, self._rates(values)) for broker, values in self.series_of(name)
        ]

    def _rates(self, values: tuple[float | None, ...]) -> tuple[float | None, ...]:
        found: list[float | None] = [None] * min(1, len(values))
        times_s = pairwise(self._times_s)
        for (before, after), (began_s, ended_s) in zip(pairwise(values), times_s, strict=True):
            if before is None or after is None or after < before:
                found.append(None)
            else:
                found.append((after - before) / (ended_s - began_s))
        return tuple(found)

    def _append(self, at_s: float, metrics: Mapping[int, Mapping[str, float]]) -> None:
        count = len(self._times_s)
        self._times_s.append(at_s)
        self._left_out_count = 0
        for broker, values in metrics.items():
            for name, value in values.items():
                series = self._series.get((broker, name))
                if series is None:
                    if len(self._series) >= SERIES_MAX:
                        self._left_out_count += 1
                        continue
                    series = self._series[broker, name] = array("d", [math.nan]) * count
                series.append(value)
        for series in self._series.values():
            if len(series) == count:
                series.append(math.nan)

    def _forget_before(self, begin_s: float) -> None:
        old = sum(one < begin_s for one in self._times_s)
        old = max(old, len(self._times_s) - SAMPLES_MAX)
        if old <= 0:
            return
        del self._times_s[:old]
        for key, series in list(self._series.items()):
            del series[:old]
            if all(map(math.isnan, series)):
                del self._series[key]  # a broker that is gone
