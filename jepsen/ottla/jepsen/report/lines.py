"""Lines over time: paths with gaps where nothing was measured, labels at their ends, tooltips.

Pure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ottla.jepsen.report.frame import RIGHT, Scale, text
from ottla.jepsen.report.markup import Markup, element
from ottla.jepsen.report.measures import Windows
from ottla.jepsen.report.scales import Linear, clock_words
from ottla.jepsen.report.words import shortened

LABEL_HEIGHT = 13
LABEL_CHARACTERS_MAX = 13


@dataclass(frozen=True, slots=True)
class Line:
    """One value a window; None where there is none."""

    label: str
    colour: str
    """A class of the theme: c0 … c5, rest, ok, info, fail."""
    values: Sequence[float | None]
    style: str = ""
    """More classes: "dashed", "thin", …"""


def line_path(line: Line, windows: Windows, x: Linear, y: Scale) -> str:
    """Return the path through the middles of windows; a value alone becomes a short dash."""
    parts: list[str] = []
    values = line.values
    for i, value in enumerate(values):
        if value is None:
            continue
        start, end = windows.bounds(i)
        px, py = x((start + end) / 2), y(value)
        if i > 0 and values[i - 1] is not None:
            parts.append(f"L{px:.1f} {py:.1f}")
        elif i + 1 < len(values) and values[i + 1] is not None:
            parts.append(f"M{px:.1f} {py:.1f}")
        else:
            parts.append(f"M{px - 2:.1f} {py:.1f}h4")
    return "".join(parts)


def draw_lines(
    lines: Sequence[Line], windows: Windows, x: Linear, y: Scale, *, has_labels: bool = True
) -> Iterable[Markup]:
    """Yield lines and, right of the plot, their labels (unless the legend alone shall do)."""
    ends = []
    for line in lines:
        d = line_path(line, windows, x, y)
        if d:
            yield element("path", d=d, class_=f"line {line.colour} {line.style}".rstrip())
        last = next((value for value in reversed(line.values) if value is not None), None)
        if last is not None and has_labels and line.label:
            ends.append((y(last), line))
    lowest = y(y.low) - LABEL_HEIGHT / 2
    for place, line in spread([(min(at, lowest), line) for at, line in ends]):
        words = shortened(line.label, LABEL_CHARACTERS_MAX)
        # Grey lines may be faint, their names not.
        class_ = "muted" if line.colour == "rest" else f"f{line.colour}"
        yield text(words, RIGHT + 8, place + 4, class_)


def spread(ends: Sequence[tuple[float, Line]]) -> Sequence[tuple[float, Line]]:
    """Move labels apart so that none lies on another, keeping their order."""
    placed: list[tuple[float, Line]] = []
    for at, line in sorted(ends, key=lambda end: -end[0]):
        if placed:
            at = min(at, placed[-1][0] - LABEL_HEIGHT)
        placed.append((at, line))
    return placed


def area_path(line: Line, windows: Windows, x: Linear, y: Scale) -> str:
    """Return the closed path between a line and the bottom of its plot."""
    d = line_path(line, windows, x, y)
    if not d or any(value is None for value in line.values):
        return ""
    first, last = windows.bounds(0), windows.bounds(windows.count - 1)
    bottom = y(y.low)
    return f"{d}L{x(sum(last) / 2):.1f} {bottom:.1f}H{x(sum(first) / 2):.1f}Z"


def hover_columns(
    windows: Windows, x: Linear, y: Scale, words: Callable[[int], str]
) -> Iterable[Markup]:
    """Yield an invisible column for each window that tells its numbers under the pointer."""
    for window in range(windows.count):
        told = words(window)
        if not told:
            continue
        start, end = windows.bounds(window)
        left = x(start)
        yield element(
            "rect",
            element("title", f"{_when(start, end)}\n{told}"),
            x=left,
            y=y.end,
            width=max(1.0, x(end) - left),
            height=y.start - y.end,
            class_="hover",
        )


def _when(start_s: float, end_s: float) -> str:
    if start_s < 120:
        return f"{start_s:g} s to {end_s:.4g} s"
    return f"{clock_words(start_s)} to {clock_words(end_s)}"
