"""Lags of groups over time, stored in memory. Pure.

The samples are by-products of the requests of open pages. The console sends no other requests for
samples, so an unused console causes no load on the brokers.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import NamedTuple

GROUPS_MAX = 100
"""Maximum number of groups whose lag samples are stored. Above it, the samples of the group whose
page was opened longest ago are deleted."""
SAMPLES_MAX = 360
"""Maximum number of lag samples of one group: half an hour of an open page."""
SERIES_MAX = 6


class LagSample(NamedTuple):
    """Lag of one group at one time, in records and in seconds, with the separate lags of some of
    its partitions."""

    time_ms: int
    records: int | None
    """Lag of the group in records, summed over all partitions, or None if no lag is known."""
    seconds: float | None
    """Largest age, in seconds, of an unread record among the examined partitions of the group. None
    if no age is known."""
    by_name: Mapping[str, int]
    """Lags, in records, of the partitions that were furthest behind, by partition name."""


class LagHistory:
    """Lag samples of the groups whose pages were open recently."""

    def __init__(self) -> None:
        self._samples: OrderedDict[str, deque[LagSample]] = OrderedDict()

    def add(self, group: str, sample: LagSample) -> tuple[LagSample, ...]:
        """Add a lag sample of a group, and return all samples of the group, oldest first."""
        samples = self._samples.setdefault(group, deque(maxlen=SAMPLES_MAX))
        self._samples.move_to_end(group)
        if not samples or samples[-1].time_ms < sample.time_ms:
            samples.append(sample)
        while len(self._samples) > GROUPS_MAX:
            self._samples.popitem(last=False)
        return tuple(samples)


def series_of(samples: tuple[LagSample, ...]) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """Return the lines of a plot of a group's lag, each with its label and values. The first line
    is the total lag. The other lines are the partitions with the largest lags now. A value of None
    is a gap."""
    latest = samples[-1].by_name
    names = sorted(latest, key=lambda name: (-latest[name], name))[: SERIES_MAX - 1]
    return (
        ("all partitions", tuple(one.records for one in samples)),
        *((name, tuple(one.by_name.get(name) for one in samples)) for name in names),
    )
