"""Values that a histogram keeps for a while are counted as if each had been counted at once."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from ottla.telemetry.metrics.instruments import UNCOUNTED_MAX, Histogram

BOUNDS = (10, 20, 50, 51, 1_000)


@given(st.lists(st.integers(0, 1_100), max_size=3 * UNCOUNTED_MAX), st.integers(1, 200))
def test_values_are_counted_as_if_each_were_counted_at_once(values: list[int], every: int) -> None:
    histogram, expected = Histogram(BOUNDS), [0] * (len(BOUNDS) + 1)
    for number, value in enumerate(values, 1):
        histogram.observe(value)
        expected[bisect_left(BOUNDS, value)] += 1
        if number % every == 0:
            assert histogram.counts == expected
    assert histogram.counts == expected
    assert (histogram.count, histogram.sum) == (len(values), sum(values))
