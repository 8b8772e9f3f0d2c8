"""Pages of queues: the list of share groups, and the records of one share group that are in flight
or wait for delivery."""

from collections.abc import Mapping

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigEntry, ConfigResource
from ottla.client.admin_parts.admin_groups import GroupDescription, GroupMemberDescription
from ottla.client.admin_parts.admin_share_groups import (
    ShareOffset,
    ShareRecordCounts,
    ShareRecordRange,
)
from ottla.console.absences import Absence, NeededRight, attempt, attempt_own
from ottla.console.form_values import number_in
from ottla.console.links import address
from ottla.console.listing import listing
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FactsPart,
    LinksPart,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    listed,
    sheet_view,
    text,
    when,
)
from ottla.console.views.groups.group_list import listings_of
from ottla.console.views.groups.group_page import reads
from ottla.console.views.groups.group_parts import (
    group_address,
    partition_names,
    state_badge,
    topic_address,
)
from ottla.console.views.groups.group_reset import (
    deletions,
    parse_plan,
    plan_parts,
    planned,
    reset_command,
    reset_form,
)
from ottla.insight.explanation import command as command_of
from ottla.insight.facts.group_kinds import GroupKindName
from ottla.model.errors import ConfigError, ErrorCode, RefusedError, row_of
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigKind

SETTINGS = (
    ("share.record.lock.duration.ms", "Duration of a member's lock on a record, in ms"),
    ("share.delivery.count.limit", "Deliveries of a record before it is given up"),
    ("share.auto.offset.reset", "Start of a group that has not read a partition yet"),
    ("errors.deadletterqueue.group.enable", "Dead letters of the group"),
    ("errors.deadletterqueue.topic.name", "Topic of the dead letters"),
)
DEAD_LETTER_TOPIC = "errors.deadletterqueue.topic.name"
MEMBERS_MAX = 100
RANGES_MAX = 200
PARTITION_COLUMNS = (
    Column(title="Topic", key="topic"),
    Column(title="Partition", is_number=True),
    Column(title="Start offset", is_number=True),
    Column(title="Not settled", key="lag", is_number=True),
    Column(title="In flight", is_number=True),
    Column(title="Ready", is_number=True),
    Column(title="Delayed", is_number=True),
    Column(title="In back-off", is_number=True),
    Column(title="Waits for its key", is_number=True),
    Column(title="Waits for its dead letter", is_number=True),
    Column(title="Next delivery"),
)
MEMBER_COLUMNS = (
    Column(title="Member"),
    Column(title="Client"),
    Column(title="Host"),
    Column(title="Rack"),
    Column(title="Epoch", is_number=True),
    Column(title="Partitions"),
)
RECORD_COLUMNS = (
    Column(title="First offset", is_number=True),
    Column(title="Last offset", is_number=True),
    Column(title="State"),
    Column(title="Deliveries", is_number=True),
    Column(title="Member"),
    Column(title="Lock ends"),
)


def queue_address(group: str) -> str:
    """Return the address of the console page that shows a share group."""
    return group_address(group, GroupKindName.SHARE)


async def queues(request: PageRequest) -> PageView:
    """Return the page that lists all share groups."""
    found, absent = await listings_of(request.admin, types=("share",))
    page = listing(
        found,
        request.query,
        text_of=lambda one: f"{one.group_id} {one.state}",
        sorts={"group": lambda one: one.group_id, "state": lambda one: one.state},
    )
    return sheet_view(
        "Queues",
        [
            *(one.part(request.user) for one in absent),
            listed(
                "Share groups",
                page,
                (
                    Column(title="Share group", key="group"),
                    Column(title="State", key="state"),
                    Column(title="Coordinator", is_number=True),
                    Column(title="Why is it not delivered?"),
                ),
                (
                    (
                        code(one.group_id, queue_address(one.group_id)),
                        state_badge(one.state),
                        count(int(one.coordinator)),
                        text(
                            "explain",
                            address("/explain/delivery", {}, {"group": one.group_id}),
                        ),
                    )
                    for one in page.rows
                ),
                empty="No client has joined a share group yet.",
                empty_command="ottla consume TOPIC --share-group GROUP",
                search_label="Search share groups",
            ),
        ],
        lead="Share groups (KIP-932) deliver each record to one of their members at a time.",
    )


async def queue(request: PageRequest) -> PageView:
    """Return the page that shows a share group: its partitions, its members and its dead
    letters."""
    name = request.path["group"]
    admin = request.admin
    found = await admin.describe_share_group(name)
    offsets = await attempt("offsets", admin.share_group_offsets(name), reads(name))
    parts: list[SheetPart] = [queue_links(name, "Records"), _facts(found)]
    parts += await _dead_letters(request, name)
    if isinstance(offsets, Absence):
        parts.append(offsets.part(request.user))
    else:
        parts += await _partitions(request, offsets)
    parts.append(_members(found))
    return sheet_view(name, parts)


async def records(request: PageRequest) -> PageView:
    """Return the page with the records of one partition that are in flight in a share group or wait
    for delivery."""
    name, at = request.path["group"], _partition_of(request)
    found = await attempt_own(
        request.admin,
        "the list of records in flight",
        lambda: request.admin.share_group_records(name, at, count_max=RANGES_MAX, has_waiting=True),
        reads(name),
    )
    part: SheetPart
    if isinstance(found, Absence):
        part = found.part(request.user)
    else:
        part = TablePart(
            title="Records that are not settled",
            columns=RECORD_COLUMNS,
            rows=tuple(map(_record_row, found)),
            empty="No member fetches this partition now, or all its records are settled.",
        )
    return sheet_view(
        f"{name}: {at}",
        [queue_links(name, ""), part],
        lead=f"At most {RANGES_MAX} ranges of records with equal state, from the start offset.",
    )


async def reset_page(request: PageRequest) -> PageView:
    """Return the page for resetting a share group's start offsets: the form, and the preview."""
    name = request.path["group"]
    offsets = await attempt("offsets", request.admin.share_group_offsets(name), reads(name))
    parts: list[SheetPart] = [queue_links(name, "Reset or delete")]
    if isinstance(offsets, Absence):
        return sheet_view(name, [*parts, offsets.part(request.user)])
    before = {at: one.start_offset for at, one in offsets.items() if one.start_offset is not None}
    topics = sorted({at.topic for at in offsets})
    parts.append(reset_form(f"{queue_address(name)}/reset", request.query, topics))
    if request.query.get("to"):
        try:
            rows = await planned(request.admin, before, request.query, request.now_ms)
            parts += plan_parts(rows, "reset-queue", {"group": name}, "Set these start offsets")
        except (ConfigError, RefusedError) as error:
            parts.append(NotePart(text=str(error), tone="bad"))
    parts += deletions(
        name, topics, of_offsets="queue-offset-delete", of_group="queue-delete", noun="share group"
    )
    return sheet_view(name, parts, command=reset_command("share", name, request.query))


async def delete_offsets(request: PageRequest) -> PageView:
    """Delete the start offsets of a share group in one topic. Returns a redirect to the page of the
    share group."""
    name, topic = request.path["group"], request.form.get("topic", "")
    for code_ in (await request.admin.delete_share_group_offsets(name, [topic])).values():
        if code_ is not ErrorCode.NONE:
            raise RefusedError(code_, f"topic {topic!r}: {row_of(code_).meaning}")
    return PageView(
        context={},
        location=queue_address(name),
        notice=f"The start offsets in topic {topic} were deleted.",
    )


async def delete(request: PageRequest) -> PageView:
    """Delete a share group without members, with its offsets. Returns a redirect to the list of
    share groups."""
    name = request.path["group"]
    await request.admin.describe_share_group(name)
    await request.admin.delete_group(name)
    return PageView(context={}, location="/queues", notice=f"Share group {name} was deleted.")


async def reset(request: PageRequest) -> PageView:
    """Set the start offsets that the preview of a reset has shown. Returns a redirect to the share
    group's page."""
    name = request.path["group"]
    plan = parse_plan(request.form.get("plan", ""))
    try:
        refused = await request.admin.try_alter_share_group_offsets(name, plan)
    except RefusedError as refusal:
        if refusal.code is not ErrorCode.NON_EMPTY_GROUP:
            raise
        raise RefusedError(refusal.code, "the share group has members; stop them first") from None
    for at, reason in refused.items():
        raise RefusedError(reason.code, f"{at}: {reason.message}")
    return PageView(
        context={},
        location=queue_address(name),
        notice=f"The start offsets of {len(plan)} partitions were set.",
    )


def queue_links(group: str, current: str) -> LinksPart:
    """Return the links between the pages about a share group."""
    values = {"group": group}
    return LinksPart(
        links=(
            ("Records", queue_address(group)),
            ("Dead letters", f"{queue_address(group)}/redrive"),
            ("Reset or delete", f"{queue_address(group)}/reset"),
            ("Why is it not delivered?", address("/explain/delivery", {}, values)),
        ),
        current=current,
    )


def _facts(found: GroupDescription) -> FactsPart:
    return FactsPart(
        facts=(
            ("State", state_badge(found.state)),
            ("Members", count(len(found.members))),
            ("Group epoch", count(found.group_epoch)),
            ("Epoch of the assignment", count(found.assignment_epoch)),
            ("Assignor", text(found.assignor)),
        )
    )


async def _dead_letters(request: PageRequest, group: str) -> list[SheetPart]:
    """Return page parts with the share group's settings for redelivery and for dead letters."""
    needs = NeededRight(operation="describe-configs", resource="group", name=group)
    settings = await attempt("settings of the group", _settings(request.admin, group), needs)
    if isinstance(settings, Absence):
        return [settings.part(request.user)]
    facts = tuple(
        (meaning, _setting_cell(key, settings[key].value))
        for key, meaning in SETTINGS
        if key in settings
    )
    parts: list[SheetPart] = []
    if facts:
        parts.append(FactsPart(title="Redelivery and dead letters", facts=facts))
    letters = settings.get(DEAD_LETTER_TOPIC)
    if letters is not None and letters.value:
        parts.append(
            NotePart(
                text=f"Rejected records are in topic {letters.value}; they can be sent back.",
                command=command_of("share", "redrive", group, "--dry-run"),
                href=topic_address(letters.value),
                link_text="Show the dead letters",
            )
        )
    return parts


def _setting_cell(key: str, value: str | None) -> Cell:
    is_topic = key == DEAD_LETTER_TOPIC and value
    return code(value, topic_address(value) if is_topic and value else "")


async def _settings(admin: Admin, group: str) -> Mapping[str, ConfigEntry]:
    return await admin.describe_configs(
        ConfigResource(ConfigKind.GROUP, group), keys=[key for key, _ in SETTINGS]
    )


async def _partitions(
    request: PageRequest, offsets: Mapping[TopicPartition, ShareOffset]
) -> list[SheetPart]:
    name = request.path["group"]
    page = listing(
        offsets.items(),
        request.query,
        text_of=lambda one: str(one[0]),
        sorts={"topic": lambda one: one[0], "lag": lambda one: one[1].lag},
    )
    shown = [at for at, _ in page.rows]
    counts = await attempt_own(
        request.admin,
        "the delivery state of records",
        lambda: request.admin.share_group_deliveries(name, shown),
        reads(name),
    )
    known: Mapping[TopicPartition, ShareRecordCounts] = {}
    parts: list[SheetPart] = []
    if isinstance(counts, Absence):
        parts.append(counts.part(request.user))
    else:
        known = counts
    parts.append(
        listed(
            "Partitions",
            page,
            PARTITION_COLUMNS,
            (_partition_row(name, at, one, known.get(at)) for at, one in page.rows),
            empty="The share group consumes no partition yet.",
            search_label="Search partitions",
        )
    )
    return parts


def _partition_row(
    group: str, at: TopicPartition, offset: ShareOffset, counts: ShareRecordCounts | None
) -> tuple[Cell, ...]:
    values = {"group": group, "topic": at.topic, "partition": str(at.partition)}
    start = count(offset.start_offset) if offset.error is None else badge(str(offset.error), "bad")
    row = (
        code(at.topic, topic_address(at.topic)),
        count(at.partition, address("/queues/{group}/records/{topic}/{partition}", values)),
        start,
        count(offset.lag),
    )
    if counts is None:
        return (*row, *(count(None) for _ in range(6)), text("no member fetches it"))
    due = [one for one in (counts.next_due_ms, counts.next_backoff_ms) if one is not None]
    now = badge("now", "good") if counts.ready_count else when(min(due, default=None))
    return (
        *row,
        count(counts.acquired_count),
        count(counts.ready_count),
        count(counts.delayed_count),
        count(counts.backoff_count),
        count(counts.key_count),
        count(counts.dead_letter_count),
        now,
    )


def _members(found: GroupDescription) -> TablePart:
    title = "Members"
    if len(found.members) > MEMBERS_MAX:
        title = f"The first {MEMBERS_MAX} of {len(found.members)} members"
    return TablePart(
        title=title,
        columns=MEMBER_COLUMNS,
        rows=tuple(map(_member_row, found.members[:MEMBERS_MAX])),
        empty="The share group has no members now.",
    )


def _member_row(one: GroupMemberDescription) -> tuple[Cell, ...]:
    return (
        code(one.member_id),
        code(one.client_id),
        text(one.host.removeprefix("/")),
        text(one.rack),
        count(one.member_epoch),
        text(partition_names(one.assignment)),
    )


def _record_row(one: ShareRecordRange) -> tuple[Cell, ...]:
    state = one.state.name.lower()
    return (
        count(one.first_offset),
        count(one.last_offset),
        text(f"{state}, being stored" if one.is_being_stored else state),
        count(one.delivery_count),
        code(one.member_id),
        when(one.lock_end_ms),
    )


def _partition_of(request: PageRequest) -> TopicPartition:
    index = number_in(request.path["partition"])
    if index is None:
        code_ = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        raise RefusedError(code_, row_of(code_).meaning)
    return TopicPartition(request.path["topic"], index)


PAGES = (
    Page(
        name="queues",
        path="/queues",
        title="Queues",
        command="ottla share list",
        view=queues,
        section="Clients",
        key="q",
    ),
    Page(
        name="queue",
        path="/queues/{group}",
        title="Share group",
        command="ottla share describe {group}",
        covers=("ottla share offsets",),
        view=queue,
    ),
    Page(
        name="queue-records",
        path="/queues/{group}/records/{topic}/{partition}",
        title="Records of a share group",
        command="ottla share peek {group}",
        view=records,
    ),
    Page(
        name="queue-reset",
        path="/queues/{group}/reset",
        title="Reset a share group",
        command="ottla share reset {group} --to-earliest",
        view=reset_page,
        actions=(
            Action(
                name="reset-queue",
                path="/queues/{group}/reset",
                command="ottla share reset {group} --to-earliest",
                run=reset,
            ),
            Action(
                name="queue-offset-delete",
                path="/queues/{group}/offsets/delete",
                command="ottla share offset-delete {group} --topic {topic}",
                run=delete_offsets,
                role=UserRole.ADMIN,
                confirms="group",
            ),
            Action(
                name="queue-delete",
                path="/queues/{group}/delete",
                command="ottla share delete {group}",
                run=delete,
                role=UserRole.ADMIN,
                confirms="group",
            ),
        ),
    ),
)
