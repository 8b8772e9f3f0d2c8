"""Two servers' values of the same figures: medians, spreads, ratio, and whether a gap counts.

Pure.  The order of measuring is here as well: rounds in which the servers take turns, so that
whatever else the machine does meets both of them.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

OURS, THEIRS = "ottla", "kafka"
SERVERS = (OURS, THEIRS)
ROUNDS_MIN = 2
"""One round has no spread, so that nothing can be decided by it."""

Measured = Mapping[tuple[str, str], Mapping[str, float]]
"""The figures of one round by name, for each row and server."""


class FigureVerdict(StrEnum):
    """Whether Ottla's figure is better than Kafka's."""

    BETTER = "better"
    WORSE = "worse"
    UNDECIDED = "undecided"


class Spread(NamedTuple):
    """The values of some rounds."""

    median: float
    lowest: float
    highest: float

    @property
    def width(self) -> float:
        """Distance of the lowest from the highest value."""
        return self.highest - self.lowest


class FigureComparison(NamedTuple):
    """One figure of one row, of both servers."""

    row: str
    figure: str
    ours: Spread
    theirs: Spread
    ratio: float | None
    """Ottla's median by Kafka's; None where Kafka's is 0."""
    verdict: FigureVerdict

    def figures(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        return {
            "row": self.row,
            "figure": self.figure,
            OURS: self.ours._asdict(),
            THEIRS: self.theirs._asdict(),
            "ratio": self.ratio,
            "verdict": self.verdict.value,
        }


def spread_of(values: Sequence[float]) -> Spread:
    """Return the median, the lowest and the highest value."""
    return Spread(median(values), min(values), max(values))


def verdict_of(
    ours: Sequence[float], theirs: Sequence[float], *, is_higher_better: bool
) -> FigureVerdict:
    """Decide only where the spreads are apart and the medians' gap is wider than each of them."""
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
    """Return a comparison of each figure of each row, in the order of the first round."""
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
    """Measure each row of all servers in turns, the first one alternating between rounds.

    Once it is late, return the rounds that are complete.
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
    """Return the comparisons as a table: medians, with lowest–highest in brackets."""
    lines = [("row", "figure", "Ottla", "Kafka", "Ottla/Kafka", "")]
    for each in comparisons:
        ratio = "–" if each.ratio is None else f"{each.ratio:.2f}"
        both = (shown(each.ours), shown(each.theirs))
        lines.append((each.row, each.figure, *both, ratio, each.verdict.value))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def shown(spread: Spread) -> str:
    """Return a spread as a table has it: the median, with lowest–highest in brackets."""
    middle, lowest, highest = (
        f"{value:,.4g}" if value < 1_000 else f"{value:,.0f}" for value in spread
    )
    return f"{middle} ({lowest}–{highest})"
