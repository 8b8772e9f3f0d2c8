"""Metrics over time: values, rates, gaps, and the bounds of their memory."""

from ottla.console.history import metric_history
from ottla.console.history.metric_history import GAP_S, SAMPLE_S_MIN, SPAN_S, MetricHistory


def history_of(*samples: tuple[float, dict[int, dict[str, float]]]) -> MetricHistory:
    history = MetricHistory()
    for at_s, metrics in samples:
        history.add(at_s, metrics)
    return history


def test_values_and_rates_of_each_broker() -> None:
    history = history_of(
        (0, {1: {"n": 5.0}, 2: {"n": 7.0}}),
        (10, {1: {"n": 25.0}}),
        (20, {1: {"n": 45.0}, 2: {"n": 9.0}}),
    )
    assert history.times_s == (0, 10, 20)
    assert history.series_of("n") == [(1, (5.0, 25.0, 45.0)), (2, (7.0, None, 9.0))]
    # Broker 2 did not answer in between, so that no increase of one interval is known.
    assert history.rates_of("n") == [(1, (None, 2.0, 2.0)), (2, (None, None, None))]
    assert history.series_of("other") == []


def test_no_rate_is_known_after_a_restart() -> None:
    history = history_of((0, {1: {"n": 5.0}}), (10, {1: {"n": 25.0}}), (20, {1: {"n": 0.0}}))
    assert history.rates_of("n") == [(1, (None, 2.0, None))]


def test_samples_that_follow_too_soon_are_not_kept() -> None:
    history = history_of((0, {1: {"n": 0.0}}), (SAMPLE_S_MIN - 1, {1: {"n": 1.0}}))
    assert history.times_s == (0,)


def test_a_time_without_samples_is_a_gap() -> None:
    history = history_of((0, {1: {"n": 0.0}}), (2 * GAP_S, {1: {"n": 6.0}}))
    assert history.times_s == (0, SAMPLE_S_MIN, 2 * GAP_S)
    assert history.series_of("n") == [(1, (0.0, None, 6.0))]
    assert history.rates_of("n") == [(1, (None, None, None))]


def test_old_samples_and_brokers_that_are_gone_are_forgotten() -> None:
    history = MetricHistory()
    history.add(0, {9: {"n": 1.0}})
    at_s = 0.0
    while at_s < 2 * SPAN_S:
        at_s += SAMPLE_S_MIN
        history.add(at_s, {1: {"n": at_s}})
    assert history.times_s[0] >= SPAN_S
    assert len(history.times_s) == round(SPAN_S / SAMPLE_S_MIN) + 1
    ((broker, values),) = history.series_of("n")
    assert (broker, len(values), values[-1]) == (1, len(history.times_s), 2 * SPAN_S)


def test_the_number_of_series_is_limited() -> None:
    limit = metric_history.SERIES_MAX
    history = history_of((0, {1: {str(name): 1.0 for name in range(limit)}}))
    assert history.is_complete
    history.add(10, {1: {"0": 2.0}, 2: {"0": 3.0}})
    assert not history.is_complete
    assert history.series_of("0") == [(1, (1.0, 2.0))]
    assert history.series_of("1") == [(1, (1.0, None))]
