"""Pages of the controller quorum: leader, voters and observers of the metadata log, its changes in
words, and its snapshots."""

from collections.abc import Callable

from ottla.client.network.cluster import raise_for
from ottla.console.absences import CLUSTER_DESCRIBE, Absence, NeededRight, attempt_own
from ottla.console.page_types import Action, Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    FormField,
    FormPart,
    LinksPart,
    ListColumn,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    list_table,
    milliseconds,
    plain_table,
    sheet_view,
    text,
    when,
)
from ottla.insight.facts.changes_driver import recent_changes
from ottla.insight.facts.survey_driver import SurveyedQuorum, SurveyedReplica, quorum_of
from ottla.insight.rules.health import quorum_reasons
from ottla.wire.messages.describe_metadata_changes_response import MetadataChange
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest
from ottla.wire.messages.write_snapshot_response import WriteSnapshotResponse

CHANGES_MAX = 500
SPANS = (("1", "last hour"), ("6", "last 6 hours"), ("24", "last day"), ("168", "last week"))
HOUR_MS = 3_600_000
CHANGE_COLUMNS: tuple[ListColumn[MetadataChange], ...] = (
    ListColumn(title="Offset", key="offset", cell=lambda one: count(one.offset), is_number=True),
    ListColumn(title="Time", cell=lambda one: when(one.timestamp_ms)),
    ListColumn(title="Epoch", cell=lambda one: count(one.epoch), is_number=True),
    ListColumn(title="Kind", key="kind", cell=lambda one: text(one.kind)),
    ListColumn(title="Change", cell=lambda one: text(one.text)),
)


def quorum_links(current: str) -> LinksPart:
    """Return the links between the pages about the quorum of controllers."""
    links = (
        ("Quorum", "/quorum"),
        ("Change voters", "/quorum/voters"),
        ("Metadata log", "/quorum/log"),
        ("Why are partitions unavailable?", "/explain/unavailable"),
    )
    return LinksPart(links=links, current=current)


async def quorum(request: PageRequest) -> PageView:
    """Return the page that shows the quorum of controllers."""
    found = await quorum_of(request.admin)
    reasons = list(quorum_reasons(found))
    parts: list[SheetPart] = [quorum_links("Quorum")]
    parts += [NotePart(text=one, tone="bad", command="ottla quorum status") for one in reasons]
    parts += [NotePart(text=one, tone="warning") for one in found.warnings.splitlines()]
    if not found.failure:
        parts.append(_facts(found, is_healthy=not reasons))
        parts.append(voters_table(found))
        parts.append(_observers(request, found))
        # Without an active controller, no response about snapshots would come either.
        parts += await _snapshots(request)
    return sheet_view("Quorum", parts)


async def changes(request: PageRequest) -> PageView:
    """Return the page that shows the changes and elections in the metadata log, in words."""
    hours = request.query.get("hours", "1")
    if hours not in dict(SPANS):
        hours = "1"
    since_ms = request.now_ms - int(hours) * HOUR_MS
    found = await attempt_own(
        request.admin,
        "the metadata log in words",
        lambda: recent_changes(request.admin, since_ms=since_ms, count_max=CHANGES_MAX),
        CLUSTER_DESCRIBE,
    )
    span = FormField(name="hours", label="Time", type="select", value=hours, options=SPANS)
    parts: list[SheetPart] = [
        quorum_links("Metadata log"),
        FormPart(title="Show", button="Show", href="/quorum/log", fields=(span,)),
    ]
    if isinstance(found, Absence):
        return sheet_view("Metadata log", [*parts, found.part(request.user)])
    if not found.is_complete:
        parts.append(
            NotePart(
                text="Older changes of this time are left out.",
                command="ottla quorum log --from earliest",
            )
        )
    parts += [
        _elections(found.changes),
        list_table(
            "Changes of the metadata",
            found.changes,
            {"sort": "-offset", **request.query},
            CHANGE_COLUMNS,
            text_of=lambda one: f"{one.kind} {one.text}",
            empty="Nothing changed in this time.",
            search_label="Search changes",
        ),
    ]
    return sheet_view(
        "Metadata log", parts, lead="Credentials and secret settings are not in these texts."
    )


async def write_snapshot(request: PageRequest) -> PageView:
    """Request a snapshot of the metadata from the active controller. Returns a redirect to the page
    of the quorum."""
    found = await _ask_snapshot(request, is_trial=False)
    return PageView(
        context={},
        location="/quorum",
        notice=f"Controller {found.node_id} has written a snapshot of the records before offset "
        f"{found.end_offset:,}.",
    )


async def _ask_snapshot(request: PageRequest, *, is_trial: bool) -> WriteSnapshotResponse:
    message = WriteSnapshotRequest(validate_only=is_trial)
    answer = await request.admin.cluster.request(message, WriteSnapshotResponse)
    raise_for(answer.error_code, answer.error_message)
    return answer


async def _snapshots(request: PageRequest) -> list[SheetPart]:
    needs = NeededRight(operation="alter")
    found = await attempt_own(
        request.admin,
        "the state of snapshots",
        lambda: _ask_snapshot(request, is_trial=True),
        needs,
    )
    if isinstance(found, Absence):
        return [found.part(request.user)]
    return [
        FactsPart(
            title="Snapshots",
            facts=(
                ("Latest snapshot ends before offset", count(found.latest_end_offset)),
                ("Metadata log starts at offset", count(found.log_start_offset)),
                (
                    "Records since the latest snapshot",
                    count(found.end_offset - found.latest_end_offset),
                ),
            ),
        ),
        FormPart(
            title="Write a snapshot",
            button="Write a snapshot now",
            action="quorum-snapshot",
            hint="Controllers write snapshots by themselves; a new node loads the latest one.",
        ),
    ]


def _facts(found: SurveyedQuorum, *, is_healthy: bool) -> FactsPart:
    state = badge("healthy", "good") if is_healthy else badge("not healthy", "bad")
    return FactsPart(
        facts=(
            ("State", state),
            ("Active controller", count(found.leader_id)),
            ("Epoch (number of elections)", count(found.epoch)),
            ("High watermark", count(found.high_watermark)),
            ("Voters", count(len(found.voters))),
            ("Voters that may fail", count((len(found.voters) - 1) // 2)),
        )
    )


def voters_table(found: SurveyedQuorum) -> TablePart:
    """Return a table of the quorum's voters."""

    def role(one: SurveyedReplica) -> Cell:
        is_leader = one.id == found.leader_id
        return badge("leader", "good") if is_leader else badge("voter")

    return plain_table("Voters", found.voters, _replica_columns(role))


def _observers(request: PageRequest, found: SurveyedQuorum) -> TablePart:
    return list_table(
        "Observers",
        found.observers,
        request.query,
        _replica_columns(lambda _: badge("observer")),
        text_of=lambda one: f"{one.id} {one.address}",
        empty="No broker replicates the metadata log now.",
        search_label="Search observers",
    )


def _replica_columns(
    role: Callable[[SurveyedReplica], Cell],
) -> tuple[ListColumn[SurveyedReplica], ...]:
    return (
        ListColumn(title="Node", key="node", cell=lambda one: count(one.id), is_number=True),
        ListColumn(title="Role", cell=role),
        ListColumn(title="Log end", cell=lambda one: count(one.log_end_offset), is_number=True),
        ListColumn(
            title="Lag in records", key="lag", cell=lambda one: count(one.lag), is_number=True
        ),
        ListColumn(
            title="Fetched before",
            cell=lambda one: milliseconds(one.last_fetch_ms_ago),
            is_number=True,
        ),
        ListColumn(
            title="Caught up before",
            cell=lambda one: milliseconds(one.last_caught_up_ms_ago),
            is_number=True,
        ),
        ListColumn(title="Address", cell=lambda one: code(one.address)),
        ListColumn(title="Version", cell=lambda one: text(one.version)),
        ListColumn(title="Directory", cell=lambda one: code(one.directory_id)),
    )


def _elections(found: tuple[MetadataChange, ...]) -> TablePart:
    """Return a table of the quorum's elections. An election is the first change in the metadata log
    with a new epoch."""
    firsts: dict[int, MetadataChange] = {}
    for one in sorted(found, key=lambda one: one.offset):
        firsts.setdefault(one.epoch, one)
    epochs = sorted(firsts)[1:]  # The first epoch may have begun before this time.
    rows = tuple(
        (count(epoch), when(firsts[epoch].timestamp_ms), count(firsts[epoch].offset))
        for epoch in reversed(epochs[-20:])
    )
    return TablePart(
        title="Elections",
        columns=(
            Column(title="New epoch", is_number=True),
            Column(title="First change"),
            Column(title="Offset", is_number=True),
        ),
        rows=rows,
        empty="No election is among the changes of this time.",
    )


PAGES = (
    Page(
        name="quorum",
        path="/quorum",
        title="Quorum",
        command="ottla quorum status",
        covers=("ottla quorum replicas",),
        view=quorum,
        section="Cluster",
        key="u",
        actions=(
            Action(
                name="quorum-snapshot",
                path="/quorum/snapshot",
                command="ottla quorum snapshot",
                run=write_snapshot,
            ),
        ),
    ),
    Page(
        name="quorum-log",
        path="/quorum/log",
        title="Metadata log",
        command="ottla quorum log",
        view=changes,
    ),
)
