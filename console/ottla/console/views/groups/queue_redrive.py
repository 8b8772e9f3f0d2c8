"""Page for moving dead letters of a share group back to the partitions of their records. It shows
the number of letters before the move."""

import shlex
from collections.abc import Mapping

import trio

from ottla.client.admin import Admin
from ottla.console.absences import Absence, NeededRight, attempt
from ottla.console.form_values import form_number
from ottla.console.page_types import Action, Page, PageRequest, PageView
from ottla.console.sheets import (
    Column,
    FormField,
    FormPart,
    NotePart,
    SheetPart,
    TablePart,
    code,
    count,
    sheet_view,
    text,
)
from ottla.console.views.groups.group_parts import topic_address
from ottla.console.views.groups.queues import queue_address, queue_links
from ottla.console.views.long_actions import running_notes, start_long
from ottla.insight.changes.progress import Report, ignore
from ottla.insight.changes.redrive_driver import (
    Letters,
    Redrive,
    RedriveChoice,
    Tally,
    letters_of,
    move_letters,
)
from ottla.insight.changes.redrive_letters import LeftReason, LetterCause
from ottla.model.amounts import counted
from ottla.model.errors import ConfigError, RefusedError
from ottla.model.points_in_time import parse_time

COUNT_S = 15.0
"""Maximum seconds for counting dead letters before they are moved."""
PLACES_MAX = 100
CAUSES = (("", "all"), ("rejected", "rejected"), ("exhausted", "deliveries exhausted"))
FIELDS = ("letters", "topic", "cause", "since", "until", "limit", "redrives")
OPTIONS = {
    "letters": "--dead-letter-topic",
    "topic": "--topic",
    "cause": "--cause",
    "since": "--since",
    "until": "--until",
    "limit": "--limit",
    "redrives": "--redrives-max",
}
"""Options of `ottla share redrive`, by the name of the form's field."""


async def redrive_page(request: PageRequest) -> PageView:
    """Return the page for moving dead letters, with the form and the number of letters to move."""
    group = request.path["group"]
    parts: list[SheetPart] = [
        queue_links(group, "Dead letters"),
        *running_notes(request, redrive_address(group)),
        _form(group, request.query),
    ]
    if request.query.get("show"):
        parts += await _preview(request, group)
    return sheet_view(
        group,
        parts,
        lead="A dead letter is a record that the members rejected, or whose deliveries were "
        "exhausted. The members get it again after it was moved back.",
        command=_command(group, request.query, "--dry-run"),
    )


def redrive_address(group: str) -> str:
    """Return the address of the page for moving the dead letters of a share group."""
    return f"{queue_address(group)}/redrive"


async def redrive(request: PageRequest) -> PageView:
    """Start to move the dead letters of a share group back to the partitions from which they came.
    Returns a redirect to the progress page of this background action."""
    group = request.path["group"]
    choice = choice_of(group, request.form, request.now_ms)
    letters = await letters_of(request.admin, choice)

    async def work(admin: Admin, report: Report) -> str:
        async with request.open_producer(letters.producer_config) as producer:
            tally = await move_letters(admin, letters, producer, report, report)
        moved = counted(tally.moved_count, "dead letter")
        refused = tally.left[LeftReason.REFUSED]
        end = f", and {counted(refused, 'record')} refused by the broker" if refused else ""
        return f"{moved} of {letters.filter.letter_topic} moved{end}"

    return start_long(
        request,
        work,
        title=f"Redrive dead letters of {group}",
        about=redrive_address(group),
        command=_command(group, request.form, "--yes"),
    )


def choice_of(group: str, fields: Mapping[str, str], now_ms: int) -> RedriveChoice:
    """Return the selection of dead letters that the fields of a form describe. Raises ConfigError
    if a field is invalid."""
    given = {name: fields.get(name, "").strip() for name in FIELDS}
    cause = given["cause"]
    if cause and cause not in dict(CAUSES):
        raise ConfigError("cause", f"is {cause[:40]!r}; it must be rejected or exhausted")
    return RedriveChoice(
        group=group,
        dead_letter_topic=given["letters"],
        cause=LetterCause(cause) if cause else None,
        places={given["topic"]: None} if given["topic"] else None,
        since_ms=parse_time("since", given["since"], now_ms) if given["since"] else None,
        until_ms=parse_time("until", given["until"], now_ms) if given["until"] else None,
        limit=form_number("limit", given["limit"]) if given["limit"] else None,
        redrives_max=form_number("redrives", given["redrives"]) if given["redrives"] else 3,
    )


async def _preview(request: PageRequest, group: str) -> list[SheetPart]:
    needs = NeededRight(operation="read", resource="topic")
    try:
        choice = choice_of(group, request.query, request.now_ms)
        letters = await attempt("dead letters", letters_of(request.admin, choice), needs)
    except ConfigError as error:
        return [NotePart(text=str(error), tone="bad")]
    if isinstance(letters, Absence):
        return [letters.part(request.user)]
    pass_ = Redrive(request.admin, letters, None, ignore, ignore)
    try:
        with trio.move_on_after(COUNT_S) as limit:
            await pass_.run()
    except RefusedError as refusal:
        return [NotePart(text=refusal.message, tone="bad")]
    return _counts(group, letters, pass_.tally, request, is_complete=not limit.cancelled_caught)


def _counts(
    group: str, letters: Letters, tally: Tally, request: PageRequest, *, is_complete: bool
) -> list[SheetPart]:
    rows = tally.rows()
    parts: list[SheetPart] = []
    if not is_complete:
        said = f"There are more: {COUNT_S:g} s were not enough to count all dead letters."
        parts.append(NotePart(text=said, tone="warning"))
    parts.append(
        TablePart(
            title=f"Letters of {letters.filter.letter_topic} that are moved (dry run)",
            columns=(
                Column(title="To topic"),
                Column(title="Partition", is_number=True),
                Column(title="Records", is_number=True),
                Column(title="Rejected", is_number=True),
                Column(title="Exhausted", is_number=True),
            ),
            rows=tuple(
                (code(topic, topic_address(topic)), *map(count, numbers))
                for topic, *numbers in rows[:PLACES_MAX]
            ),
            empty="No dead letter has to be moved.",
        )
    )
    left = sorted(tally.left.items())
    if left:
        parts.append(
            TablePart(
                title="Records that stay in the dead letter topic",
                columns=(Column(title="Reason"), Column(title="Records", is_number=True)),
                rows=tuple((text(str(reason)), count(number)) for reason, number in left),
            )
        )
    if rows or not is_complete:
        parts.append(
            FormPart(
                title="Move these letters",
                button="Move the letters back",
                action="queue-redrive-start",
                values={"group": group},
                fields=tuple(
                    FormField(name=name, label="", type="hidden", value=request.query[name])
                    for name in FIELDS
                    if request.query.get(name)
                ),
                hint=f"{counted(tally.moved_count, 'record')} or more are written again. Letters "
                "that are moved stay in their topic, and are not moved twice. A cancelled move "
                "can be started again.",
            )
        )
    return parts


def _form(group: str, query: Mapping[str, str]) -> FormPart:
    def field(name: str, label: str, hint: str = "", kind: str = "text") -> FormField:
        return FormField(name=name, label=label, value=query.get(name, ""), hint=hint, type=kind)

    return FormPart(
        title="Move dead letters back",
        button="Count the letters (dry run)",
        href=redrive_address(group),
        fields=(
            FormField(name="show", label="", type="hidden", value="yes"),
            field("letters", "Topic of the dead letters", "empty: that of the group's settings"),
            field("topic", "Only letters for records of this topic"),
            FormField(
                name="cause",
                label="Only letters with this cause",
                type="select",
                options=CAUSES,
                value=query.get("cause", ""),
            ),
            field("since", "Only letters from this time on", "such as 2026-01-31 or 2h"),
            field("until", "Only letters before this time"),
            field("limit", "Number of letters to move", "empty: all", "number"),
            field("redrives", "Number of times that one record may be moved", "empty: 3", "number"),
        ),
    )


def _command(group: str, fields: Mapping[str, str], end: str) -> str:
    words = ["ottla", "share", "redrive", group]
    for name, option in OPTIONS.items():
        value = fields.get(name, "").strip()
        if value:
            words += [option, value]
    return shlex.join([*words, end])


PAGES = (
    Page(
        name="queue-redrive",
        path="/queues/{group}/redrive",
        title="Dead letters",
        command="ottla share redrive {group} --dry-run",
        view=redrive_page,
        actions=(
            Action(
                name="queue-redrive-start",
                path="/queues/{group}/redrive",
                command="ottla share redrive {group} --yes",
                run=redrive,
            ),
        ),
    ),
)
