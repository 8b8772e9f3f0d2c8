"""Sampled rates and token buckets: the figures of KIP-599 and of Kafka's formulas."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.model.quotas.rates import (
    LOOKS_KEPT_MAX,
    THROTTLE_MS_MAX,
    RateBetweenLooks,
    SampledRate,
    WindowShape,
    throttle_ms,
)
from ottla.model.quotas.token_bucket import TokenBucket

KAFKA = WindowShape()


def test_the_first_moments_of_a_client_are_measured_over_all_windows_but_one() -> None:
    rate = SampledRate(KAFKA)

    rate.record(1_000, 5_000)

    assert rate.measured_ms(5_000) == 10_000
    assert rate.per_second(5_000) == 100
    assert rate.measured_ms(5_400) == 10_400


def test_what_is_older_than_all_windows_counts_no_longer() -> None:
    rate = SampledRate(KAFKA)
    rate.record(1_000, 0)
    rate.record(500, 2_000)

    assert rate.per_second(10_999) == 1_500 * 1_000 / 10_999
    assert rate.per_second(11_000) == 500 / 10


def test_a_rate_over_one_window_has_a_millisecond_at_least() -> None:
    rate = SampledRate(WindowShape(window_count=1, window_ms=1_000))

    rate.record(3, 0)

    assert rate.measured_ms(0) == 1
    assert rate.per_second(0) == 3_000


def test_what_is_taken_back_was_never_used() -> None:
    rate = SampledRate(KAFKA)
    rate.record(1_000, 0)
    rate.record(700, 3_500)
    rate.record(-700, 3_500)

    assert rate.per_second(3_500) * rate.measured_ms(3_500) == 1_000 * 1_000


@given(
    st.integers(1, 11),
    st.floats(0.5, 50),
    st.lists(st.tuples(st.integers(0, 3_000), st.floats(0, 300)), min_size=1, max_size=30),
)
def test_a_throttle_is_that_of_the_rate_over_what_is_measured(
    window_count: int, bound: float, uses: list[tuple[int, float]]
) -> None:
    """The quick check of the total alone, expired samples included, never hides a throttle."""
    shape = WindowShape(window_count, 1_000)
    rate, plain = SampledRate(shape), SampledRate(shape)
    now_ms = 0
    for after_ms, value in uses:
        now_ms += after_ms
        rate.record(value, now_ms)
        plain.record(value, now_ms)
        measured_ms = plain.measured_ms(now_ms)
        due_ms = throttle_ms(plain.per_second(now_ms), bound, measured_ms)
        assert abs(rate.throttle_ms(bound, now_ms) - due_ms) <= 1, "but for rounding"


def test_a_throttle_brings_the_rate_back_to_its_bound() -> None:
    # (O - T) / T * W: 150 a second where 100 are allowed, over ten seconds.
    assert throttle_ms(150, 100, 10_000) == 5_000
    assert 150 * 10_000 / (10_000 + 5_000) == 100
    assert throttle_ms(100, 100, 10_000) == 0
    assert throttle_ms(99, 100, 10_000) == 0


Records = st.lists(
    st.tuples(st.integers(0, 1_500), st.integers(0, 10_000)), min_size=1, max_size=60
)


@given(records=Records, count=st.integers(1, 12), window_ms=st.sampled_from([1, 100, 1_000]))
def test_a_rate_is_that_of_a_list_of_windows(
    records: list[tuple[int, int]], count: int, window_ms: int
) -> None:
    shape = WindowShape(count, window_ms)
    rate = SampledRate(shape)
    windows: list[tuple[int, int, float]] = []
    now_ms = 1_000
    for elapsed_ms, value in records:
        now_ms += elapsed_ms
        if windows and now_ms - windows[-1][0] < window_ms:
            start_ms, _, total = windows.pop()
            windows.append((start_ms, now_ms, total + value))
        else:
            windows.append((now_ms, now_ms, float(value)))
        live = [one for one in windows if now_ms - one[1] < count * window_ms]
        elapsed = now_ms - live[0][0]
        padded = elapsed + max(0, count - 1 - elapsed // window_ms) * window_ms

        rate.record(value, now_ms)

        assert rate.measured_ms(now_ms) == max(1, padded)
        assert rate.per_second(now_ms) == sum(one[2] for one in live) * 1_000 / max(1, padded)


def test_a_burst_is_paid_off_at_the_rate_of_its_quota() -> None:
    # KIP-599: Q = 5, B = 500; a burst of 560 leaves a debt of 60, paid off in 12 s.
    bucket = TokenBucket(5, 100_000, 0)

    bucket.spend(560, 0)

    assert bucket.burst == 500
    assert bucket.tokens == -60
    assert bucket.is_exhausted
    assert bucket.throttle_ms == 12_000

    bucket.fill(12_000)

    assert not bucket.is_exhausted
    assert bucket.throttle_ms == 0


POSITIVE = st.floats(min_value=5e-324, allow_infinity=False, allow_nan=False)


@given(limit=POSITIVE, value=POSITIVE)
def test_a_throttle_fits_into_a_response_at_every_limit(limit: float, value: float) -> None:
    """At 1 byte a second a few megabytes owe more than an int32 of milliseconds holds."""
    bucket = TokenBucket(limit, 10_000, 0)
    assert 0 <= bucket.spend(value, 0) <= THROTTLE_MS_MAX
    assert 0 <= bucket.throttle_ms <= THROTTLE_MS_MAX
    rate = SampledRate(WindowShape())
    rate.record(min(value, 1e300), 0)
    assert 0 <= rate.throttle_ms(limit, 0) <= THROTTLE_MS_MAX
    assert throttle_ms(value, 0, 10_000) == THROTTLE_MS_MAX


def test_at_most_a_burst_is_saved_up() -> None:
    bucket = TokenBucket(5, 100_000, 0)
    bucket.spend(100, 0)

    bucket.fill(3_600_000)

    assert bucket.tokens == 500


def test_time_that_goes_backwards_fills_nothing() -> None:
    bucket = TokenBucket(5, 100_000, 10_000)
    bucket.spend(100, 10_000)

    bucket.fill(0)
    bucket.fill(10_000)

    assert bucket.tokens == 400


def test_a_counter_is_measured_since_the_look_that_is_a_span_ago() -> None:
    rate = RateBetweenLooks(span_ms=60_000, begun_ms=0)

    looks = [rate.per_second(count, at * 15_000) for at, count in enumerate((0, 30, 60, 90, 120))]
    assert looks == [0, 1, 2, 2, 2]
    # One look a quarter of a minute: what rose before the last minute counts no longer.
    assert rate.per_second(120, 75_000) == 90 / 60
    assert rate.per_second(120, 120_000) == 0


def test_a_counter_that_is_seldom_looked_at_is_measured_since_the_look_before() -> None:
    rate = RateBetweenLooks(span_ms=60_000, begun_ms=0)

    assert rate.per_second(600, 600_000) == 1
    assert rate.per_second(600 + 2_400, 1_200_000) == 4


def test_a_burst_at_the_start_is_one_of_half_a_span() -> None:
    rate = RateBetweenLooks(span_ms=60_000, begun_ms=5_000)

    assert rate.per_second(30, 5_001) == 1


def test_looks_are_kept_within_a_bound_however_often_one_looks() -> None:
    rate = RateBetweenLooks(span_ms=60_000, begun_ms=0)

    for now_ms in range(0, 200_000, 7):
        found = rate.per_second(now_ms, now_ms)
        assert len(rate._looks) <= LOOKS_KEPT_MAX + 2

    assert 990 < found <= 1_000
