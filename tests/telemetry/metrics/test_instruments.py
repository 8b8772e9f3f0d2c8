"""Counters and histograms of our own."""

import random

import pytest

from ottla.telemetry.metrics.instruments import (
    Family,
    Histogram,
    MetricKind,
    Registry,
    quantile,
    summary_of,
)


def test_a_registry_reads_numbers_when_it_is_asked() -> None:
    registry = Registry()
    counter = registry.counter("ottla_things_total", "Things.")
    level = 3
    registry.read("ottla_level", MetricKind.GAUGE, "Level.", lambda: level)
    counter.value += 2
    level = 5

    families = {family.name: list(family.samples) for family in registry.collect() if family}

    assert families == {"ottla_things_total": [((), 2)], "ottla_level": [((), 5)]}


def test_counters_of_the_same_labels_are_one() -> None:
    registry = Registry()
    errors = registry.counters("ottla_errors_total", "Errors.", ("api", "code"))
    errors.of("Fetch", "NONE").value += 1
    errors.of("Fetch", "NONE").value += 1
    errors.of("Produce", "NONE").value += 1

    (family,) = (family for family in registry.collect() if family is not None)

    assert list(family.samples) == [(("Fetch", "NONE"), 2), (("Produce", "NONE"), 1)]


def test_a_family_may_be_collected_again_and_again() -> None:
    registry = Registry()
    registry.read_each("ottla_x", MetricKind.GAUGE, "X.", ("a",), lambda: [(("1",), 1)])

    for _ in range(2):
        assert [list(family.samples) for family in registry.collect() if family] == [[(("1",), 1)]]
    assert registry.names() == ["ottla_x"]


def test_a_collector_may_ask_for_a_pause() -> None:
    registry = Registry()
    family = Family("ottla_x", MetricKind.GAUGE, "X.", (), ())
    registry.register(lambda: iter((None, family)))

    assert registry.names() == ["ottla_x"]
    assert list(registry.collect()) == [None, family]


def test_a_histogram_counts_what_is_at_most_a_bound() -> None:
    histogram = Histogram((10, 20, 50))
    for value in (0, 10, 11, 20, 21, 50, 51, 1_000):
        histogram.observe(value)

    assert histogram.buckets() == ([10, 20, 50], [2, 2, 2, 2], 1_163)
    assert histogram.count == 8


@pytest.mark.parametrize("q", [0.5, 0.75, 0.95, 0.99, 0.999])
def test_a_quantile_is_off_by_less_than_its_bucket(q: float) -> None:
    chance = random.Random(7)
    bounds = tuple(round(100 * 1.25**step) for step in range(60))
    histogram = Histogram(bounds)
    values = sorted(int(chance.lognormvariate(10, 1)) for _ in range(5_000))
    for value in values:
        histogram.observe(value)

    estimate = quantile(bounds, histogram.counts, q)

    exact = values[int(q * len(values))]
    assert exact / 1.3 < estimate < exact * 1.3


def test_quantiles_are_0_where_nothing_was_counted_and_the_last_bound_above_it() -> None:
    assert quantile((10, 20), (0, 0, 0), 0.99) == 0
    assert quantile((10, 20), (0, 0, 7), 0.5) == 20


def test_quantiles_forget_what_is_long_past_while_counts_do_not() -> None:
    histogram = Histogram((10, 100, 1_000))
    histogram.observe(900)
    assert summary_of([histogram], 0, window_ms=60_000).quantiles[-1][1] > 100
    histogram.observe(5)
    summary_of([histogram], 60_000, window_ms=60_000)
    histogram.observe(5)

    summary = summary_of([histogram], 120_000, window_ms=60_000)

    assert max(at for _, at in summary.quantiles) <= 10
    assert (summary.value_count, summary.value_sum) == (3, 910)


def test_a_summary_is_reported_in_the_requested_unit() -> None:
    histogram = Histogram((1_000, 2_000))
    histogram.observe(1_500)

    summary = summary_of([histogram], 0, window_ms=1, unit=1_000)

    assert summary.value_sum == 1.5
    assert 1 <= summary.quantiles[0][1] <= 2


def test_histograms_are_reported_together() -> None:
    first, second = Histogram((10, 20)), Histogram((10, 20))
    first.observe(5)
    second.observe(15)

    summary = summary_of([first, second], 0, window_ms=1)

    assert (summary.value_count, summary.value_sum) == (2, 20)
    assert summary.quantiles[0][1] <= 10 < summary.quantiles[-1][1]
