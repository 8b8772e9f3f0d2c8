"""Page of one group of consumers: its state, its lag by partition and over time, its members and
their removal, and the reasons why a rebalance is not finished."""

from weakref import WeakKeyDictionary

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    MemberToRemove,
)
from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.history.lag_history import LagHistory, LagSample, series_of
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.live_views import every
from ottla.console.page_types import Action, Live, Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    ExplanationPart,
    FactsPart,
    FormField,
    FormPart,
    NotePart,
    PlotPart,
    Sheet,
    SheetPart,
    code,
    count,
    listed,
    seconds,
    sheet_view,
    text,
)
from ottla.console.views.groups.group_parts import (
    group_address,
    group_links,
    partition_names,
    state_badge,
    topic_address,
)
from ottla.insight.explanation import concluded
from ottla.insight.facts.group_kinds import GroupKindName, kind_of, meaning_of
from ottla.insight.facts.group_view import described_of_any_kind, owners, subscription_of
from ottla.insight.facts.member_removal_driver import (
    NOT_REMOVABLE,
    check_removable,
    removal_of,
    remove_members,
)
from ottla.insight.facts.page_lags_driver import LagRow, ages_of, lag_rows
from ottla.insight.rules.rebalance import rebalance_causes
from ottla.model.amounts import counted
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition

ALL_MEMBERS = "all"
"""Value of the form field that selects all members of a group for removal."""
LIVE_S = 5.0
LIVE_PARTITIONS_MAX = 2_000
"""Maximum number of partitions of a group whose lag is updated while the page is open. With more
partitions, the requests every five seconds would load the leaders too much, so the page shows only
the lag at the time of opening."""
AGED_MAX = 12
"""Maximum number of partitions whose unread records are examined for the plot of a group's lag in
seconds. The partitions with the most unread records are selected."""
HISTORIES: WeakKeyDictionary[Admin, LagHistory] = WeakKeyDictionary()
"""Lags of groups over time, by the admin client that has read them. Users therefore see only lags
that their permissions allow."""
PARTITION_COLUMNS = (
    Column(title="Topic", key="topic"),
    Column(title="Partition", is_number=True),
    Column(title="Committed", is_number=True),
    Column(title="End", is_number=True),
    Column(title="Lag in records", key="lag", is_number=True),
    Column(title="Lag in time", is_number=True),
    Column(title="Member"),
)
MEMBER_COLUMNS = (
    Column(title="Member", key="member"),
    Column(title="Client", key="client"),
    Column(title="Host", key="host"),
    Column(title="Rack"),
    Column(title="Protocol"),
    Column(title="Epoch", is_number=True),
    Column(title="Subscription"),
    Column(title="Partitions", key="partitions", is_number=True),
    Column(title="Assigned now"),
    Column(title="Still to come"),
    Column(title="Still to give up"),
)


async def group(request: PageRequest) -> PageView:
    """Return the page that shows a group: its state, and its lag by partition and over time."""
    name = request.path["group"]
    found = await described_of_any_kind(request.admin, name)
    kind = kind_of(found.type, found.protocol_type)
    if kind is GroupKindName.SHARE:
        return PageView(context={}, location=group_address(name, kind))
    rows = await attempt("lag", lag_rows(request.admin, name, owners(found)), reads(name))
    parts: list[SheetPart] = [group_links(name, "Lag"), _facts(found, kind), *_reasons(found)]
    if isinstance(rows, Absence):
        return sheet_view(name, [*parts, rows.part(request.user)])
    parts.append(await _partitions(request, found, rows))
    live = await _lag_parts(request, rows)
    if len(rows) > LIVE_PARTITIONS_MAX:
        return sheet_view(name, [*parts[:2], *live, *parts[2:]])
    return sheet_view(name, parts, live="group-lag", live_values={"group": name}, live_parts=live)


async def lag_over_time(request: PageRequest) -> PageView:
    """Return the content of the live part of a group's page, which is updated while the page is
    open: the present lag, and the lag since the page was opened."""
    name = request.path["group"]
    rows = await lag_rows(request.admin, name, ())
    sheet = Sheet(heading=name, parts=(), live_parts=tuple(await _lag_parts(request, rows)))
    return PageView(context={"sheet": sheet}, template="live/sheet")


async def members(request: PageRequest) -> PageView:
    """Return the page that shows a group's members, with their assignments."""
    name = request.path["group"]
    found = await described_of_any_kind(request.admin, name)
    kind = kind_of(found.type, found.protocol_type)
    page = listing(
        found.members,
        request.query,
        text_of=lambda one: f"{one.member_id} {one.instance_id or ''} {one.client_id} {one.host}",
        sorts={
            "member": lambda one: one.member_id,
            "client": lambda one: one.client_id,
            "host": lambda one: one.host,
            "partitions": lambda one: len(one.assignment),
        },
    )
    return sheet_view(
        name,
        [
            group_links(name, "Members"),
            _facts(found, kind),
            *_reasons(found),
            listed(
                "Members",
                page,
                MEMBER_COLUMNS,
                map(_member_row, page.rows),
                empty="The group has no members now. Its committed offsets stay until they expire.",
                search_label="Search members",
            ),
            _removal_form(found, page.rows),
        ],
    )


async def remove_member(request: PageRequest) -> PageView:
    """Remove one member or all members of a group. Returns a redirect to the page of the
    members."""
    name, chosen = request.path["group"], request.form.get("member", "")
    found = await described_of_any_kind(request.admin, name)
    check_removable(found)
    members = list(map(removal_of, found.members))
    if chosen != ALL_MEMBERS:
        by_value = {value_of(one): one for one in members}
        if chosen not in by_value:
            raise ConfigError("member", f"is {chosen!r}, which the group does not have")
        members = [by_value[chosen]]
    for refusal in (await remove_members(request.admin, name, members)).values():
        raise refusal
    return PageView(
        context={},
        location=address("/groups/{group}/members", {"group": name}),
        notice=f"{counted(len(members), 'member')} removed. A client that still runs joins again.",
    )


def value_of(member: MemberToRemove) -> str:
    """Return a member's value in the list of the removal form: the instance id of a static member,
    or the member id of any other member."""
    if member.instance_id is not None:
        return f"instance:{member.instance_id}"
    return f"member:{member.member_id}"


def _removal_form(
    found: GroupDescription, shown: tuple[GroupMemberDescription, ...]
) -> SheetPart | None:
    """Return the form that removes a member on this page of the list. Returns None if the group has
    no members, or if no request can remove them."""
    if not shown or found.type in NOT_REMOVABLE:
        return None
    names = [
        (value_of(removal_of(one)), f"{one.instance_id or one.member_id} ({one.client_id})")
        for one in shown
    ]
    return FormPart(
        title="Remove a member",
        button="Remove the member",
        action="group-remove-member",
        values={"group": found.group_id},
        hint="Its partitions are assigned to the others. It can no longer commit what it has read. "
        "A client that still runs joins again; end the process of one that hangs.",
        fields=(
            FormField(
                name="member",
                label="Member",
                type="select",
                options=(*names, (ALL_MEMBERS, f"all {counted(len(found.members), 'member')}")),
            ),
        ),
    )


def reads(group: str) -> NeededRight:
    """Return the permission that a user needs to describe a group."""
    return NeededRight(operation="describe", resource="group", name=group)


def _facts(found: GroupDescription, kind: GroupKindName) -> FactsPart:
    facts: list[tuple[str, Cell]] = [
        ("State", state_badge(found.state)),
        ("Kind", text(kind.value)),
        ("Meaning", text(meaning_of(found))),
        ("Members", count(len(found.members))),
        ("Assignor", text(found.assignor)),
    ]
    if found.group_epoch is not None:
        facts += [
            ("Group epoch", count(found.group_epoch)),
            ("Epoch of the assignment", count(found.assignment_epoch)),
        ]
    return FactsPart(facts=tuple(facts))


def _reasons(found: GroupDescription) -> list[SheetPart]:
    """Return page parts that explain why the group's assignment of partitions is not finished."""
    causes = rebalance_causes(found)
    if not causes:
        return []
    explained = concluded("rebalance", f"group {found.group_id}", causes)
    return [ExplanationPart(title="The assignment is not finished", found=explained)]


async def _partitions(
    request: PageRequest, found: GroupDescription, rows: list[LagRow]
) -> SheetPart:
    working = owners(found)
    page = listing(
        rows,
        request.query,
        text_of=lambda one: f"{one.at} {working.get(one.at, '')}",
        sorts={"topic": lambda one: one.at, "lag": lambda one: one.lag},
    )
    ages = await attempt("lag in time", ages_of(request.admin, page.rows), reads(found.group_id))
    known = {} if isinstance(ages, Absence) else ages
    return listed(
        "Partitions",
        page,
        PARTITION_COLUMNS,
        (_partition_row(one, known, working) for one in page.rows),
        empty="The group has no committed offsets and no assignment.",
        search_label="Search partitions",
    )


def _partition_row(
    one: LagRow, ages: dict[TopicPartition, float | None], working: dict[TopicPartition, str]
) -> tuple[Cell, ...]:
    age = 0.0 if one.lag == 0 else ages.get(one.at)
    return (
        code(one.at.topic, topic_address(one.at.topic)),
        count(one.at.partition),
        count(one.committed),
        count(one.end),
        count(one.lag),
        seconds(age),
        code(working.get(one.at)),
    )


async def _lag_parts(request: PageRequest, rows: list[LagRow]) -> list[SheetPart]:
    if not rows:
        return []
    name = request.path["group"]
    late = sorted(rows, key=lambda one: -(one.lag or 0))[:AGED_MAX]
    ages = await attempt("lag in time", ages_of(request.admin, late), reads(name))
    known_ages = [] if isinstance(ages, Absence) else [one for one in ages.values() if one]
    known = [one.lag for one in rows if one.lag is not None]
    sample = LagSample(
        time_ms=request.now_ms,
        records=sum(known) if known else None,
        seconds=max(known_ages, default=0.0 if known and not any(known) else None),
        by_name={str(one.at): one.lag for one in late if one.lag},
    )
    samples = HISTORIES.setdefault(request.admin, LagHistory()).add(name, sample)
    times = tuple(one.time_ms for one in samples)
    unknown = len(rows) - len(known)
    return [
        FactsPart(
            facts=(
                ("Lag in records, all partitions", count(sample.records)),
                ("Lag in time, the largest", seconds(sample.seconds)),
            )
        ),
        *(
            [
                NotePart(
                    text=f"{unknown} of {len(rows)} partitions have no committed offset or no "
                    "leader; they are not in the sum.",
                )
            ]
            if unknown
            else []
        ),
        PlotPart(
            title="Lag in records since this page was opened",
            unit="count",
            times_ms=times,
            series=series_of(samples),
        ),
        PlotPart(
            title="Lag in time since this page was opened",
            unit="seconds",
            times_ms=times,
            series=(("largest", tuple(one.seconds for one in samples)),),
        ),
    ]


def _member_row(one: GroupMemberDescription) -> tuple[Cell, ...]:
    target = one.assignment if one.target is None else one.target
    return (
        code(one.member_id if one.instance_id is None else f"{one.member_id} ({one.instance_id})"),
        code(one.client_id),
        text(one.host.removeprefix("/")),
        text(one.rack),
        text(one.type.value),
        count(one.member_epoch),
        text(", ".join(subscription_of(one) or ())),
        count(len(one.assignment)),
        text(partition_names(one.assignment)),
        text(partition_names(target - one.assignment)),
        text(partition_names(one.assignment - target)),
    )


PAGES = (
    Page(
        name="group",
        path="/groups/{group}",
        title="Group",
        command="ottla group lag {group}",
        covers=("ottla group describe",),
        view=group,
        lives=(
            Live(
                name="group-lag", path="/live/groups/{group}", stream=every(LIVE_S, lag_over_time)
            ),
        ),
    ),
    Page(
        name="group-members",
        path="/groups/{group}/members",
        title="Members",
        command="ottla group members {group}",
        view=members,
        actions=(
            Action(
                name="group-remove-member",
                path="/groups/{group}/members/remove",
                command="ottla group remove-member {group}",
                run=remove_member,
                confirms="group",
            ),
        ),
    ),
)
