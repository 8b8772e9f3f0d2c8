"""Lags of groups over time, as far as pages have read them. Pure.

The console keeps the samples that open pages caused, and never reads by itself: an unused console
costs the brokers nothing.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import NamedTuple

GROUPS_MAX = 100
"""Groups with samples. The group whose page was opened longest ago loses its samples first."""
SAMPLES_MAX = 360
"""Samples of one group: half an hour of an open page."""
SERIES_MAX = 6


class LagSample(NamedTuple):
    """Lags of one group at one time."""

    time_ms: int
    records: int | None
    """Lag in records, summed over all partitions. None if no lag is known."""
    seconds: float | None
    """Largest age of an unread record among the examined partitions, in seconds."""
    by_name: Mapping[str, int]
    """Lags in records of the partitions that were furthest behind."""


class LagHistory:
    """Samples of the groups whose pages were open recently."""

    def __init__(self) -> None:
        self._samples: OrderedDict[str, deque[LagSample]] = OrderedDict()

    def add(self, group: str, sample: LagSample) -> tuple[LagSample, ...]:
        """Add a sample, and return all samples of the group, oldest first."""
        samples = self._samples.setdefault(group, deque(maxlen=SAMPLES_MAX))
        self._samples.move_to_end(group)
        if not samples or samples[-1].time_ms < sample.time_ms:
            samples.append(sample)
        while len(self._samples) > GROUPS_MAX:
            self._samples.popitem(last=False)
        return tuple(samples)


def series_of(samples: tuple[LagSample, ...]) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """Return the lines of a plot: the sum, and the partitions that are furthest behind now."""
    latest = samples[-1].by_name
    names = sorted(latest, key=lambda name: (-latest[name], name))[: SERIES_MAX - 1]
    return (
        ("all partitions", tuple(one.records for one in samples)),
        *((name, tuple(one.by_name.get(name) for one in samples)) for name in names),
    )
