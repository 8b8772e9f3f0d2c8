"""The frame of a picture over the time of a run: lanes of faults, panels, axes, legend.

Pure.  Every picture of a run has the same width and the same time axis, so that two of them one
above the other can be read together: what stands at the same place happened at the same time.
"""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ottla.jepsen.report.faults import Fault, merged_spans
from ottla.jepsen.report.markup import Markup, element, joined
from ottla.jepsen.report.scales import Linear, Logarithmic, Tick, clock_words, seconds_ticks
from ottla.jepsen.report.theme import COLOURS, PICTURE
from ottla.jepsen.report.words import seconds_words, shortened

WIDTH = 1100
LEFT = 158
"""Where the plot begins: left of it are names of lanes and panels, and the numbers of the axis."""
RIGHT = 1010
"""Where the plot ends: right of it stand the names of lines."""
LANE_HEIGHT = 15
PANEL_HEIGHT = 200
PANEL_GAP = 22
NOTE_COLUMNS = 165
LANES_MAX = 14
MARGIN = 16
"""Around a picture that stands alone; a page has its own."""
LANE_NAME_MAX = 26

Scale = Linear | Logarithmic
Draw = Callable[[Linear, Scale], Iterable[Markup]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One plot of a picture."""

    name: str
    unit: str
    """What its vertical axis counts."""
    low: float
    high: float
    ticks: Sequence[Tick]
    draw: Draw
    """Given the scales of time (in seconds) and of the vertical axis, returns what was measured."""
    height: int = PANEL_HEIGHT
    is_logarithmic: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """An entry of a legend: how it looks, and what that means."""

    swatch: str
    """Classes of the mark: "line c1 dashed", "dots ok", "shape info"."""
    words: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture, to be put into a page or into a file of its own."""

    name: str
    """Of its file, without ".svg"."""
    title: str
    summary: str
    """What it shows, for those who cannot see it."""
    width: int
    height: int
    body: Markup

    def inline(self) -> Markup:
        """Return the element for a page that has the styles already."""
        return self._svg(self.body, margin=0)

    def file_text(self) -> str:
        """Return the text of an SVG file, complete in itself."""
        style = element("style", Markup(COLOURS + PICTURE))
        place = {"x": -MARGIN, "y": -MARGIN}
        size = {"width": self.width + 2 * MARGIN, "height": self.height + 2 * MARGIN}
        ground = element("rect", **place, **size, class_="ground")
        inner = joined([style, ground, self.body])
        return self._svg(inner, margin=MARGIN, xmlns="http://www.w3.org/2000/svg") + "\n"

    def _svg(self, body: Markup, *, margin: int, xmlns: str | None = None) -> Markup:
        width, height = self.width + 2 * margin, self.height + 2 * margin
        return element(
            "svg",
            body,
            xmlns=xmlns,
            class_="picture",
            viewBox=f"{-margin} {-margin} {width} {height}",
            width=width,
            height=height,
            role="figure",
            aria_label=f"{self.title}. {self.summary}",
        )


def time_picture(
    name: str,
    title: str,
    summary: str,
    *,
    faults: Sequence[Fault],
    end_s: float,
    panels: Sequence[Panel],
    legend: Sequence[Key] = (),
    notes: Sequence[str] = (),
) -> Picture:
    """Lay out panels over the time from 0 to `end_s`, with the faults above and behind them."""
    x = time_scale(end_s)
    parts: list[Markup] = [text(title, 0, 20, "title")]
    top = 30
    for line in textwrap.wrap(summary, NOTE_COLUMNS):
        top += 16
        parts.append(text(line, 0, top - 4, "muted"))
    if legend:
        top += 24
        parts.append(_legend(legend, top - 6))
    top += 10
    lanes = lanes_of(faults)
    lanes_top, top = top, top + LANE_HEIGHT * len(lanes) + (8 if lanes else 0)
    placed = []
    for panel in panels:
        placed.append((panel, top))
        top += panel.height + PANEL_GAP
    bottom = top - PANEL_GAP
    ticks = seconds_ticks(x.low, x.high)
    parts += [_ground(panel, at) for panel, at in placed]
    parts += shading(faults, x, lanes_top, bottom)
    parts += _lanes(lanes, x, lanes_top)
    for panel, at in placed:
        parts += _panel(panel, at, x, ticks)
    for tick in ticks:
        parts.append(text(tick.label, x(tick.at), bottom + 17, "muted middle"))
    parts.append(text("time", RIGHT + 8, bottom + 17, "muted"))
    top = bottom + 30
    for note in notes:
        for line in textwrap.wrap(note, NOTE_COLUMNS):
            top += 16
            parts.append(text(line, 0, top - 4, "muted"))
    return Picture(name, title, summary, WIDTH, top + 6, joined(parts))


def time_scale(end_s: float) -> Linear:
    """Return the time axis that every picture of a run shares, from seconds to pixels."""
    return Linear(0.0, max(end_s, 1e-3), LEFT, RIGHT)


def text(words: object, x: float, y: float, class_: str | None = None) -> Markup:
    """Return a line of text whose baseline is at y."""
    return element("text", words, x=float(x), y=float(y), class_=class_)


def lanes_of(faults: Sequence[Fault]) -> Sequence[tuple[str, Sequence[Fault]]]:
    """Return the faults by name, in the order of first appearance; the last lane takes the rest."""
    lanes: dict[str, list[Fault]] = {}
    for fault in faults:
        name = fault.name
        if name not in lanes and len(lanes) >= LANES_MAX - 1:
            name = "other faults"
        lanes.setdefault(name, []).append(fault)
    return list(lanes.items())


def shading(faults: Sequence[Fault], x: Linear, top: float, bottom: float) -> Iterable[Markup]:
    """Yield a band for each span of time with a fault in it."""
    for start_ns, end_ns in merged_spans(faults):
        left = x(start_ns / 1e9)
        width = max(1.0, x(end_ns / 1e9) - left)
        yield element(
            "rect", x=left, y=float(top), width=width, height=float(bottom - top), class_="shade"
        )


def fault_words(fault: Fault) -> str:
    """Return a fault as a tooltip tells it."""
    where = f" of {', '.join(fault.nodes)}" if fault.nodes else ""
    lasted = "" if fault.end_ns == fault.start_ns else f" for {seconds_words(fault.seconds)}"
    if fault.is_open:
        lasted = " until the end"
    detail = f" ({shortened(fault.detail, 200)})" if fault.detail else ""
    return f"{fault.name}{where} at {clock_words(fault.start_ns / 1e9)}{lasted}{detail}"


def _lanes(lanes: Sequence[tuple[str, Sequence[Fault]]], x: Linear, top: float) -> Iterable[Markup]:
    for number, (name, faults) in enumerate(lanes):
        y = top + number * LANE_HEIGHT
        yield text(shortened(name, LANE_NAME_MAX), LEFT - 8, y + 10, "end muted lane")
        bars = []
        for fault in faults:
            left = x(fault.start_ns / 1e9)
            bars.append(
                element(
                    "rect",
                    element("title", fault_words(fault)),
                    x=left,
                    y=y + 2.0,
                    width=max(2.5, x(fault.end_ns / 1e9) - left),
                    height=LANE_HEIGHT - 5.0,
                    rx=2,
                    tabindex=0,
                )
            )
        yield element("g", *bars, class_="bar")


def _ground(panel: Panel, top: float) -> Markup:
    return element(
        "rect", x=LEFT, y=float(top), width=RIGHT - LEFT, height=panel.height, class_="panel"
    )


def _panel(panel: Panel, top: float, x: Linear, ticks: Sequence[Tick]) -> Iterable[Markup]:
    bottom = top + panel.height
    kind = Logarithmic if panel.is_logarithmic else Linear
    y = kind(panel.low, panel.high, bottom, top)
    grid = [f"M{x(tick.at):.1f} {top}V{bottom}" for tick in ticks]
    grid += [f"M{LEFT} {y(tick.at):.1f}H{RIGHT}" for tick in panel.ticks]
    yield element("path", d="".join(grid), class_="grid")
    for tick in panel.ticks:
        if tick.label:
            yield text(tick.label, LEFT - 8, y(tick.at) + 4, "muted end")
    names = textwrap.wrap(panel.name, 13, max_lines=4, placeholder=" …")
    for i, line in enumerate(names):
        yield text(line, 0, top + 12 + 15 * i, "strong")
    for i, line in enumerate(textwrap.wrap(panel.unit, 13), len(names)):
        yield text(line, 0, top + 13 + 15 * i, "muted")
    yield from panel.draw(x, y)
    yield element("path", d=f"M{LEFT} {top}V{bottom}H{RIGHT}", class_="axis", fill="none")


def _legend(keys: Sequence[Key], y: float) -> Markup:
    parts, left = [], 0.0
    for key in keys:
        parts.append(_swatch(key.swatch, left, y - 4))
        parts.append(text(key.words, left + 28, y))
        left += 28 + 6.4 * len(key.words) + 22
    return element("g", *parts)


def _swatch(swatch: str, x: float, y: float) -> Markup:
    if "shape" in swatch:
        return element("path", d=shape_path(swatch, x + 11, y), class_=swatch)
    if "shade" in swatch:
        return element("rect", x=x, y=y - 6, width=22, height=12, class_=swatch)
    if "dots" in swatch:
        d = "".join(f"M{x + dx:g} {y + dy:g}h0" for dx, dy in ((4, 2), (11, -2), (18, 1)))
        return element("path", d=d, class_=swatch)
    return element("path", d=f"M{x:g} {y:g}h22", class_=swatch)


def shape_path(classes: str, x: float, y: float) -> str:
    """Return the path of an outcome's shape: a triangle for info, a cross for fail, else a ring."""
    if "info" in classes:
        return f"M{x:.1f} {y - 3.5:.1f}l4 7h-8z"
    if "fail" in classes:
        return f"M{x - 3:.1f} {y - 3:.1f}l6 6m0-6l-6 6"
    return f"M{x - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0-8 0"
