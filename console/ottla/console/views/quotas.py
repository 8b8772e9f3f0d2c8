"""Pages of quotas: limits of users, client ids and addresses, their present usage, and the limits
that apply to a client."""

from functools import partial

from ottla.client.admin_parts.admin_quotas import QuotaChange, QuotaOwner, QuotaUsage
from ottla.console.absences import Absence, NeededRight, attempt, attempt_own
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FormField,
    FormPart,
    LinksPart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    listed,
    milliseconds,
    percent,
    sheet_view,
    text,
)
from ottla.console.views.explain import explain_address
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.quotas.quota_limits import QuotaEntity, limits_of
from ottla.model.settings.quotas import CLIENT_KEYS, IP_KEYS

CLIENTS_MAX = 100
"""Maximum number of clients of each quota that are read from a broker. Throttled clients come
first."""
BROKERS_MAX = 100
DEFAULT = "<default>"
"""Name that Kafka's tools use for the default entity of a quota, which stands for all users or
client ids without quotas of their own."""
READS = NeededRight(operation="describe-configs")
LIMIT_COLUMNS = (
    Column(title="User", key="user"),
    Column(title="Client id", key="client"),
    Column(title="Address", key="ip"),
    Column(title="Limit", key="key"),
    Column(title="Value", key="value", is_number=True),
    Column(title="Unit"),
    Column(title="Whom does it slow down?"),
)
UNITS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of a request handler",
    "controller_mutation_rate": "partitions per second",
    "connection_creation_rate": "connections per second",
}


async def quotas(request: PageRequest) -> PageView:
    """Return the page that shows all quotas."""
    found = await attempt("limits", request.admin.describe_quotas(), READS)
    parts: list[SheetPart] = [_links("Limits")]
    if isinstance(found, Absence):
        return sheet_view("Quotas", [*parts, found.part(request.user)])
    rows = [(owner, key, value) for owner, limits in found.items() for key, value in limits.items()]
    page = listing(
        rows,
        request.query,
        text_of=lambda row: " ".join([*filter(None, owner_names(row[0])), row[1]]),
        sorts={
            "user": lambda row: (owner_names(row[0])[0] or "", row[1]),
            "client": lambda row: (owner_names(row[0])[1] or "", row[1]),
            "ip": lambda row: (owner_names(row[0])[2] or "", row[1]),
            "key": lambda row: row[1],
            "value": lambda row: row[2],
        },
    )
    parts += [
        listed(
            "Limits",
            page,
            LIMIT_COLUMNS,
            (_limit_row(*row) for row in page.rows),
            empty="No limit is set: no client is slowed down.",
            empty_command="ottla quota set --user NAME producer_byte_rate=5M",
            search_label="Search limits",
        ),
        _change_form(),
    ]
    return sheet_view("Quotas", parts)


async def usage(request: PageRequest) -> PageView:
    """Return the page that shows the present usage of quotas, at all brokers that respond."""
    brokers = (await request.admin.describe_cluster()).brokers[:BROKERS_MAX]
    rows: list[QuotaUsage] = []
    parts: list[SheetPart] = [_links("Use now")]
    for broker in brokers:
        node = NodeId(broker.node)
        found = await attempt_own(
            request.admin,
            "the use of limits",
            partial(request.admin.describe_quota_usage, node, count_max=CLIENTS_MAX),
            NeededRight(operation="describe"),
        )
        if isinstance(found, Absence):
            return sheet_view("Use of quotas", [*parts, found.part(request.user)])
        rows += found
    page = listing(
        rows,
        request.query or {"sort": "-throttle"},
        text_of=lambda one: f"{one.user} {one.client_id} {one.key} broker {one.node}",
        sorts={
            "throttle": lambda one: one.throttle_ms,
            "part": lambda one: one.rate / one.limit if one.limit else None,
            "user": lambda one: one.user,
            "client": lambda one: one.client_id,
            "broker": lambda one: int(one.node),
        },
    )
    parts.append(
        listed(
            "Clients with a limit",
            page,
            (
                Column(title="Broker", key="broker", is_number=True),
                Column(title="User", key="user"),
                Column(title="Client id", key="client"),
                Column(title="Limit"),
                Column(title="Rate", is_number=True),
                Column(title="Value of the limit", is_number=True),
                Column(title="Used", key="part", is_number=True),
                Column(title="Throttled for", key="throttle", is_number=True),
                Column(title="Why?"),
            ),
            map(_usage_row, page.rows),
            empty="No client with a limit is connected.",
            empty_command="ottla quota list",
            search_label="Search clients",
        )
    )
    return sheet_view(
        "Use of quotas",
        parts,
        lead=f"At most {CLIENTS_MAX} clients of each limit and broker, throttled clients first.",
    )


async def explain(request: PageRequest) -> PageView:
    """Return the page that shows the levels at which quotas of a client may be set, and the ones
    that apply."""
    user = request.query.get("user", "ANONYMOUS")
    client_id = request.query.get("client_id", "")
    found = await attempt("limits", request.admin.describe_quotas(), READS)
    parts: list[SheetPart] = [
        _links("Which limit applies?"),
        FormPart(
            title="Client",
            button="Show its limits",
            href="/quotas/explain",
            fields=(
                FormField(name="user", label="User", value=user),
                FormField(name="client_id", label="Client id", value=client_id),
            ),
        ),
    ]
    if isinstance(found, Absence):
        return sheet_view("Limits of a client", [*parts, found.part(request.user)])
    for key in sorted(CLIENT_KEYS):
        rows: list[tuple[Cell, ...]] = []
        has_match = False
        for owner, limit in limits_of(found, key).considered(user, client_id):
            applies = limit is not None and not has_match
            has_match |= applies
            names = owner_names(owner)
            mark = badge("applies", "good") if applies else text("" if limit is None else "hidden")
            rows.append((text(names[0]), text(names[1]), count(limit), mark))
        parts.append(
            TablePart(
                title=f"{key} ({UNITS.get(key, 'number')})",
                columns=(
                    Column(title="User"),
                    Column(title="Client id"),
                    Column(title="Limit", is_number=True),
                    Column(title="Effect"),
                ),
                rows=tuple(rows),
            )
        )
    return sheet_view(
        "Limits of a client",
        parts,
        lead="Of the eight levels of a limit, the first one that is set applies.",
    )


async def change(request: PageRequest) -> PageView:
    """Set or remove one quota."""
    owner = _owner_of(request)
    key = request.form.get("key", "")
    value = request.form.get("value", "").strip()
    limit = None if not value else _number(value)
    (refusal,) = await request.admin.alter_quotas([QuotaChange(owner, {key: limit})])
    if refusal is not None:
        raise refusal
    said = f"The limit {key} was removed." if limit is None else f"The limit {key} is {limit:,}."
    return PageView(context={}, location="/quotas", notice=said)


def owner_names(owner: QuotaOwner) -> tuple[str | None, str | None, str | None]:
    """Return the user, the client id and the IP address to which a quota applies. None for those
    that it does not name."""
    names = {part.type: DEFAULT if part.is_default else part.name for part in owner}
    return names.get("user"), names.get("client-id"), names.get("ip")


def _limit_row(owner: QuotaOwner, key: str, value: float) -> tuple[Cell, ...]:
    user, client_id, ip = owner_names(owner)
    return (
        code(user),
        code(client_id),
        code(ip),
        code(key),
        count(value),
        text(UNITS.get(key, "")),
        text("explain", explain_address("throttle", **_named(user, client_id, ip))),
    )


def _named(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    """Return the parameters of an explanation for the clients of a limit. A default limit applies
    to clients of any name."""
    named = {"user": user, "client_id": client_id, "ip": ip}
    return {name: value for name, value in named.items() if value not in (None, DEFAULT)}


def _usage_row(one: QuotaUsage) -> tuple[Cell, ...]:
    values = {"user": one.user, "client_id": one.client_id}
    throttle = milliseconds(one.throttle_ms) if one.throttle_ms else text("not throttled")
    return (
        count(int(one.node)),
        code(one.user),
        code(one.client_id, address("/quotas/explain", {}, values)),
        code(one.key),
        count(one.rate),
        count(one.limit),
        percent(one.rate / one.limit if one.limit else None),
        throttle,
        text("explain", explain_address("throttle", **values)),
    )


def _change_form() -> FormPart:
    keys = tuple(
        (key, f"{key} ({UNITS.get(key, 'number')})") for key in sorted({*CLIENT_KEYS, *IP_KEYS})
    )
    return FormPart(
        title="Set or remove a limit",
        button="Change the limit",
        action="quota-change",
        fields=(
            FormField(name="user", label="User", hint=f"{DEFAULT} for all others"),
            FormField(name="client_id", label="Client id", hint=f"{DEFAULT} for all others"),
            FormField(name="ip", label="Address", hint="instead of user and client id"),
            FormField(name="key", label="Limit", type="select", options=keys),
            FormField(name="value", label="Value", hint="a number; empty removes the limit"),
        ),
    )


def _owner_of(request: PageRequest) -> QuotaOwner:
    form = request.form
    named = (("user", "user"), ("client-id", "client_id"), ("ip", "ip"))
    parts = [(kind, form.get(field, "").strip()) for kind, field in named]
    entities = [
        QuotaEntity(kind, name == DEFAULT, "" if name == DEFAULT else name)
        for kind, name in parts
        if name
    ]
    if not entities:
        raise ConfigError("user", "is missing; give a user, a client id or an address")
    return tuple(sorted(entities))


def _number(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        raise ConfigError("value", f"is {value[:40]!r}; it must be a number") from None
    if not 0 <= found < float("inf"):
        raise ConfigError("value", f"is {value[:40]!r}; it must be a positive number")
    return found


def _links(current: str) -> LinksPart:
    links = (
        ("Limits", "/quotas"),
        ("Use now", "/quotas/usage"),
        ("Which limit applies?", "/quotas/explain"),
        ("What is throttled?", "/explain/throttle"),
    )
    return LinksPart(links=links, current=current)


PAGES = (
    Page(
        name="quotas",
        path="/quotas",
        title="Quotas",
        command="ottla quota list",
        covers=("ottla quota delete",),
        view=quotas,
        section="Clients",
        key="l",
        actions=(
            Action(
                name="quota-change",
                path="/quotas/change",
                command="ottla quota set --user {user} {limit}",
                run=change,
                role=UserRole.ADMIN,
            ),
        ),
    ),
    Page(
        name="quota-usage",
        path="/quotas/usage",
        title="Use of quotas",
        command="ottla quota usage",
        view=usage,
    ),
    Page(
        name="quota-explain",
        path="/quotas/explain",
        title="Limits of a client",
        command="ottla quota explain",
        view=explain,
    ),
)
