"""The plots of docs/performance.md, as SVG.  matplotlib draws the same bytes for the same data.

Lines and text are in a grey that is visible on light and dark pages.  The background is
transparent.
"""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.bench.floor.floor import FLOOR
from ottla.bench.kafka.comparison import THEIRS, spread_of
from ottla.bench.performance.performance import MeasuredGroup
from ottla.bench.performance.performance_page import PICTURES, TOPOLOGY_OF, UNITS, label_of
from ottla.bench.performance.performance_rows import ONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2a7de1", "#12a594", "#8e6bd9")
INK = "#7f8894"
OTHER_COLOURS = {THEIRS: "#e07b28", FLOOR: INK}
"""Colours of the servers that are not a form of Ottla."""
WIDTH_INCHES, HEIGHT_INCHES = 7.6, 3.0
FIGURES = {
    "requests": ("cpu_us_per_request",),
    "throughput": ("mb_per_second", "cpu_s_per_gb"),
    "latency": ("p50_ms", "p99_ms"),
    "memory": ("resident_mb",),
    "lifecycle": (
        "start_to_ready_s",
        "broker_killed_to_acknowledged_s",
        "controller_killed_to_topic_created_s",
    ),
}
Rows = Mapping[str, Mapping[str, Sequence[float]]]
"""Measured values of one kind, such as records per second, by benchmark and server."""


def draw_all(sittings: Sequence[MeasuredGroup], directory: Path) -> dict[str, str]:
    """Draw a plot of each group of benchmarks that has measured values. Returns the file names by
    group."""
    drawn: dict[str, str] = {}
    for sitting in sittings:
        if sitting.topology == TOPOLOGY_OF.get(sitting.group, ONE) and sitting.group in FIGURES:
            name = PICTURES[sitting.group][0]
            (directory / name).write_text(_picture(sitting))
            drawn[sitting.group] = name
    return drawn


def _picture(sitting: MeasuredGroup) -> str:
    from matplotlib.figure import Figure

    figures = FIGURES[sitting.group]
    with _style():
        panels_of = {UNITS[name]: _rows(sitting, name) for name in figures}
        if sitting.group == "lifecycle":
            # Three durations of the same clusters share one panel, in seconds.
            waits = [(unit, values) for unit, rows in panels_of.items() for values in rows.values()]
            panels_of = {"seconds": {unit.removesuffix(", s"): values for unit, values in waits}}
        tall = max(HEIGHT_INCHES, 0.32 * max(map(len, panels_of.values())) + 1.2)
        figure = Figure(figsize=(WIDTH_INCHES, tall), layout="constrained")
        panels = figure.subplots(1, len(panels_of), squeeze=False, sharey=True)[0]
        for panel, (unit, rows) in zip(panels, panels_of.items(), strict=True):
            _bars(panel, unit, rows)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _rows(sitting: MeasuredGroup, figure: str) -> Rows:
    return {row: figures[figure] for row, figures in sitting.values.items()}


def _bars(panel: "Axes", unit: str, rows: Rows) -> None:
    """Draw one bar for each benchmark and server, with the lowest and highest value as a line."""
    servers = list(dict.fromkeys(name for row in rows.values() for name in row))
    thick = 0.8 / len(servers)
    for index, server in enumerate(servers):
        spreads = [spread_of(row[server]) for row in rows.values() if server in row]
        places = [at + index * thick for at, row in enumerate(rows.values()) if server in row]
        medians = [one.median for one in spreads]
        reach = (
            [one.median - one.lowest for one in spreads],
            [one.highest - one.median for one in spreads],
        )
        colour = OTHER_COLOURS.get(server, COLOURS[index % len(COLOURS)])
        panel.barh(
            places,
            medians,
            thick,
            xerr=reach,
            color=colour,
            ecolor=INK,
            label=label_of(server),
        )
    panel.set_yticks([at + 0.4 - thick / 2 for at in range(len(rows))], list(rows))
    panel.set_ylim(len(rows) - 0.1 - thick / 2, -0.1 - thick / 2)
    panel.set_xlabel(unit)


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib

    settings: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "ottla",
        "font.size": 8.5,
        "text.color": INK,
        "legend.frameon": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with matplotlib.rc_context(settings):
        yield
