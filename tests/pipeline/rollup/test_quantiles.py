"""Quantiles of histograms: where values are known, their own bucket holds the answer."""

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipeline.rollup.quantiles import Histogram, quantiles

BOUNDS = st.lists(
    st.integers(min_value=-20, max_value=200), min_size=1, max_size=6, unique=True
).map(lambda found: tuple(float(one) for one in sorted(found)))
VALUES = st.lists(st.integers(min_value=-30, max_value=300), min_size=1, max_size=40)
SHARES = st.floats(min_value=0, max_value=1)


def counted(values: list[int], bounds: tuple[float, ...]) -> Histogram:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return bounds, counts


@given(VALUES, BOUNDS, SHARES)
def test_a_quantile_lies_in_the_bucket_of_the_value_that_it_stands_for(
    values: list[int], bounds: tuple[float, ...], share: float
) -> None:
    reported = quantiles([counted(values, bounds)], [share])
    assert reported is not None
    exact = sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]
    index = bisect_left(bounds, exact)
    lower = bounds[index - 1] if index else min(0.0, bounds[0])
    upper = bounds[min(index, len(bounds) - 1)]
    assert min(lower, upper) <= reported[0] <= upper or reported[0] == pytest.approx(upper)


@given(st.lists(st.tuples(VALUES, BOUNDS), min_size=1, max_size=4), SHARES, SHARES)
def test_a_larger_share_is_no_smaller_value_and_no_histogram_twice_changes_it(
    parts: list[tuple[list[int], tuple[float, ...]]], one: float, other: float
) -> None:
    histograms = [counted(values, bounds) for values, bounds in parts]
    small, large = sorted((one, other))
    reported = quantiles(histograms, [small, large])
    assert reported is not None
    assert reported[0] <= reported[1] + 1e-9
    assert quantiles(histograms * 2, [small, large]) == pytest.approx(reported)
    assert quantiles(reversed(histograms), [small, large]) == pytest.approx(reported)


def test_values_lie_evenly_within_their_bucket() -> None:
    assert quantiles([((10.0, 20.0), (50, 50, 0))], [0.5, 0.75, 0.99, 1.0]) == [
        10.0,
        15.0,
        pytest.approx(19.8),
        20.0,
    ]
    # The first bucket begins at zero; what is above the last bound is the last bound.
    assert quantiles([((10.0,), (4, 0))], [0.25]) == [2.5]
    assert quantiles([((10.0, 20.0), (0, 0, 7))], [0.5]) == [20.0]
    assert quantiles([((-5.0, 5.0), (2, 2, 0))], [0.5, 0.75]) == [-5.0, 0.0]


def test_histograms_with_other_bounds_are_taken_as_they_are() -> None:
    reported = quantiles([((10.0,), (10, 0)), ((5.0, 10.0), (0, 10, 0))], [0.25, 0.5])
    assert reported == [5.0, pytest.approx(20 / 3)]


def test_without_a_spread_there_is_no_quantile() -> None:
    assert quantiles([], [0.5]) is None
    assert quantiles([((), ())], [0.5]) is None
    assert quantiles([((1.0,), (0, 0))], [0.5]) is None
