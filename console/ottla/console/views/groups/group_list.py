"""Page that lists groups with their kinds and states. The lag is shown only for groups on the
current page of the list."""

import trio

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupListing, GroupType
from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    SheetPart,
    code,
    count,
    listed,
    sheet_view,
    text,
)
from ottla.console.views.groups.group_parts import group_address, state_badge
from ottla.insight.facts.group_kinds import MEANINGS, GroupKindName, kind_of
from ottla.insight.facts.page_lags_driver import record_lags
from ottla.model.errors import OttlaError
from ottla.model.ids import NodeId

BROKER_S = 5.0
"""Maximum seconds for one broker's response with its groups. Groups of a slower broker are not
shown."""
LAG_S = 10.0
SORTS = {
    "group": lambda one: one.group_id,
    "kind": lambda one: kind_of(one.type, one.protocol_type).value,
    "state": lambda one: one.state,
    "coordinator": lambda one: int(one.coordinator),
}


async def groups(request: PageRequest) -> PageView:
    """Return the page that lists all groups. With the query parameter `with=lag`, it also shows the
    lags of the groups on this page of the list."""
    found, absent = await listings_of(request.admin)
    page = listing(
        [one for one in found if _is_wanted(one, request.query.get("kind", ""))],
        request.query,
        text_of=lambda one: f"{one.group_id} {one.state} {_kind(one)}",
        sorts=SORTS,
    )
    has_lag = request.query.get("with") == "lag"
    lags = await _lags(request.admin, page.rows) if has_lag else {}
    return sheet_view(
        "Groups",
        [
            _counts(found),
            *(one.part(request.user) for one in absent),
            listed(
                "Groups",
                page,
                (
                    Column(title="Group", key="group"),
                    Column(title="Kind", key="kind"),
                    Column(title="State", key="state"),
                    Column(title="Protocol"),
                    Column(title="Coordinator", key="coordinator", is_number=True),
                    Column(title="Lag in records", is_number=True),
                ),
                (_row(one, lags) for one in page.rows),
                empty="No group has committed an offset or has members yet.",
                empty_command="ottla consume TOPIC --group GROUP",
                search_label="Search groups",
                loads="" if has_lag or not page.rows else _with_lag(request),
            ),
        ],
    )


async def listings_of(
    admin: Admin, *, types: tuple[str, ...] = ()
) -> tuple[list[GroupListing], list[Absence]]:
    """Return the groups of all brokers that respond, and the reasons for the brokers that do not
    respond. Only groups of these `types` are returned, or groups of all types if `types` is
    empty."""
    found: dict[str, GroupListing] = {}
    absent: list[Absence] = []

    async def ask(node: NodeId) -> None:
        thing = f"groups of broker {node}"
        needs = NeededRight(operation="describe", resource="group")
        listings = await attempt(
            thing, admin.list_groups_of(node, types=types), needs, timeout_s=BROKER_S
        )
        if isinstance(listings, Absence):
            absent.append(listings)
        else:
            wanted = (one for one in listings if not types or one.type.value in types)
            found.update((one.group_id, one) for one in wanted)

    async with trio.open_nursery() as nursery:
        for broker in (await admin.cluster.metadata([])).brokers:
            nursery.start_soon(ask, NodeId(broker.node_id))
    return [found[group] for group in sorted(found)], absent


def _is_wanted(one: GroupListing, kind: str) -> bool:
    return kind in ("", _kind(one))


def _kind(one: GroupListing) -> str:
    return kind_of(one.type, one.protocol_type).value


def _counts(found: list[GroupListing]) -> SheetPart:
    totals = dict.fromkeys(GroupKindName, 0)
    for one in found:
        totals[kind_of(one.type, one.protocol_type)] += 1
    return FactsPart(
        facts=tuple(
            (
                f"{kind.value}: {MEANINGS[kind]}",
                count(total, address("/groups", {}, {"kind": kind.value})),
            )
            for kind, total in totals.items()
            if total
        )
    )


def _row(one: GroupListing, lags: dict[str, int | None]) -> tuple[Cell, ...]:
    kind = kind_of(one.type, one.protocol_type)
    return (
        code(one.group_id, group_address(one.group_id, kind)),
        text(kind.value),
        state_badge(one.state),
        text(one.protocol_type),
        count(int(one.coordinator)),
        count(lags.get(one.group_id)),
    )


def _with_lag(request: PageRequest) -> str:
    return address("/groups", {}, {**request.query, "with": "lag"})


async def _lags(admin: Admin, rows: tuple[GroupListing, ...]) -> dict[str, int | None]:
    """Return the known lags of the groups on the page, in records."""
    consumers = [one.group_id for one in rows if one.type is not GroupType.SHARE]
    queues = [one.group_id for one in rows if one.type is GroupType.SHARE]
    found: dict[str, int | None] = {}
    with trio.move_on_after(LAG_S):
        found.update(await record_lags(admin, consumers))
        for group in queues:
            try:
                offsets = await admin.share_group_offsets(group)
            except OttlaError:
                continue
            known = [one.lag for one in offsets.values() if one.lag is not None]
            found[group] = sum(known) if known else None
    return found


PAGES = (
    Page(
        name="groups",
        path="/groups",
        title="Groups",
        command="ottla group list",
        view=groups,
        section="Clients",
        key="g",
    ),
)
