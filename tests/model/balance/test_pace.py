"""The throttle of a balance follows the latency of producers."""

from ottla.model.balance.pace import BalancePace

BOUNDS = {"lowest": 1_000, "highest": 16_000}


def pace_with(*idle_us: int) -> BalancePace:
    pace = BalancePace()
    for one in idle_us:
        pace.note_idle(one)
    return pace


def next_rate(pace: BalancePace, rate: int, *p99_us: int | None, under_replicated: int = 0) -> int:
    for one in p99_us:
        pace.note_moving(one)
    return pace.next_rate(rate, **BOUNDS, under_replicated=under_replicated)


def test_the_throttle_is_halved_while_producers_wait_longer_than_before_the_moves() -> None:
    pace = pace_with(10_000, 12_000, 500_000)
    rates = [16_000]
    for p99_us in (40_000, 40_000, 12_000, 12_000):
        rate = next_rate(pace, rates[-1], p99_us)
        rates.append(rate)
    assert rates == [16_000, 8_000, 4_000, 5_000, 6_250]


def test_the_throttle_stays_within_its_bounds() -> None:
    pace = pace_with(1_000)
    assert next_rate(pace, 1_500, 90_000) == 1_000
    assert next_rate(pace, 15_000, 1_000) == 16_000


def test_a_small_percentile_may_rise_by_a_half() -> None:
    assert next_rate(pace_with(200), 8_000, 300) == 10_000
    assert next_rate(pace_with(200), 8_000, 301) == 4_000


def test_producers_may_wait_a_tenth_longer() -> None:
    assert next_rate(pace_with(10_000), 8_000, 11_000) == 10_000
    assert next_rate(pace_with(10_000), 8_000, 11_100) == 4_000


def test_a_single_slow_sample_does_not_slow_the_moves() -> None:
    pace = pace_with(10_000)
    assert next_rate(pace, 8_000, 10_000, 90_000, 10_000) == 10_000
    assert next_rate(pace, 8_000, 90_000, 90_000, 10_000) == 4_000
    assert next_rate(pace, 8_000, None) == 10_000


def test_a_balance_starts_at_a_quarter_of_its_throttle_while_there_are_producers() -> None:
    assert pace_with(10_000).first_rate(**BOUNDS) == 4_000
    assert pace_with(10_000).first_rate(lowest=5_000, highest=16_000) == 5_000
    assert pace_with().first_rate(**BOUNDS) == 16_000


def test_replicas_that_fall_out_of_sync_halve_it_once() -> None:
    pace = pace_with()
    rates = [next_rate(pace, 8_000, None, under_replicated=count) for count in (3, 3, 5, 5, 0)]
    assert rates == [10_000, 10_000, 4_000, 10_000, 10_000]


def test_a_controller_that_takes_over_compares_with_the_lowest_percentile_seen() -> None:
    pace = pace_with()
    rates = [next_rate(pace, 8_000, p99_us) for p99_us in (60_000, 20_000, 60_000)]
    assert rates == [10_000, 10_000, 4_000]
