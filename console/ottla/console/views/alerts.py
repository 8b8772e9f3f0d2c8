"""Page of alerts: conditions in the cluster that require an operator now, and the alert rules for
Prometheus. Each condition and rule has a command that helps."""

import trio

from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Column,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    sheet_view,
    text,
)
from ottla.console.views.explain import explain_address
from ottla.insight.answers_driver import answer
from ottla.insight.explanation import Explanation
from ottla.insight.rules.alert_rules import ALERT_RULES
from ottla.model.errors import OttlaError

QUESTIONS = ("health", "unavailable", "disk", "throttle")
"""Questions of `ottla explain` without parameters whose causes are shown as alerts, most urgent
first."""
ALERTS_MAX = 100


async def alerts(request: PageRequest) -> PageView:
    """Return the page of alerts: the causes that the questions of `ottla explain` about the whole
    cluster find."""
    found: dict[str, Explanation] = {}
    failed: dict[str, str] = {}

    async def ask(name: str) -> None:
        try:
            found[name] = await answer(request.admin, name, {})
        except OttlaError as error:
            failed[name] = str(error)

    async with trio.open_nursery() as nursery:
        for name in QUESTIONS:
            nursery.start_soon(ask, name)
    rows = []
    seen: set[str] = set()
    for name in QUESTIONS:
        for cause in found[name].causes if name in found else ():
            if cause.summary in seen:
                continue
            seen.add(cause.summary)
            fix = cause.fix or cause.more
            rows.append(
                (
                    badge(cause.kind, "bad" if name != "throttle" else "warning"),
                    text(cause.summary),
                    text(cause.remedy),
                    code(fix),
                    text(name, explain_address(name)),
                )
            )
    unknown = sorted({one for each in found.values() for one in each.unknown})
    empty = "Nothing needs an operator now."
    if unknown or failed:
        empty = "No alert follows from the facts that could be read."
    parts: list[SheetPart] = [
        TablePart(
            title="Alerts" if len(rows) <= ALERTS_MAX else f"The first {ALERTS_MAX} of {len(rows)}",
            columns=(
                Column(title="Alert"),
                Column(title="What it is"),
                Column(title="What to do"),
                Column(title="Command"),
                Column(title="Evidence"),
            ),
            rows=tuple(rows[:ALERTS_MAX]),
            empty=empty,
        )
    ]
    parts += [NotePart(text=f"{name}: {reason}", tone="warning") for name, reason in failed.items()]
    parts += [NotePart(text=f"not known: {one}", tone="warning") for one in unknown]
    parts.append(_rules())
    return sheet_view(
        "Alerts",
        parts,
        lead="The rules below are in deploy/prometheus/alerts.yml: with them, Prometheus raises "
        "alerts while no page is open.",
    )


def _rules() -> TablePart:
    """Return the table of the alert rules for Prometheus, with the command that helps for each
    rule."""
    return TablePart(
        title="Rules for Prometheus",
        columns=(
            Column(title="Rule"),
            Column(title="Urgency"),
            Column(title="What it means"),
            Column(title="Command"),
            Column(title="Raised if"),
            Column(title="For"),
        ),
        rows=tuple(
            (
                code(one.name),
                badge("wakes you", "bad") if one.is_urgent else badge("by day", "warning"),
                text(one.meaning),
                code(one.command),
                code(one.expression),
                text(one.wait or "at once"),
            )
            for one in ALERT_RULES
        ),
    )


PAGES = (
    Page(
        name="alerts",
        path="/alerts",
        title="Alerts",
        command="ottla explain health",
        view=alerts,
        section="Operations",
        key="w",
    ),
)
