"""Compares the values that were measured on two servers: medians, spreads, ratio, and whether a
difference is significant. Pure.

The module also determines the order of measurements: the servers take turns in each round, so that
other load of the machine affects both.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

from ottla.bench.tables import table_of

OURS, THEIRS = "ottla", "kafka"
SERVERS = (OURS, THEIRS)
ROUNDS_MIN = 2
"""Minimum number of rounds of a comparison. A single round has no spread, so it allows no
verdict."""

Measured = Mapping[tuple[str, str], Mapping[str, float]]
"""Values that were measured in one round, by benchmark and server, and then by the value's name."""


class FigureVerdict(StrEnum):
    """Verdict on a value that was measured on Ottla, compared with Kafka's."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


class Spread(NamedTuple):
    """Median, lowest and highest of the values that were measured in the rounds of a comparison."""

    median: float
    lowest: float
    highest: float

    @property
    def width(self) -> float:
        """Difference between the highest and the lowest of the measured values."""
        return self.highest - self.lowest


class FigureComparison(NamedTuple):
    """Comparison of one measured value of a benchmark, such as its throughput, between both
    servers."""

    row: str
    figure: str
    ours: Spread
    theirs: Spread
    ratio: float | None
    """Median of Ottla's values divided by the median of Kafka's, or None if Kafka's is 0."""
    verdict: FigureVerdict

    def figures(self) -> dict[str, Any]:
        """Return the comparison of one measured value in its JSON form."""
        return {
            "row": self.row,
            "figure": self.figure,
            OURS: self.ours._asdict(),
            THEIRS: self.theirs._asdict(),
            "ratio": self.ratio,
            "verdict": self.verdict.value,
        }


def spread_of(values: Sequence[float]) -> Spread:
    """Return the median, the lowest and the highest of the values that were measured in the rounds
    of a comparison."""
    return Spread(median(values), min(values), max(values))


def verdict_of(
    ours: Sequence[float], theirs: Sequence[float], *, is_higher_better: bool
) -> FigureVerdict:
    """Return the verdict on Ottla's values compared with Kafka's. It is undecided if the spreads
    overlap, or if the difference between the medians is not greater than each spread."""
    mine, other = spread_of(ours), spread_of(theirs)
    gap = mine.median - other.median
    overlaps = mine.lowest <= other.highest and other.lowest <= mine.highest
    is_few = min(len(ours), len(theirs)) < ROUNDS_MIN
    if is_few or overlaps or abs(gap) <= max(mine.width, other.width):
        return FigureVerdict.UNDECIDED
    return FigureVerdict.BETTER if (gap > 0) == is_higher_better else FigureVerdict.WORSE


def compare(
    rounds: Sequence[Measured], is_higher_better: Mapping[str, bool]
) -> list[FigureComparison]:
    """Return a comparison for each benchmark and each of its measured values, in the order of the
    first round."""
    found: list[FigureComparison] = []
    for row in dict.fromkeys(row for row, _ in rounds[0]):
        for figure in rounds[0][row, OURS]:
            ours = [measured[row, OURS][figure] for measured in rounds]
            theirs = [measured[row, THEIRS][figure] for measured in rounds]
            mine, other = spread_of(ours), spread_of(theirs)
            ratio = round(mine.median / other.median, 3) if other.median else None
            verdict = verdict_of(ours, theirs, is_higher_better=is_higher_better[figure])
            found.append(FigureComparison(row, figure, mine, other, ratio, verdict))
    return found


def take_rounds(
    rows: Sequence[str],
    count: int,
    *,
    measure: Callable[[str, str], Mapping[str, float]],
    is_late: Callable[[], bool],
    servers: Sequence[str] = SERVERS,
) -> list[Measured]:
    """Run each benchmark of the comparison several times, alternately on each server. The server
    that is measured first alternates between rounds.

    Stops when `is_late` returns True. Returns the complete rounds.
    """
    rounds: list[Measured] = []
    for index in range(count):
        measured: dict[tuple[str, str], Mapping[str, float]] = {}
        for row in rows:
            for server in servers[:: -1 if index % 2 else 1]:
                if is_late():
                    return rounds
                measured[row, server] = measure(row, server)
        rounds.append(measured)
    return rounds


def as_table(comparisons: Sequence[FigureComparison]) -> str:
    """Return the comparisons as a table of medians, each followed by the lowest and highest value
    in brackets."""
    lines = []
    for each in comparisons:
        ratio = "–" if each.ratio is None else f"{each.ratio:.2f}"
        both = (shown(each.ours), shown(each.theirs))
        lines.append((each.row, each.figure, *both, ratio, each.verdict.value))
    return table_of(("ROW", "FIGURE", "OTTLA", "KAFKA", "OTTLA/KAFKA", "VERDICT"), lines)


def shown(spread: Spread) -> str:
    """Return the spread of measured values as text: the median, followed by the lowest and highest
    value in brackets."""
    middle, lowest, highest = (
        f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}" for value in spread
    )
    return f"{middle} ({lowest}–{highest})"
