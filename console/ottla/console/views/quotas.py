"""Pages of quotas: limits of users, client ids and addresses, their present usage, and the limits
that apply to a client."""

from functools import partial
from typing import NamedTuple

from ottla.client.admin_parts.admin_quotas import QuotaChange, QuotaOwner, QuotaUsage
from ottla.console.absences import Absence, NeededRight, attempt, attempt_own
from ottla.console.links import address
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FormField,
    FormPart,
    LinksPart,
    ListColumn,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    list_table,
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
"""Maximum number of clients of each quota that are read from a broker. Throttled clients are
first."""
BROKERS_MAX = 100
DEFAULT = "<default>"
"""Name of a quota's default entity in Kafka's tools. Its quota applies to all users or client ids
without quotas of their own."""
READS = NeededRight(operation="describe-configs")
UNITS = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent of a request handler",
    "controller_mutation_rate": "partitions per second",
    "connection_creation_rate": "connections per second",
}


class QuotaLimit(NamedTuple):
    """One limit of the clients that a quota names."""

    owner: QuotaOwner
    key: str
    value: float


async def quotas(request: PageRequest) -> PageView:
    """Return the page that shows all quotas."""
    found = await attempt("limits", request.admin.describe_quotas(), READS)
    parts: list[SheetPart] = [_links("Limits")]
    if isinstance(found, Absence):
        return sheet_view("Quotas", [*parts, found.part(request.user)])
    limits = [QuotaLimit(owner, *one) for owner, own in found.items() for one in own.items()]
    parts += [
        list_table(
            "Limits",
            limits,
            request.query,
            LIMIT_COLUMNS,
            text_of=lambda one: " ".join([*filter(None, owner_names(one.owner)), one.key]),
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
    parts.append(
        list_table(
            "Clients with a limit",
            rows,
            request.query or {"sort": "-throttle"},
            USAGE_COLUMNS,
            text_of=lambda one: f"{one.user} {one.client_id} {one.key} broker {one.node}",
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
    """Return the page that shows the levels at which a client's quotas may be set, and the level
    that applies."""
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
    """Set or remove one quota. Returns a redirect to the list of quotas."""
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
    """Return the user, the client id and the IP address to which a quota applies. Each is None if
    the quota does not name it."""
    names = {part.type: DEFAULT if part.is_default else part.name for part in owner}
    return names.get("user"), names.get("client-id"), names.get("ip")


def _why(one: QuotaLimit) -> Cell:
    return text("explain", explain_address("throttle", **_named(*owner_names(one.owner))))


def _named(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str]:
    """Return the parameters of the question of `ottla explain` for a client to which a limit
    applies. A default limit applies to clients of any name, and adds no parameter."""
    named = {"user": user, "client_id": client_id, "ip": ip}
    return {name: value for name, value in named.items() if value not in (None, DEFAULT)}


def _client(one: QuotaUsage) -> dict[str, str]:
    return {"user": one.user, "client_id": one.client_id}


LIMIT_COLUMNS: tuple[ListColumn[QuotaLimit], ...] = (
    ListColumn(
        title="User",
        key="user",
        cell=lambda one: code(owner_names(one.owner)[0]),
        order=lambda one: (owner_names(one.owner)[0] or "", one.key),
    ),
    ListColumn(
        title="Client id",
        key="client",
        cell=lambda one: code(owner_names(one.owner)[1]),
        order=lambda one: (owner_names(one.owner)[1] or "", one.key),
    ),
    ListColumn(
        title="Address",
        key="ip",
        cell=lambda one: code(owner_names(one.owner)[2]),
        order=lambda one: (owner_names(one.owner)[2] or "", one.key),
    ),
    ListColumn(title="Limit", key="key", cell=lambda one: code(one.key)),
    ListColumn(title="Value", key="value", cell=lambda one: count(one.value), is_number=True),
    ListColumn(title="Unit", cell=lambda one: text(UNITS.get(one.key, ""))),
    ListColumn(title="Whom does it slow down?", cell=_why),
)
USAGE_COLUMNS: tuple[ListColumn[QuotaUsage], ...] = (
    ListColumn(title="Broker", key="broker", cell=lambda one: count(int(one.node)), is_number=True),
    ListColumn(title="User", key="user", cell=lambda one: code(one.user)),
    ListColumn(
        title="Client id",
        key="client",
        cell=lambda one: code(one.client_id, address("/quotas/explain", {}, _client(one))),
    ),
    ListColumn(title="Limit", cell=lambda one: code(one.key)),
    ListColumn(title="Rate", cell=lambda one: count(one.rate), is_number=True),
    ListColumn(title="Value of the limit", cell=lambda one: count(one.limit), is_number=True),
    ListColumn(
        title="Used",
        key="part",
        cell=lambda one: percent(one.rate / one.limit if one.limit else None),
        is_number=True,
    ),
    ListColumn(
        title="Throttled for",
        key="throttle",
        cell=lambda one: (
            milliseconds(one.throttle_ms) if one.throttle_ms else text("not throttled")
        ),
        order=lambda one: one.throttle_ms,
        is_number=True,
    ),
    ListColumn(
        title="Why?",
        cell=lambda one: text("explain", explain_address("throttle", **_client(one))),
    ),
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
