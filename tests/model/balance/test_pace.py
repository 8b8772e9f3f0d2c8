"""The throttle of a balance follows the latency of producers."""

from ottla.model.balance.pace import BalancePace

BOUNDS = {"lowest": 1_000, "highest": 16_000}


def pace_with(*idle_us: int) -> BalancePace:
    pace = BalancePace()
    for one in idle_us:
        pace.note_idle(one)
    return pace


def test_the_throttle_is_halved_while_producers_wait_longer_than_before_the_moves() -> None:
    pace = pace_with(10_000, 12_000, 500_000)
    rates = [16_000]
    for p99_us in (40_000, 40_000, 12_000, 12_000):
        rate = pace.next_rate(rates[-1], **BOUNDS, p99_us=p99_us, under_replicated=0)
        rates.append(rate)
    assert rates == [16_000, 8_000, 4_000, 5_000, 6_250]


def test_the_throttle_stays_within_its_bounds() -> None:
    pace = pace_with(1_000)
    assert pace.next_rate(1_500, **BOUNDS, p99_us=90_000, under_replicated=0) == 1_000
    assert pace.next_rate(15_000, **BOUNDS, p99_us=1_000, under_replicated=0) == 16_000


def test_a_small_percentile_may_double() -> None:
    pace = pace_with(1_000)
    assert pace.next_rate(8_000, **BOUNDS, p99_us=3_000, under_replicated=0) == 10_000


def test_replicas_that_fall_out_of_sync_halve_it_once() -> None:
    pace = pace_with()
    rates = [
        pace.next_rate(8_000, **BOUNDS, p99_us=None, under_replicated=count)
        for count in (3, 3, 5, 5, 0)
    ]
    assert rates == [10_000, 10_000, 4_000, 10_000, 10_000]


def test_a_controller_that_takes_over_compares_with_the_lowest_percentile_seen() -> None:
    pace = pace_with()
    rates = [
        pace.next_rate(8_000, **BOUNDS, p99_us=p99_us, under_replicated=0)
        for p99_us in (60_000, 20_000, 60_000)
    ]
    assert rates == [10_000, 10_000, 4_000]
