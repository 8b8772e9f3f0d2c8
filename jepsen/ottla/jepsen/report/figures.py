"""Plots of a run as SVG, drawn by matplotlib: time on the horizontal axis, active faults shaded.

Only this module needs matplotlib (the extra `reports`), and it imports matplotlib when it draws.
Colours in a plot are variables of the page, so they follow the page's light or dark theme. Text
from a run is cleaned before it is drawn, and never parsed as mathematics.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from math import ceil, floor, log10, nan
from typing import TYPE_CHECKING, Any

from ottla.jepsen.history import EventKind, History, Json, Operation
from ottla.jepsen.report import measures
from ottla.jepsen.report.faults import Fault, merged_spans
from ottla.jepsen.report.markup import FORBIDDEN, Markup, element, escape
from ottla.jepsen.report.page import COLOURS, LIGHT
from ottla.jepsen.report.words import clock_words, duration_words, many, shortened
from ottla.model.install_hint import install_hint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MISSING = f"pictures are left out, they need matplotlib: {install_hint('reports')}"
WIDTH_INCHES, PLOT_INCHES, LANE_INCHES, GAP_INCHES = 11.0, 2.0, 0.17, 0.16
EDGE_INCHES = 0.1
"""Distance in inches between the labels of a plot and the edges of its picture."""

DOTS_MAX, MARKS_MAX = 6_000, 400
"""Maximum number of dots in one plot, and maximum number of crosses or triangles. If a plot has
more of them, neighbours are merged into one."""
PLOT_DOTS = (950, 190)
"""Numbers of columns and rows of the finest grid of dots in a plot. On this grid, neighbouring dots
touch."""
LANES_MAX = 14
"""Maximum number of nodes that have a separate row in the plot of faults. Also the maximum number
of kinds of faults in its legend."""
SERIES = ("ok", "c1", "c2", "c3", "c4", "c5")
"""Names of the colours for a plot's lines and for kinds of faults. When all are used, further lines
are grey."""
QUANTILES = ((0.5, "median", "ok"), (0.95, "95 %", "c2"), (0.99, "99 %", "c1"),
             (1.0, "slowest", "c3"))  # fmt: skip
OUTCOMES = (
    (EventKind.OK, "ok", ""),
    (EventKind.INFO, "unknown", "^"),
    (EventKind.FAIL, "failed", "x"),
)
TIME_STEPS_S = (0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400)
OVER_TIME = "_over_time"
"""Suffix in the names of statistics over time, which a checker reports as a list of [seconds,
value]."""

RECOVERY = "recovery"
"""Name of the plot of recovery times after faults. Each of its values is followed by the service
that recovered last."""

RECOVERY_COUNTS = (
    "Recovery counts, from the end of a fault, the seconds without any fault until every kind of "
    "operation and every written key in use has succeeded again."
)

Draw = Callable[["Axes"], None]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot of a run as SVG, with a caption."""

    name: str
    """Name of the plot's file, without ".svg"."""
    title: str
    note: str
    svg: Markup

    def file_text(self) -> str:
        """Return the plot as the text of a stand-alone SVG file."""
        start, bracket, rest = self.svg.partition(">")
        return f"{start}{bracket}<style>{COLOURS}</style>{rest}"

    def box(self) -> Markup:
        """Return the plot as an HTML element for a page, with the plot's caption."""
        link = element("a", "as a file", href=f"{self.name}.svg")
        note = element("p", self.note, " ", link, class_="muted small")
        title = element("h3", self.title)
        return element("div", title, note, self.svg, class_="picture", id=self.name)


@dataclass(frozen=True, slots=True)
class PlotContext:
    """Properties of a run that all its plots need: its length, its faults, and the start of its
    final reads."""

    end_s: float
    faults: Sequence[Fault] = ()
    final_s: float | None = None
    """Seconds from the start of the run to the start of its final reads (of all records after the
    load). None if the run has no final reads."""


def can_draw() -> bool:
    """Return whether matplotlib is installed, which draws the plots."""
    return find_spec("matplotlib") is not None


def run_plots(
    history: History, figures: Mapping[str, Json], faults: Sequence[Fault]
) -> Sequence[Plot]:
    """Return the plots of a run: its operations over time, and the statistics that checkers report
    over time."""
    final_s = measures.final_reads_s(history.operations())
    context = PlotContext(max(history.end_ns / 1e9, 1e-3), faults, final_s)
    groups = measures.groups_of(history.operations())
    windows = measures.windows_of(context.end_s)
    plots = [
        _latencies(groups, context),
        _quantiles(groups, windows, context),
        _rates(groups, windows, context),
    ]
    for name, points in figures.items():
        if name == f"{RECOVERY}{OVER_TIME}" and points:
            plots.append(_recoveries(points, figures.get("recovery_s"), context))
        elif name.endswith(OVER_TIME) and points:
            plots.append(_over_time(name.removesuffix(OVER_TIME), points, context))
    return [plot for plot in plots if plot is not None]


def _latencies(groups: Mapping[str, Sequence[Operation]], context: PlotContext) -> Plot | None:
    panels: dict[str, Draw] = {}
    unanswered = 0
    for f, operations in groups.items():
        points: dict[EventKind, list[Point]] = {kind: [] for kind, *_ in OUTCOMES}
        for operation in operations:
            if operation.completion is None:
                unanswered += 1
            else:
                took = log10(max(1_000, measures.took_ns(operation)))
                points[operation.kind].append((operation.invoke.time_ns / 1e9, took))
        if any(points.values()):
            panels[f] = _latency_dots(points, context.end_s)
    note = "Each dot is an operation at its start; the scale is logarithmic."
    if unanswered:
        note += f" {many(unanswered, 'operation')} never got an answer and cannot be drawn."
    return _plot("latency-raw", "Latency of each operation", note, context, panels)


def _latency_dots(points: Mapping[EventKind, Sequence[Point]], end_s: float) -> Draw:
    took = [log_ns for those in points.values() for _, log_ns in those]

    def draw(axes: "Axes") -> None:
        _durations(axes, 10 ** min(took), 10 ** max(took))
        for kind, words, marker in OUTCOMES:
            thin = thinned(
                points[kind], end_s, (min(took), max(took)), MARKS_MAX if marker else DOTS_MAX
            )
            x, y = [at_s for at_s, _ in thin], [10**log_ns for _, log_ns in thin]
            colour = LIGHT[kind.value]
            if thin and marker:
                axes.plot(x, y, marker, mfc="none", ms=4, mew=1, color=colour, label=words)
            elif thin:
                # A line with gaps everywhere, which takes a tenth of the bytes of as many markers.
                axes.plot(*_apart(x, y), color=colour, lw=1.7, solid_capstyle="round")
                axes.plot([], [], ".", color=colour, label=words)

    return draw


def _apart(x: Sequence[float], y: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    return [a for at in x for a in (at, at, nan)], [b for at in y for b in (at, at, nan)]


def thinned(
    points: Sequence[Point], end_s: float, y: tuple[float, float], points_max: int
) -> Sequence[Point]:
    """Reduce the points of a plot to at most `points_max`: one for each occupied cell of a grid
    over the plot."""
    step = 1
    while True:
        across = PLOT_DOTS[0] / step / end_s
        up = PLOT_DOTS[1] / step / ((y[1] - y[0]) or 1.0)
        kept = {
            (int(at_s * across), int((value - y[0]) * up)): (at_s, value) for at_s, value in points
        }
        if len(kept) <= points_max:
            return sorted(kept.values())
        step += 1


def _quantiles(
    groups: Mapping[str, Sequence[Operation]], windows: measures.Windows, context: PlotContext
) -> Plot | None:
    panels: dict[str, Draw] = {}
    for f, operations in groups.items():
        latencies = measures.ok_latencies(operations, windows)
        rows = {
            (words, colour): [measures.quantile(one, share) if one else nan for one in latencies]
            for share, words, colour in QUANTILES
        }
        # Quantiles over rare, unrelated operations have no meaning.
        if any(latencies) and ", " not in f:
            panels[f] = _lines(windows, rows, are_durations=True)
    note = f"Of operations that ended ok, by their start, in windows of {windows.step_s:g} s."
    return _plot("latency-quantiles", "Latency quantiles", note, context, panels)


def _rates(
    groups: Mapping[str, Sequence[Operation]], windows: measures.Windows, context: PlotContext
) -> Plot | None:
    panels: dict[str, Draw] = {}
    for f, operations in groups.items():
        rates = measures.rates(operations, windows)
        rows = {(words, kind.value): rates[kind] for kind, words, _ in OUTCOMES if any(rates[kind])}
        panels[f] = _lines(windows, rows)
    note = f"By their end, in windows of {windows.step_s:g} s."
    return _plot("rate", "Operations a second", note, context, panels)


def _lines(
    windows: measures.Windows,
    rows: Mapping[tuple[str, str], Sequence[float]],
    *,
    are_durations: bool = False,
) -> Draw:
    """Return a function that draws lines in a plot, one for each (label, colour). Each line has one
    value per time window."""
    edges = [number * windows.step_s for number in range(windows.count + 1)]

    def draw(axes: "Axes") -> None:
        for (words, colour), values in rows.items():
            axes.stairs(values, edges, baseline=None, color=LIGHT[colour], label=words)
        if are_durations:
            values = [ns for row in rows.values() for ns in row if ns == ns]
            _durations(axes, min(values), max(values))
        else:
            axes.set_ylim(bottom=0)

    return draw


def _over_time(name: str, points: Sequence[Sequence[float]], context: PlotContext) -> Plot | None:
    """Return a plot over time of the statistic `name`, as measured by a checker."""

    def draw(axes: "Axes") -> None:
        x, y = zip(*points, strict=True)
        axes.fill_between(x, y, step="post", color=LIGHT["ok"], alpha=0.2, lw=0)
        axes.step(x, y, where="post", color=LIGHT["ok"])
        axes.set_ylim(bottom=0)

    title = name.replace("_", " ")
    note = f"As measured by a checker; the last value is {points[-1][1]:g}."
    panels = {"seconds" if "lag" in name else "values": draw}
    return _plot(name.replace("_", "-"), title[:1].upper() + title[1:], note, context, panels)


def _recoveries(
    points: Sequence[Sequence[Any]], quantiles: Json, context: PlotContext
) -> Plot | None:
    """Return a plot of the seconds that the cluster needed to recover from each fault, at the time
    when the fault ended."""
    p99_s = quantiles.get("p99") if isinstance(quantiles, dict) else None

    def draw(axes: "Axes") -> None:
        x, y = [one[0] for one in points], [one[1] for one in points]
        axes.vlines(x, 0, y, color=LIGHT["ok"], lw=1.5)
        axes.plot(x, y, "o", ms=4, color=LIGHT["ok"], label="one fault")
        if isinstance(p99_s, int | float):
            axes.axhline(p99_s, color=LIGHT["c1"], ls=":", label=f"p99: {p99_s:.2f} s")
        axes.set_ylim(0, 1.1 * max(*y, 0.1))

    note = RECOVERY_COUNTS
    if isinstance(p99_s, int | float):
        note += f" The 99th percentile over {many(len(points), 'fault')} is {p99_s:.2f} s."
    end_s, took_s, need = max(points, key=lambda one: one[1])
    if need:
        note += (
            f" The slowest, {took_s:.2f} s, followed the fault that ended at {clock_words(end_s)}; "
            f"the last to succeed was {label(need)}."
        )
    return _plot(RECOVERY, "Recovery from each fault", note, context, {"seconds": draw})


def _durations(axes: "Axes", low_ns: float, high_ns: float) -> None:
    """Make a plot's vertical axis show durations, on a logarithmic scale between whole powers of
    ten."""
    low = 10.0 ** floor(log10(max(low_ns, 1_000)) + 1e-9)
    axes.set_yscale("log")
    axes.set_ylim(low, max(10.0 ** ceil(log10(max(high_ns, 1_000)) - 1e-9), low * 10))
    axes.yaxis.set_major_formatter(lambda ns, _: duration_words(ns))
    axes.minorticks_off()


def _lanes(axes: "Axes", lanes: Mapping[str, Sequence[Fault]], end_s: float) -> None:
    """Draw a run's faults as bars over time, with a row for each node and a colour for each kind of
    fault."""
    by_kind: dict[str, list[tuple[int, float, float]]] = {}
    for row, faults in enumerate(lanes.values()):
        for fault in faults:
            start_s = fault.start_ns / 1e9
            span = row, start_s, start_s + max(fault.seconds, end_s / 500)
            by_kind.setdefault(fault.name, []).append(span)
    for number, (kind, spans) in enumerate(by_kind.items()):
        colour = LIGHT[SERIES[number] if number < len(SERIES) else "rest"]
        axes.hlines(*zip(*spans, strict=True), color=colour, lw=8)
        if number < LANES_MAX:
            axes.plot([], [], color=colour, lw=5, label=label(kind))
    axes.set(yticks=range(len(lanes)), yticklabels=lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.grid(False)


def _by_node(faults: Sequence[Fault]) -> Mapping[str, Sequence[Fault]]:
    lanes: dict[str, list[Fault]] = {}
    for fault in faults:
        for node in fault.nodes or ("cluster",):
            lane = label(node)
            is_full = lane not in lanes and len(lanes) >= LANES_MAX
            lanes.setdefault("others" if is_full else lane, []).append(fault)
    return lanes


def _plot(
    name: str, title: str, note: str, context: PlotContext, panels: Mapping[str, Draw]
) -> Plot | None:
    """Draw a plot with the named panels above each other, over the time of the run. Returns None if
    there are no panels."""
    if not panels:
        return None
    from matplotlib.figure import Figure

    lanes = _by_node(context.faults)
    spans = merged_spans((fault.start_ns, fault.end_ns) for fault in context.faults)
    kinds = min(LANES_MAX, len({fault.name for fault in context.faults}))
    strip = LANE_INCHES * (1 + max(len(lanes), kinds))
    heights = [strip] * bool(lanes) + [PLOT_INCHES] * len(panels)
    height = sum(heights) + GAP_INCHES * (len(heights) + 1) + 0.25
    with _style():
        figure = Figure(figsize=(WIDTH_INCHES, height))
        grid = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
        plots = list(grid[:, 0])
        if lanes:
            _lanes(plots[0], lanes, context.end_s)
        for plot, (words, draw) in zip(plots[-len(panels) :], panels.items(), strict=True):
            bands = [(start / 1e9, (end - start) / 1e9) for start, end in spans]
            place = plot.get_xaxis_transform()
            plot.broken_barh(bands, (0, 1), transform=place, fc=LIGHT["shade"], lw=0, zorder=0)
            if context.final_s is not None:
                plot.axvline(
                    context.final_s, color=LIGHT["bad"], ls="--", lw=1, label="final reads"
                )
            draw(plot)
            plot.set_ylabel(label(words))
        for plot in plots:
            if plot.get_legend_handles_labels()[0]:
                plot.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)
        step = next((s for s in TIME_STEPS_S if context.end_s / s <= 12), context.end_s / 10)
        ticks = [number * step for number in range(int(context.end_s / step + 1e-9) + 1)]
        texts = [clock_words(at) if context.end_s > 20 else f"{at:g} s" for at in ticks]
        plots[-1].set_xticks(ticks, texts)
        plots[-1].set_xlim(0, context.end_s)
        _make_room(figure, plots, heights)
        return Plot(name, title, note, _svg(figure, f"{title}. {note}"))


def _make_room(figure: "Figure", plots: Sequence["Axes"], heights: Sequence[float]) -> None:
    """Adjust the layout of a figure: reserve the height of each legend, and the width of the labels
    on both sides."""
    figure.draw_without_rendering()
    legends = [plot.get_legend() for plot in plots]
    room = [
        max(height, 0.0 if legend is None else legend.get_window_extent().height / figure.dpi)
        for height, legend in zip(heights, legends, strict=True)
    ]
    height = sum(room) + GAP_INCHES * (len(room) + 1) + 0.25
    figure.set_size_inches(WIDTH_INCHES, height)
    grid = plots[0].get_gridspec()
    assert grid is not None
    grid.set_height_ratios(room)
    figure.draw_without_rendering()
    whole = figure.bbox.width
    boxes = [(plot.get_window_extent(), plot.get_tightbbox()) for plot in plots]
    left = max(plot.x0 - tight.x0 for plot, tight in boxes if tight is not None)
    right = max(tight.x1 - plot.x1 for plot, tight in boxes if tight is not None)
    margin = EDGE_INCHES / WIDTH_INCHES
    figure.subplots_adjust(
        left=max(0.06, left / whole + margin),
        right=min(0.97, 1 - right / whole - margin),
        top=1 - GAP_INCHES / height,
        bottom=(GAP_INCHES + 0.25) / height,
        hspace=GAP_INCHES * len(room) / sum(room),
    )


def label(text: object, characters_max: int = 24) -> str:
    """Return text from a run as one short line, without characters that XML forbids."""
    return shortened(FORBIDDEN.sub("\ufffd", " ".join(str(text).split())), characters_max)


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    ink, muted, line = LIGHT["ink"], LIGHT["muted"], LIGHT["line"]
    settings: Any = {
        "svg.fonttype": "none", "svg.hashsalt": "ottla", "text.parse_math": False,
        "font.size": 8.5, "text.color": ink, "legend.frameon": False, "path.simplify": False,
        "figure.facecolor": LIGHT["ground"], "axes.facecolor": LIGHT["panel"],
        "axes.edgecolor": line, "axes.labelcolor": ink, "axes.grid": True, "grid.color": line,
        "axes.axisbelow": True, "xtick.color": line, "ytick.color": line,
        "xtick.labelcolor": muted, "ytick.labelcolor": muted,
    }  # fmt: skip
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Glyphs that the measuring font lacks exist in the reader's browser.
        warnings.simplefilter("ignore")
        yield


VARIABLES = {colour: f"var(--{name})" for name, colour in LIGHT.items()}


def _svg(figure: "Figure", title: str) -> Markup:
    """Return a matplotlib figure as an SVG element whose colours are CSS variables of the page."""
    written = StringIO()
    figure.savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'<g id="[^"]*">', "<g>", text)
    text = re.sub(r' d="[^"]*"', lambda path: _short_path(path[0]), text)
    text = re.sub(
        r"(?<=: )#[0-9a-f]{6}\b", lambda colour: VARIABLES.get(colour[0], colour[0]), text
    )
    return Markup(text.replace("<svg ", f'<svg role="img" aria-label="{escape(title)}" ', 1))


def _short_path(path: str) -> str:
    """Return an SVG path rounded to a tenth of a point, with lines without length drawn as short
    dots."""
    short = re.sub(r"(\.\d)\d+", r"\1", path).replace(" \n", "")
    return re.sub(r"M (\S+ [\d.-]+)L \1", r"M\1h0", short)
