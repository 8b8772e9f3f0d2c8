"""rate: how many operations ended in a second, by kind and outcome.

Pure.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.jepsen.history import Kind, Operation
from ottla.jepsen.report.faults import Fault
from ottla.jepsen.report.frame import Key, Panel, Picture, Scale, time_picture
from ottla.jepsen.report.lines import Line, area_path, draw_lines, hover_columns
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.measures import Group, Windows, counts_by_outcome, groups_of, windows_of
from ottla.jepsen.report.scales import Linear, linear_ticks, rounded_up
from ottla.jepsen.report.words import count_words

HEIGHT, RARE_HEIGHT = 150, 70
OUTCOMES = ((Kind.OK, "ok", ""), (Kind.INFO, "unknown", "dashed"), (Kind.FAIL, "failed", "dotted"))


def rate(operations: Sequence[Operation], faults: Sequence[Fault], end_s: float) -> Picture:
    """Draw operations a second by kind and outcome, at the time they ended."""
    windows = windows_of(end_s)
    panels = [
        _panel(group, counts_by_outcome(group.operations, windows), windows)
        for group in groups_of(operations)
    ]
    return time_picture(
        "rate",
        "Operations a second",
        f"By the time they ended, in windows of {windows.step_s:g} s.",
        faults=faults,
        end_s=end_s,
        panels=panels,
        legend=[Key(f"line {kind.value} {style}", words) for kind, words, style in OUTCOMES],
    )


def _panel(group: Group, counts: Mapping[Kind, Sequence[int]], windows: Windows) -> Panel:
    rates = {
        kind: [count / windows.seconds(i) for i, count in enumerate(row)]
        for kind, row in counts.items()
    }
    high = rounded_up(max(max(row) for row in rates.values()))
    lines = [
        Line(words, kind.value, rates[kind], style)
        for kind, words, style in OUTCOMES
        if kind is Kind.OK or any(counts[kind])
    ]

    def tell(window: int) -> str:
        told = ", ".join(
            f"{count_words(counts[kind][window])} {words}" for kind, words, _ in OUTCOMES
        )
        return f"{group.name}: {told} ({count_words(round(rates[Kind.OK][window], 1))} ok a second)"

    def draw(x: Linear, y: Scale) -> Iterable[Markup]:
        yield element("path", d=area_path(lines[0], windows, x, y), class_="area fok")
        yield from draw_lines(lines, windows, x, y)
        yield from hover_columns(windows, x, y, tell)

    return Panel(
        name=group.name,
        unit="operations a second",
        low=0.0,
        high=high,
        ticks=linear_ticks(0.0, high, 2 if group.is_rare else 5),
        draw=draw,
        height=RARE_HEIGHT if group.is_rare else HEIGHT,
    )
