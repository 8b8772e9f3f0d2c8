"""Page of metrics: the values that each broker reports about itself, with a search over all
brokers."""

from ottla.console.absences import CLUSTER_DESCRIBE, Absence, attempt_own
from ottla.console.listing import listing
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Column,
    NotePart,
    SheetPart,
    code,
    count,
    listed,
    sheet_view,
    text,
)
from ottla.console.views.node_plots import metric_address, node_metric_links
from ottla.insight.facts.survey_driver import brokers_of

UNIT_SUFFIXES = {
    "bytes": "bytes",
    "ms": "ms",
    "seconds": "s",
    "percent": "percent",
    "rate": "per second",
}


async def metrics(request: PageRequest) -> PageView:
    """Return the page that shows the metrics of all brokers that respond."""
    found = await attempt_own(
        request.admin,
        "the list of node metrics",
        lambda: brokers_of(request.admin),
        CLUSTER_DESCRIBE,
    )
    if isinstance(found, Absence):
        return sheet_view("Node metrics", [found.part(request.user)])
    parts: list[SheetPart] = [node_metric_links("All metrics")]
    parts += [
        NotePart(text=f"broker {one.id}: {one.failure}", tone="warning")
        for one in found
        if one.failure
    ]
    rows = [(one.id, name, value) for one in found for name, value in one.metrics.items()]
    page = listing(
        rows,
        request.query,
        text_of=lambda row: f"{row[1]} broker {row[0]}",
        sorts={
            "name": lambda row: (row[1], row[0]),
            "broker": lambda row: (row[0], row[1]),
            "value": lambda row: row[2],
        },
    )
    parts.append(
        listed(
            "Metrics",
            page,
            (
                Column(title="Metric", key="name"),
                Column(title="Broker", key="broker", is_number=True),
                Column(title="Value", key="value", is_number=True),
                Column(title="Unit"),
            ),
            (
                (
                    code(name, metric_address(name)),
                    count(broker),
                    count(value),
                    text(_unit_of(name)),
                )
                for broker, name, value in page.rows
            ),
            empty="No broker reports metrics.",
            search_label="Search metrics",
        )
    )
    return sheet_view(
        "Node metrics",
        parts,
        lead="The full set is served as Prometheus text by each node: see "
        "metrics.prometheus.port in the settings reference.",
    )


def _unit_of(name: str) -> str:
    parts = name.replace("-", ".").replace("_", ".").split(".")
    return next((UNIT_SUFFIXES[one] for one in reversed(parts) if one in UNIT_SUFFIXES), "")


PAGES = (
    Page(
        name="metrics",
        path="/metrics-of-nodes",
        title="Node metrics",
        command="ottla broker describe 1",
        view=metrics,
        section="Cluster",
        key="n",
    ),
)
