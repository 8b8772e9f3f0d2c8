"""Pages of client telemetry (KIP-714): each client with its version, and plots of its metrics."""

from functools import partial
from uuid import UUID

from ottla.client.admin_parts.admin_telemetry import (
    FROM_OLDEST,
    ClientInstanceDescription,
    PushedMetrics,
)
from ottla.console.absences import (
    CLUSTER_DESCRIBE,
    Absence,
    NeededRight,
    attempt,
    attempt_each,
)
from ottla.console.form_values import form_number
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Action, Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    FormField,
    FormPart,
    NotePart,
    PlotPart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    listed,
    milliseconds,
    sheet_view,
    size,
    text,
)
from ottla.insight.facts.pushed_series import PushedSeries, series_of_pushes
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.ids import uuid_text

TOPICS = (
    ("latency", "Latency and waiting times"),
    ("errors", "Errors and retries"),
    ("lag", "Lag"),
    ("rates", "Rates"),
)
SUBSCRIPTIONS_MAX = 100
LINES_MAX = 6
"""Maximum number of lines in one plot of client metrics. The metrics with the largest latest values
are selected."""
MILLISECOND_UNITS = ("ms", "milliseconds")


async def telemetry(request: PageRequest) -> PageView:
    """Return the page that lists all clients that report metrics."""
    found, absent = await attempt_each(
        request.admin,
        "the list of clients that report metrics",
        request.admin.describe_client_instances,
        CLUSTER_DESCRIBE,
        is_own=True,
    )
    parts: list[SheetPart] = [one.part(request.user) for one in absent]
    rows = [one for clients in found.values() for one in clients]
    if found:
        page = listing(
            rows,
            request.query,
            text_of=lambda one: (
                f"{one.client_id or ''} {software_of(one)} {one.source_address} "
                f"{uuid_text(one.client_instance_id)} {state_of(one)}"
            ),
            sorts={
                "client": lambda one: (one.client_id or "", one.client_instance_id),
                "software": lambda one: (software_of(one), one.client_id or ""),
                "broker": lambda one: int(one.node),
                "pushed": lambda one: one.last_push_ms_ago,
                "bytes": lambda one: one.push_bytes,
            },
        )
        parts += [
            _versions(rows),
            listed(
                "Clients",
                page,
                (
                    Column(title="Client id", key="client"),
                    Column(title="Instance"),
                    Column(title="Software", key="software"),
                    Column(title="Address"),
                    Column(title="Broker", key="broker", is_number=True),
                    Column(title="State"),
                    Column(title="Interval", is_number=True),
                    Column(title="Pushed before", key="pushed", is_number=True),
                    Column(title="Pushes", is_number=True),
                    Column(title="Pushed", key="bytes", is_number=True),
                ),
                map(_client_row, page.rows),
                empty="No client reports metrics. A subscription requests them.",
                empty_command="ottla metrics subscriptions set NAME --metrics '*' --interval 30s",
                search_label="Search clients",
            ),
        ]
    parts += [await _subscriptions(request), *_subscription_forms()]
    return sheet_view("Client telemetry", parts)


async def client(request: PageRequest) -> PageView:
    """Return the page that shows one client: its metrics over time, from the pushes that brokers
    have stored."""
    name = request.path["client"]
    tails, absent = await attempt_each(
        request.admin,
        "the list of pushes",
        partial(request.admin.tail_client_metrics, cursor=FROM_OLDEST, client=name),
        CLUSTER_DESCRIBE,
        is_own=True,
    )
    parts: list[SheetPart] = [one.part(request.user) for one in absent]
    pushes = [push for tail in tails.values() for push in tail.pushes]
    if not tails:
        return sheet_view(name, parts)
    if not pushes:
        parts.append(
            NotePart(
                text="No broker has a push of this client now. Brokers keep only the last pushes.",
                command=f"ottla metrics tail --client {name}",
            )
        )
        return sheet_view(name, parts)
    series, corrupt_count = series_of_pushes(pushes)
    parts.append(_facts(pushes, corrupt_count))
    for topic, title in TOPICS:
        parts += _plots(title, [one for one in series if one.topic == topic])
    page = listing(
        series,
        request.query,
        text_of=lambda one: one.name,
        sorts={"name": lambda one: one.name, "value": lambda one: one.latest},
    )
    parts.append(
        listed(
            "Metrics",
            page,
            (
                Column(title="Metric", key="name"),
                Column(title="Latest value", key="value", is_number=True),
                Column(title="Unit"),
                Column(title="Pushes", is_number=True),
            ),
            (
                (code(one.name), count(one.latest), text(one.unit), count(len(one.values)))
                for one in page.rows
            ),
            empty="The pushes contain no metrics.",
            search_label="Search metrics",
        )
    )
    return sheet_view(name, parts)


def software_of(one: ClientInstanceDescription) -> str:
    """Return the name and version of a client's library as text."""
    return f"{one.software_name} {one.software_version}".strip() or "not named"


def state_of(one: ClientInstanceDescription) -> str:
    """Return the state of a client's metric reports, or the name of its last error."""
    if one.is_terminating:
        return "terminating"
    if one.last_error is not ErrorCode.NONE:
        return one.last_error.name
    if not one.metrics:
        return "not asked"
    return "reporting" if one.push_count else "asked"


def client_address(instance: UUID) -> str:
    """Return the address of the page that shows a client instance."""
    return address("/telemetry/{client}", {"client": uuid_text(instance)})


def _client_row(one: ClientInstanceDescription) -> tuple[Cell, ...]:
    state = state_of(one)
    tones = {"reporting": "good", "asked": "neutral", "not asked": "neutral"}
    return (
        code(one.client_id),
        code(uuid_text(one.client_instance_id), client_address(one.client_instance_id)),
        text(software_of(one)),
        text(f"{one.source_address}:{one.source_port}"),
        count(int(one.node)),
        badge(state, tones.get(state, "warning")),
        milliseconds(one.interval_ms),
        milliseconds(one.last_push_ms_ago),
        count(one.push_count),
        size(one.push_bytes),
    )


async def _subscriptions(request: PageRequest) -> SheetPart:
    needs = NeededRight(operation="describe-configs")
    found = await attempt("subscriptions", request.admin.list_metrics_subscriptions(), needs)
    if isinstance(found, Absence):
        return found.part(request.user)
    rows = tuple(
        (
            code(one.name),
            text(", ".join(one.metrics) or "none"),
            milliseconds(one.interval_ms),
            text(", ".join(one.match) or "every client"),
        )
        for one in found[:SUBSCRIPTIONS_MAX]
    )
    return TablePart(
        title="Subscriptions: the metrics that clients are asked for",
        columns=(
            Column(title="Name"),
            Column(title="Metrics"),
            Column(title="Interval", is_number=True),
            Column(title="Clients"),
        ),
        rows=rows,
        empty="There is no subscription: clients keep their metrics to themselves.",
        empty_command="ottla metrics subscriptions set NAME --metrics '*' --interval 30s",
    )


def _subscription_forms() -> list[SheetPart]:
    name = FormField(name="name", label="Name", is_required=True)
    return [
        FormPart(
            title="Set a subscription",
            button="Set the subscription",
            action="subscription-set",
            fields=(
                name,
                FormField(
                    name="metrics",
                    label="Metrics",
                    value="*",
                    hint="prefixes of names, with commas between; * for all",
                ),
                FormField(name="interval", label="Interval in ms", type="number", value="30000"),
                FormField(
                    name="match",
                    label="Clients",
                    hint="such as client_id=shop-.*; empty for every client",
                ),
            ),
        ),
        FormPart(
            title="Delete a subscription",
            button="Delete the subscription",
            action="subscription-delete",
            fields=(name,),
        ),
    ]


async def set_subscription(request: PageRequest) -> PageView:
    """Create or change a subscription to client metrics. Returns a redirect to the page of client
    telemetry."""
    name, form = _name_of(request), request.form
    interval_ms = form_number("interval", form.get("interval", ""))
    match = form.get("match", "").strip()
    await request.admin.set_metrics_subscription(
        name,
        metrics=[one.strip() for one in form.get("metrics", "").split(",") if one.strip()],
        interval_ms=interval_ms,
        match=[match] if match else [],
    )
    return PageView(context={}, location="/telemetry", notice=f"Subscription {name} was set.")


async def delete_subscription(request: PageRequest) -> PageView:
    """Delete a subscription to client metrics. Clients then stop pushing metrics that no other
    subscription requests. Returns a redirect to the page of client telemetry."""
    name = _name_of(request)
    await request.admin.delete_metrics_subscription(name)
    return PageView(context={}, location="/telemetry", notice=f"Subscription {name} was deleted.")


def _name_of(request: PageRequest) -> str:
    name = request.form.get("name", "").strip()
    if not name:
        raise ConfigError("name", "is missing")
    return name


def _versions(rows: list[ClientInstanceDescription]) -> FactsPart:
    """Return a page part with the number of clients by library and version, the most frequent
    first."""
    totals: dict[str, int] = {}
    for one in rows:
        totals[software_of(one)] = totals.get(software_of(one), 0) + 1
    top = sorted(totals.items(), key=lambda one: (-one[1], one[0]))[:20]
    return FactsPart(
        title="Clients by software",
        facts=tuple(
            (name, count(total, address("/telemetry", {}, {"q": name}))) for name, total in top
        ),
    )


def _facts(pushes: list[PushedMetrics], corrupt_count: int) -> FactsPart:
    last = max(pushes, key=lambda one: one.received_ms)
    facts = [
        ("Client id", code(last.client_id)),
        ("Software", text(f"{last.software_name} {last.software_version}".strip())),
        ("Address", text(last.source_address)),
        ("Broker", count(int(last.node))),
        ("Pushes that brokers keep", count(len(pushes))),
    ]
    if corrupt_count:
        facts.append(("Pushes that cannot be decoded", count(corrupt_count)))
    return FactsPart(facts=tuple(facts))


def _plots(title: str, series: list[PushedSeries]) -> list[SheetPart]:
    """Return a plot for each unit of a client's metrics about one subject, such as latency."""
    plots: list[SheetPart] = []
    for unit in sorted({one.unit for one in series}):
        chosen = sorted(
            (one for one in series if one.unit == unit), key=lambda one: (-one.latest, one.name)
        )[:LINES_MAX]
        times = sorted({time_ms for one in chosen for time_ms, _ in one.values})
        in_seconds = unit in MILLISECOND_UNITS
        lines = []
        for one in chosen:
            known = {at: value / 1_000 if in_seconds else value for at, value in one.values}
            lines.append((one.name, tuple(known.get(at) for at in times)))
        shown = "" if in_seconds or not unit else f" ({unit})"
        plots.append(
            PlotPart(
                title=f"{title}{shown}",
                unit="seconds" if in_seconds else "count",
                times_ms=tuple(times),
                series=tuple(lines),
            )
        )
    return plots


PAGES = (
    Page(
        name="telemetry",
        path="/telemetry",
        title="Client telemetry",
        command="ottla metrics clients",
        covers=("ottla metrics subscriptions list",),
        view=telemetry,
        section="Clients",
        key="i",
        actions=(
            Action(
                name="subscription-set",
                path="/telemetry-subscriptions/set",
                command="ottla metrics subscriptions set {name}",
                run=set_subscription,
            ),
            Action(
                name="subscription-delete",
                path="/telemetry-subscriptions/delete",
                command="ottla metrics subscriptions delete {name}",
                run=delete_subscription,
            ),
        ),
    ),
    Page(
        name="telemetry-client",
        path="/telemetry/{client}",
        title="Client",
        command="ottla metrics tail --recent --client {client}",
        view=client,
    ),
)
