"""Overview: the first page of the console, with the cluster's health and its brokers."""

from ottla.console.page_types import Page, PageRequest, PageView
from ottla.insight.answers_driver import answer


async def overview(request: PageRequest) -> PageView:
    """Return the view of the cluster's health."""
    return PageView(context={"health": await answer(request.admin, "health", {})})


PAGES = (
    Page(
        name="overview",
        path="/",
        title="Overview",
        command="ottla explain health",
        view=overview,
        section="Cluster",
        key="o",
    ),
)
