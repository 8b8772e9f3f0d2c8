"""Pages and actions for resetting a group's offsets, with a preview, and for deleting offsets and
groups.

The preview is the plan: the action commits the offsets that the page has shown, even if further
records have arrived.
"""

from collections.abc import Mapping

from ottla.client.admin import Admin
from ottla.console.absences import Absence, attempt
from ottla.console.page_types import Action, Page, PageRequest, PageView, UserRole
from ottla.console.sheets import (
    Cell,
    Column,
    FormField,
    FormPart,
    NotePart,
    SheetPart,
    TablePart,
    badge,
    code,
    count,
    sheet_view,
)
from ottla.console.views.groups.group_page import reads
from ottla.console.views.groups.group_parts import group_address, group_links, topic_address
from ottla.insight.changes.reset_plan_driver import ResetRow, ResetTo, plan_reset
from ottla.insight.explanation import command as command_of
from ottla.insight.facts.group_view import committed_offsets
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.points_in_time import parse_time

PARTITIONS_MAX = 1_000
"""Maximum number of partitions whose offsets one action resets. For larger resets, the user names
the topics one after another."""
OFFSET_MAX = (1 << 63) - 1
DIGITS_MAX = 19
TARGETS = (
    (ResetTo.EARLIEST, "first available record", "--to-earliest"),
    (ResetTo.LATEST, "end of each partition", "--to-latest"),
    (ResetTo.TIME, "first record since a time", "--to-datetime"),
    (ResetTo.OFFSET, "an offset", "--to-offset"),
    (ResetTo.SHIFT, "a number of records forward (or back, if negative)", "--shift-by"),
    (ResetTo.CURRENT, "committed offset, limited to the records", "--to-current"),
)
COLUMNS = (
    Column(title="Topic"),
    Column(title="Partition", is_number=True),
    Column(title="Committed now", is_number=True),
    Column(title="New offset", is_number=True),
    Column(title="Difference", is_number=True),
    Column(title="Effect"),
)


async def reset_page(request: PageRequest) -> PageView:
    """Return the page for resetting a group's offsets: the form and, if a target is chosen, the
    preview."""
    name = request.path["group"]
    before = await attempt("committed offsets", committed_offsets(request.admin, name), reads(name))
    parts: list[SheetPart] = [group_links(name, "Reset or delete")]
    if isinstance(before, Absence):
        return sheet_view(name, [*parts, before.part(request.user)])
    topics = sorted({at.topic for at in before})
    parts.append(reset_form(f"{group_address(name)}/reset", request.query, topics))
    if request.query.get("to"):
        parts += await _preview(request, name, before)
    parts += deletions(
        name, topics, of_offsets="group-offset-delete", of_group="group-delete", noun="group"
    )
    return sheet_view(name, parts, command=reset_command("group", name, request.query))


def reset_form(href: str, query: Mapping[str, str], topics: list[str]) -> FormPart:
    """Return the form that requests the preview of an offset reset."""
    return FormPart(
        title="Reset offsets",
        button="Show the new offsets",
        href=href,
        hint="Nothing is changed before you confirm the preview. The group must have no members.",
        fields=(
            FormField(
                name="to",
                label="Continue at",
                type="select",
                value=query.get("to", ""),
                options=tuple((one.value, words) for one, words, _ in TARGETS),
            ),
            FormField(
                name="value",
                label="Time, offset or number",
                value=query.get("value", ""),
                hint="such as 2026-01-31T12:00 (UTC), 30m (ago), 4200 or -100",
            ),
            FormField(
                name="topic",
                label="Topic",
                value=query.get("topic", ""),
                type="select" if len(topics) <= 100 else "text",
                options=(
                    ("", "all topics with committed offsets"),
                    *((one, one) for one in topics),
                ),
            ),
        ),
    )


def reset_command(noun: str, group: str, query: Mapping[str, str]) -> str:
    """Return the command for the offset reset that the page's query parameters describe."""
    words = ["reset", group]
    if topic := query.get("topic"):
        words += ["--topic", topic]
    options = {one.value: option for one, _, option in TARGETS}
    option = options.get(query.get("to", ""))
    if option is None:
        return command_of(noun, *words, "--to-earliest")
    words.append(option)
    if option in ("--to-datetime", "--to-offset", "--shift-by"):
        words.append(query.get("value", ""))
    return command_of(noun, *words)


async def planned(
    admin: Admin, before: Mapping[TopicPartition, int], query: Mapping[str, str], now_ms: int
) -> list[ResetRow]:
    """Return the plan of new offsets that the page's query parameters describe. Raises ConfigError
    if a parameter is invalid."""
    to = next((one for one, _, _ in TARGETS if one.value == query.get("to")), None)
    if to is None:
        raise ConfigError("to", "is not a place that offsets can be moved to")
    topic = query.get("topic", "")
    partitions = sorted(at for at in before if topic in ("", at.topic))
    if topic and not partitions:
        there = await admin.cluster.partitions_of(topic)
        partitions = [TopicPartition(topic, index) for index in sorted(there)]
    if len(partitions) > PARTITIONS_MAX:
        raise ConfigError(
            "topic", f"is needed: the group has offsets in more than {PARTITIONS_MAX} partitions"
        )
    text = query.get("value", "").strip()
    value = 0
    if to is ResetTo.TIME:
        value = parse_time("value", text, now_ms)
    elif to in (ResetTo.OFFSET, ResetTo.SHIFT):
        value = whole_number("value", text)
    return await plan_reset(admin, before, partitions, to, value)


def whole_number(name: str, text: str) -> int:
    """Return the integer in a form field, which may be negative. Raises ConfigError for other
    texts."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= DIGITS_MAX):
        raise ConfigError(name, f"is {text[:40]!r}; it must be a whole number")
    return max(-OFFSET_MAX, min(OFFSET_MAX, int(text)))


def plan_parts(
    rows: list[ResetRow], action: str, values: Mapping[str, str], button: str
) -> list[SheetPart]:
    """Return page parts with the preview of a plan of new offsets, and the form that commits the
    plan."""
    if not rows:
        return [NotePart(text="There is no partition whose offset could be reset.")]
    return [
        TablePart(title="Preview", columns=COLUMNS, rows=tuple(map(_plan_row, rows))),
        FormPart(
            title="Carry out",
            button=button,
            action=action,
            values=values,
            fields=(FormField(name="plan", label="", type="hidden", value=plan_text(rows)),),
        ),
    ]


def plan_text(rows: list[ResetRow]) -> str:
    """Return a plan of new offsets as the text of a hidden form field: entries
    `topic:partition=offset`, separated by spaces."""
    return " ".join(f"{row.at.topic}:{row.at.partition}={row.after}" for row in rows)


def parse_plan(text: str) -> dict[TopicPartition, int]:
    """Return the new offsets in the text of a plan (a hidden form field). Raises ConfigError if the
    text is malformed."""
    found: dict[TopicPartition, int] = {}
    for part in text.split():
        place, equals, offset = part.rpartition("=")
        topic, colon, partition = place.rpartition(":")
        if not (equals and colon and topic) or len(found) >= PARTITIONS_MAX:
            raise ConfigError("plan", "is malformed; show the preview again")
        index, to = whole_number("plan", partition), whole_number("plan", offset)
        if index < 0 or to < 0:
            raise ConfigError("plan", "has negative numbers; show the preview again")
        found[TopicPartition(topic, index)] = to
    if not found:
        raise ConfigError("plan", "is empty; show the preview again")
    return found


async def reset(request: PageRequest) -> PageView:
    """Commit the offsets that the preview of a reset has shown. Returns a redirect to the group's
    page."""
    name = request.path["group"]
    plan = parse_plan(request.form.get("plan", ""))
    refused = await request.admin.try_alter_group_offsets(name, plan)
    for at, refusal in refused.items():
        reason = refusal.message
        if refusal.code is ErrorCode.UNKNOWN_MEMBER_ID:
            reason = "the group has members; stop them first"
        raise RefusedError(refusal.code, f"{at}: {reason}")
    return PageView(
        context={},
        location=group_address(name),
        notice=f"The offsets of {len(plan)} partitions were set.",
    )


async def delete_offsets(request: PageRequest) -> PageView:
    """Delete the committed offsets of a group in one topic. Returns a redirect to the page of the
    group."""
    name, topic = request.path["group"], request.form.get("topic", "")
    partitions = [at for at in await committed_offsets(request.admin, name) if at.topic == topic]
    if not partitions:
        raise ConfigError("topic", f"is {topic!r}, in which the group has no committed offset")
    codes = await request.admin.delete_group_offsets(name, partitions)
    for at, refused in codes.items():
        if refused is not ErrorCode.NONE:
            raise RefusedError(refused, f"{at}: a member of the group reads the topic")
    return PageView(
        context={},
        location=group_address(name),
        notice=f"The offsets of {len(codes)} partitions were deleted.",
    )


async def delete(request: PageRequest) -> PageView:
    """Delete a group without members, with its committed offsets. Returns a redirect to the list of
    groups."""
    name = request.path["group"]
    await request.admin.delete_group(name)
    return PageView(context={}, location="/groups", notice=f"Group {name} was deleted.")


async def _preview(
    request: PageRequest, name: str, before: Mapping[TopicPartition, int]
) -> list[SheetPart]:
    try:
        rows = await planned(request.admin, before, request.query, request.now_ms)
    except (ConfigError, RefusedError) as error:
        return [NotePart(text=str(error), tone="bad")]
    return plan_parts(rows, "reset-group", {"group": name}, "Set these offsets")


def _plan_row(row: ResetRow) -> tuple[Cell, ...]:
    difference = row.difference
    if row.after != row.requested:
        effect = badge(f"limited: {row.requested} has no record", "warning")
    elif difference is None:
        effect = badge("first offset of the group here")
    elif difference < 0:
        effect = badge(f"{-difference} records are read again", "warning")
    elif difference > 0:
        effect = badge(f"{difference} records are skipped", "bad")
    else:
        effect = badge("unchanged", "good")
    return (
        code(row.at.topic, topic_address(row.at.topic)),
        count(row.at.partition),
        count(row.before),
        count(row.after),
        count(difference),
        effect,
    )


def deletions(
    name: str, topics: list[str], *, of_offsets: str, of_group: str, noun: str
) -> list[SheetPart]:
    """Return two forms: one deletes the offsets of a topic, and one deletes the whole group.
    `of_offsets` and `of_group` are the names of their actions."""
    values = {"group": name}
    offsets = FormPart(
        title="Delete offsets of a topic",
        button="Delete the offsets",
        action=of_offsets,
        values=values,
        fields=(
            FormField(
                name="topic",
                label="Topic",
                type="select" if len(topics) <= 100 else "text",
                options=tuple((one, one) for one in topics),
            ),
        ),
    )
    whole = FormPart(
        title=f"Delete the {noun}",
        button=f"Delete the {noun} and all its offsets",
        action=of_group,
        values=values,
    )
    return [*([offsets] if topics else []), whole]


PAGES = (
    Page(
        name="group-reset",
        path="/groups/{group}/reset",
        title="Reset a group",
        command="ottla group reset {group} --to-earliest",
        view=reset_page,
        actions=(
            Action(
                name="reset-group",
                path="/groups/{group}/reset",
                command="ottla group reset {group} --to-earliest",
                run=reset,
            ),
            Action(
                name="group-offset-delete",
                path="/groups/{group}/offsets/delete",
                command="ottla group offset-delete {group} --topic {topic}",
                run=delete_offsets,
                role=UserRole.ADMIN,
                confirms="group",
            ),
            Action(
                name="group-delete",
                path="/groups/{group}/delete",
                command="ottla group delete {group}",
                run=delete,
                role=UserRole.ADMIN,
                confirms="group",
            ),
        ),
    ),
)
