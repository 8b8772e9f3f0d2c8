"""Quantiles of many histograms together, as near as their bounds allow.

Pure.  Values are taken to lie evenly within their bucket; the first bucket begins at zero where
its bound is above zero; what lies above the last bound counts as the last bound, since nobody said
more.  Histograms with other bounds than the rest are taken as they are: no bucket is forced into
another.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

Histogram = tuple[Sequence[float], Sequence[int]]
"""Bounds, and how many values fell below each, and one count more; both empty when unknown."""


def quantiles(histograms: Iterable[Histogram], wanted: Sequence[float]) -> list[float] | None:
    """Return the value below which each wanted share (0 to 1) of all values lies.

    None when no histogram says how its values are spread.
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
"""An edge, the edge before it, and how many values lie up to either, without those on this edge."""


def _masses(histograms: Iterable[Histogram]) -> tuple[_Spread, _Standing]:
    """Return how many values are spread between two edges, and how many stand on one."""
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
    """Return the value with so many others below it."""
    for (edge, before, below, up_to), following in zip(steps, [*steps[1:], None], strict=True):
        if rank <= up_to and up_to > below:
            return before + (edge - before) * max(0.0, rank - below) / (up_to - below)
        if following is None or rank <= following[2]:
            return edge
    raise AssertionError("a rank lies above all values")
