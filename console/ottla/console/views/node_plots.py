"""Pages with plots of the nodes' metrics over the last hour."""

from itertools import pairwise
from typing import NamedTuple

import trio

from ottla.console.absences import CLUSTER_DESCRIBE, Absence, attempt_own
from ottla.console.history.metric_history import MetricHistory, MetricSeries
from ottla.console.history.rate_history_driver import BYTES_IN, BYTES_OUT, metric_history
from ottla.console.links import address
from ottla.console.live_views import every
from ottla.console.page_types import Live, Page, PageRequest, PageView
from ottla.console.sheets import (
    LinksPart,
    NotePart,
    PlotPart,
    Sheet,
    SheetPart,
    sheet_view,
)

LIVE_S = 10.0
LINES_MAX = 8
"""Maximum number of lines in one plot. The brokers with the highest latest values are selected."""
DIGITS = 6


class NodePlot(NamedTuple):
    """Plot of one metric of all brokers."""

    title: str
    unit: str
    name: str
    """Name of the metric in the reports of brokers."""
    is_counter: bool
    """True if the plot shows the increase per second in place of the value."""
    factor: float = 1.0


PLOTS = (
    NodePlot("CPU time, as a share of one core", "percent", "process.cpu.seconds", True),
    NodePlot("Requests per second", "count", "requests.answered", True),
    NodePlot("Written bytes per second", "bytes", BYTES_IN, True),
    NodePlot("Read bytes per second", "bytes", BYTES_OUT, True),
    NodePlot("Connections", "count", "network.connections", False),
    NodePlot("Requests that wait", "count", "requests.waiting", False),
    NodePlot("Partitions that the broker leads", "count", "partitions.led", False),
    NodePlot("Longest pause of the event loop", "seconds", "loop.pause.longest.ms", False, 1e-3),
    NodePlot("Heartbeat delay, 99th percentile", "seconds", "heartbeat.delay.p99.ms", False, 1e-3),
    NodePlot("Unexpected errors", "count", "errors.unexpected", False),
)


def metric_address(name: str) -> str:
    """Return the address of the page with plots of one metric."""
    return address("/metrics-of-nodes/by-name/{metric}", {"metric": name})


async def plots(request: PageRequest) -> PageView:
    """Return the page with plots of the most important metrics of all brokers."""
    parts = await _plots(request)
    return sheet_view(
        "Plots of nodes",
        [node_metric_links("Plots")],
        live="node-plots",
        live_parts=parts,
        lead="Values of the last hour, as far as an open page has read them: the overview, the "
        "pages of brokers, or this one.",
    )


async def live_plots(request: PageRequest) -> PageView:
    """Return the live part of the page, which is updated while the page is open: plots of the most
    important metrics of all brokers."""
    sheet = Sheet(heading="Plots of nodes", parts=(), live_parts=tuple(await _plots(request)))
    return PageView(context={"sheet": sheet}, template="live/sheet")


async def metric(request: PageRequest) -> PageView:
    """Return the page with plots of one metric of all brokers."""
    name = request.path["metric"]
    found = await _history(request)
    if isinstance(found, Absence):
        return sheet_view(name, [node_metric_links(), found.part(request.user)])
    now_s = trio.current_time()
    values, rates = found.series_of(name), found.rates_of(name)
    parts: list[SheetPart] = [node_metric_links()]
    if not values:
        said = f"No broker has reported a metric {name!r} in the last hour."
        parts.append(NotePart(text=said, tone="warning"))
    else:
        parts.append(plot_of(NodePlot("Value", "count", name, False), found, request.now_ms, now_s))
    # Only a counter never decreases; the rate of another value means nothing.
    if any(any(one.values) for one in rates) and not any(_decreases(one) for one in values):
        title = "Increase per second"
        parts.append(plot_of(NodePlot(title, "count", name, True), found, request.now_ms, now_s))
    return sheet_view(name, parts)


def plot_of(plot: NodePlot, history: MetricHistory, now_ms: int, now_s: float) -> PlotPart:
    """Return a plot with a line for each broker. `now_ms` and `now_s` are the present time, in ms
    of the wall clock and in seconds of the history's clock."""
    found = history.rates_of(plot.name) if plot.is_counter else history.series_of(plot.name)
    title = plot.title
    if len(found) > LINES_MAX:
        title += f": the {LINES_MAX} highest of {len(found)} brokers"
        found = sorted(sorted(found, key=_latest)[-LINES_MAX:])
    return PlotPart(
        title=title,
        unit=plot.unit,
        times_ms=tuple(now_ms - round(1_000 * (now_s - one)) for one in history.times_s),
        series=tuple(
            (
                f"broker {one.broker}",
                tuple(_scaled(value, plot.factor) for value in one.values),
            )
            for one in found
        ),
    )


async def _history(request: PageRequest) -> MetricHistory | Absence:
    return await attempt_own(
        request.admin,
        "metrics of nodes over time",
        lambda: metric_history(request.admin),
        CLUSTER_DESCRIBE,
    )


async def _plots(request: PageRequest) -> list[SheetPart]:
    found = await _history(request)
    if isinstance(found, Absence):
        return [found.part(request.user)]
    now_s = trio.current_time()
    parts: list[SheetPart] = [plot_of(one, found, request.now_ms, now_s) for one in PLOTS]
    if not found.is_complete:
        said = "This cluster has more metrics than the console keeps; some plots are empty."
        parts.append(NotePart(text=said, tone="warning"))
    return parts


def _latest(one: MetricSeries) -> float:
    return next((value for value in reversed(one.values) if value is not None), -1.0)


def _decreases(one: MetricSeries) -> bool:
    known = [value for value in one.values if value is not None]
    return any(after < before for before, after in pairwise(known))


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(f"{factor * value:.{DIGITS}g}")


def node_metric_links(current: str = "") -> LinksPart:
    """Return the links between the pages about the metrics of nodes."""
    links = (("Plots", "/metrics-of-nodes/plots"), ("All metrics", "/metrics-of-nodes"))
    return LinksPart(links=links, current=current)


PAGES = (
    Page(
        name="node-plots",
        path="/metrics-of-nodes/plots",
        title="Plots of nodes",
        command="ottla top",
        view=plots,
        section="Cluster",
        lives=(Live(name="node-plots", path="/live/node-plots", stream=every(LIVE_S, live_plots)),),
    ),
    Page(
        name="metric",
        path="/metrics-of-nodes/by-name/{metric}",
        title="Metric of the nodes",
        command="ottla top",
        view=metric,
    ),
)
