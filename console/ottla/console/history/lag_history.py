"""Lags of groups over time, kept in memory. The samples come from the requests of open pages. Pure.

The console sends no other requests for them. An unused console therefore causes no load on the
brokers.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import NamedTuple

GROUPS_MAX = 100
"""Maximum number of groups whose lag samples are kept. Above it, the samples of the group whose
page was opened longest ago are dropped."""
SAMPLES_MAX = 360
"""Maximum number of lag samples of one group: half an hour of an open page."""
SERIES_MAX = 6


class LagSample(NamedTuple):
    """Lag of one group at one time, in records and in seconds, with the separate lags of some of
    its partitions."""

    time_ms: int
    records: int | None
    """Lag of the group in records, summed over all partitions. None if no lag is known."""
    seconds: float | None
    """Largest age of an unread record among the examined partitions of the group, in seconds. None
    if no age is known."""
    by_name: Mapping[str, int]
    """Lags in records of the partitions that were furthest behind, by the name of the partition."""


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
    is the sum; the others are the partitions with the largest lag now. A value of None is a gap."""
    latest = samples[-1].by_name
    names = sorted(latest, key=lambda name: (-latest[name], name))[: SERIES_MAX - 1]
    return (
        ("all partitions", tuple(one.records for one in samples)),
        *((name, tuple(one.by_name.get(name) for one in samples)) for name in names),
    )
