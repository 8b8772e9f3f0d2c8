"""Quantiles of the combined values of many histograms, as precise as their bucket bounds allow.
Pure.

Values are assumed to be spread evenly within their bucket. The first bucket starts at zero if its
bound is positive. Values above the last bound are counted at the last bound. Histograms with
different bounds can be combined without converting their buckets to common bounds.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

Histogram = tuple[Sequence[float], Sequence[int]]
"""Histogram as the bounds of its buckets, and the number of values in each bucket. There is one
bucket more than there are bounds. Both are empty if they are unknown."""


def quantiles(histograms: Iterable[Histogram], wanted: Sequence[float]) -> list[float] | None:
    """Return, for each requested fraction (0 to 1), the value below which this fraction of all
    histograms' values is.

    Returns None if no histogram has buckets.
    """
    spread, standing = _masses(histograms)
    edges = sorted({*standing, *(edge for one in spread for edge in one)})
    if not edges:
        return None
    total = sum(spread.values()) + sum(standing.values())
    steps = _steps(edges, spread, standing)
    return [_value_at(share * total, steps) for share in wanted]


_Spread = Counter[tuple[float, float]]
_Standing = Counter[float]
_Step = tuple[float, float, float, float]
"""Step of the combined histograms: a bucket bound and the previous bound, then the number of values
up to the previous bound and up to this bound."""


def _masses(histograms: Iterable[Histogram]) -> tuple[_Spread, _Standing]:
    """Count the values of the combined histograms. Returns the numbers of values between successive
    bucket bounds, and the numbers of values exactly at a bound."""
    spread: _Spread = Counter()
    standing: _Standing = Counter()
    for bounds, counts in histograms:
        if not bounds:
            continue
        assert len(counts) == len(bounds) + 1
        lower = min(0.0, bounds[0])
        for upper, count in zip(bounds, counts, strict=False):
            if count and lower < upper:
                spread[(lower, upper)] += count
            elif count:
                standing[upper] += count
            lower = upper
        if counts[-1]:
            standing[bounds[-1]] += counts[-1]
    return spread, standing


def _steps(edges: Sequence[float], spread: _Spread, standing: _Standing) -> list[_Step]:
    steps: list[_Step] = []
    below = 0.0
    before = edges[0]
    for edge in edges:
        between = sum(
            count * (edge - before) / (upper - lower)
            for (lower, upper), count in spread.items()
            if lower <= before and edge <= upper
        )
        steps.append((edge, before, below, below + between))
        below += between + standing[edge]
        before = edge
    return steps


def _value_at(rank: float, steps: Sequence[_Step]) -> float:
    """Return the value at a rank of the combined histograms, counted from the smallest value."""
    for (edge, before, below, up_to), following in zip(steps, [*steps[1:], None], strict=True):
        if rank <= up_to and up_to > below:
            return before + (edge - before) * max(0.0, rank - below) / (up_to - below)
        if following is None or rank <= following[2]:
            return edge
    raise AssertionError("a rank lies above all values")
