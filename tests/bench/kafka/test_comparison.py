"""Verdicts on two servers' figures, and the order of measurements."""

from collections.abc import Mapping

import pytest

from ottla.bench.kafka.comparison import (
    FigureComparison,
    FigureVerdict,
    Measured,
    Spread,
    as_table,
    compare,
    spread_of,
    take_rounds,
    verdict_of,
)


def test_a_spread_is_median_lowest_and_highest() -> None:
    assert spread_of([3.0, 1.0, 10.0]) == Spread(3.0, 1.0, 10.0)
    assert spread_of([1.0, 2.0]).median == 1.5


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ([20.0, 21.0, 22.0], [10.0, 11.0, 12.0], FigureVerdict.BETTER),
        ([10.0, 11.0, 12.0], [20.0, 21.0, 22.0], FigureVerdict.WORSE),
        ([10.0, 12.0, 14.0], [13.0, 15.0, 17.0], FigureVerdict.UNDECIDED),  # the spreads overlap
        ([10.0, 10.0, 19.0], [19.0, 30.0, 30.0], FigureVerdict.UNDECIDED),  # they touch
        ([10.0, 19.0, 20.0], [21.0, 22.0, 31.0], FigureVerdict.UNDECIDED),  # apart, and each wider
        ([10.0, 11.0, 12.0], [13.0, 14.0, 23.0], FigureVerdict.UNDECIDED),  # one of them wider
        ([5.0, 5.0], [5.0, 5.0], FigureVerdict.UNDECIDED),
        ([100.0], [1.0], FigureVerdict.UNDECIDED),  # one round has no spread
    ],
)
def test_a_gap_counts_where_it_is_outside_of_both_spreads(
    ours: list[float], theirs: list[float], expected: FigureVerdict
) -> None:
    assert verdict_of(ours, theirs, is_higher_better=True) is expected
    other = {FigureVerdict.BETTER: FigureVerdict.WORSE, FigureVerdict.WORSE: FigureVerdict.BETTER}
    turned = verdict_of(ours, theirs, is_higher_better=False)
    assert turned is other.get(expected, FigureVerdict.UNDECIDED)


def test_every_figure_of_every_row_is_compared() -> None:
    rounds: list[Measured] = [
        {
            ("produce", "ottla"): {"per_second": 200 + index, "cpu": 4},
            ("produce", "kafka"): {"per_second": 100 + index, "cpu": 0},
            ("e2e", "ottla"): {"ms": 1.0},
            ("e2e", "kafka"): {"ms": 2.0},
        }
        for index in range(3)
    ]

    found = compare(rounds, {"per_second": True, "cpu": False, "ms": False})

    assert [(each.row, each.figure, each.ratio, each.verdict) for each in found] == [
        ("produce", "per_second", 1.99, FigureVerdict.BETTER),
        ("produce", "cpu", None, FigureVerdict.WORSE),
        ("e2e", "ms", 0.5, FigureVerdict.BETTER),
    ]
    assert found[0].figures()["kafka"] == {"median": 101, "lowest": 100, "highest": 102}


def measured_in_order(rounds: int, *, late_after: int = 99) -> tuple[list[str], int]:
    order: list[str] = []

    def measure(row: str, server: str) -> Mapping[str, float]:
        order.append(f"{row} {server}")
        return {}

    taken = take_rounds(
        ["a", "b"], rounds, measure=measure, is_late=lambda: len(order) >= late_after
    )
    return order, len(taken)


def test_servers_take_turns_and_the_first_alternates_between_rounds() -> None:
    order, taken = measured_in_order(2)

    assert taken == 2
    assert order[:4] == ["a ottla", "a kafka", "b ottla", "b kafka"]
    assert order[4:] == ["a kafka", "a ottla", "b kafka", "b ottla"]


@pytest.mark.parametrize(("late_after", "complete"), [(0, 0), (3, 0), (4, 1), (7, 1)])
def test_once_it_is_late_only_complete_rounds_count(late_after: int, complete: int) -> None:
    order, taken = measured_in_order(3, late_after=late_after)

    assert taken == complete
    assert len(order) == late_after


def test_a_table_has_medians_spreads_ratio_and_verdict() -> None:
    spread = Spread(1_234_567.0, 1_000_000.0, 2_000_000.0)
    row = FigureComparison(
        "produce", "per_second", spread, Spread(0.5, 0.25, 1), 2.0, FigureVerdict.BETTER
    )
    unknown = row._replace(ratio=None, verdict=FigureVerdict.UNDECIDED)

    head, first, second = as_table([row, unknown]).splitlines()

    assert head.split() == ["ROW", "FIGURE", "OTTLA", "KAFKA", "OTTLA/KAFKA", "VERDICT"]
    assert "1,234,567 (1,000,000–2,000,000)  0.5 (0.25–1)" in first
    assert first.split()[-2:] == ["2.00", "better"]
    assert second.split()[-2:] == ["–", "undecided"]
