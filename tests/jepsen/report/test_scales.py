"""A value is drawn where its axis says it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.report.scales import (
    Linear,
    Logarithmic,
    clock_words,
    duration_bounds,
    duration_ticks,
    linear_ticks,
    rounded_up,
    seconds_ticks,
)


def test_a_linear_axis_has_its_bounds_at_its_ends_and_the_middle_between() -> None:
    y = Linear(0, 50, 300, 100)
    assert (y(0), y(25), y(50)) == (300, 200, 100)


def test_a_logarithmic_axis_gives_each_decade_the_same_length() -> None:
    y = Logarithmic(1e6, 1e9, 300.0, 0.0)
    assert [y(v) for v in (1e6, 1e7, 1e8, 1e9)] == pytest.approx([300, 200, 100, 0])
    assert y(5) == 300, "what is below the axis lies on it"


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_bounds_of_durations_hold_what_they_were_made_for(low: float, high: float) -> None:
    low, high = sorted((low, high))
    bottom, top = duration_bounds(low, high)
    assert bottom <= max(low, 1_000) * (1 + 1e-8)
    assert top >= high * (1 - 1e-8)
    ticks = duration_ticks(bottom, top)
    assert len(ticks) >= 2
    assert all(bottom * 0.999 <= tick.at <= top * 1.001 for tick in ticks)
    assert any(tick.label for tick in ticks)


@given(st.floats(1e-3, 1e5))
def test_a_time_axis_has_few_ticks_and_begins_at_the_start(end_s: float) -> None:
    ticks = seconds_ticks(0.0, end_s)
    assert ticks[0].at == 0
    assert len(ticks) <= 11
    assert len({tick.label for tick in ticks}) == len(ticks)
    assert all(tick.at <= end_s * 1.001 for tick in ticks)


@given(st.floats(1e-3, 1e9))
def test_an_axis_ends_just_above_what_it_shows(value: float) -> None:
    top = rounded_up(value)
    assert value * 0.999 <= top <= value * 1.6
    assert 3 <= len(linear_ticks(0.0, top)) <= 8


def test_times_of_a_run_are_told_as_a_clock_does() -> None:
    assert [clock_words(s) for s in (0, 59.6, 61, 3_600, 36_061)] == [
        "0:00", "1:00", "1:01", "1:00:00", "10:01:01",
    ]  # fmt: skip
