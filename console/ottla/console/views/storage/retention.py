"""Page of topics that keep records longer than their retention time, because a record's timestamp
is in the future."""

import trio

from ottla.console.absences import Absence, NeededRight, absence_of
from ottla.console.listing import listing
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    NotePart,
    SheetPart,
    code,
    count,
    listed,
    sheet_view,
    text,
    when,
)
from ottla.console.views.groups.group_parts import topic_address
from ottla.insight.facts.topics.retention_driver import topic_ages
from ottla.insight.rules.retention_findings import RetentionFinding, retention_findings
from ottla.model.errors import OttlaError

CHECK_S = 20.0
"""Maximum seconds for reading the retention of all topics."""
COLUMNS = (
    Column(title="Topic", key="topic"),
    Column(title="Partitions", key="partitions", is_number=True),
    Column(title="Newest timestamp", key="newest"),
    Column(title="What to do"),
)


async def retention(request: PageRequest) -> PageView:
    """Return the page of topics whose retention by age is delayed."""
    found: list[RetentionFinding] = []
    topic_count = 0
    absence: Absence | None = None
    try:
        with trio.move_on_after(CHECK_S) as limit:
            async for some in topic_ages(request.admin):
                topic_count += len(some)
                found += retention_findings(some, request.now_ms)
    except OttlaError as error:
        needs = NeededRight(operation="describe-configs", resource="topic")
        absence = absence_of("retention of topics", error, needs)
    parts: list[SheetPart] = []
    if absence is not None:
        parts.append(absence.part(request.user))
    if limit.cancelled_caught:
        parts.append(
            NotePart(
                text=f"{topic_count:,} topics were examined in {CHECK_S:g} s; the others were not.",
                tone="warning",
                command="ottla doctor retention",
            )
        )
    page = listing(
        found,
        request.query,
        text_of=lambda one: one.topic,
        sorts={
            "topic": lambda one: one.topic,
            "partitions": lambda one: len(one.partitions),
            "newest": lambda one: one.newest_ms,
        },
    )
    empty = f"No record of {topic_count:,} topics is ahead of the clock."
    parts.append(
        listed(
            "Topics that keep records too long",
            page,
            COLUMNS,
            map(_row, page.rows),
            empty="No finding follows from the topics that could be read." if parts else empty,
            search_label="Search topics",
        )
    )
    return sheet_view(
        "Retention",
        parts,
        lead="Records are deleted by the newest timestamp of their segment. A producer whose clock "
        "is ahead delays that.",
    )


def _row(one: RetentionFinding) -> tuple[Cell, ...]:
    return (
        code(one.topic, topic_address(one.topic)),
        count(len(one.partitions)),
        when(one.newest_ms),
        text(one.cure),
    )


PAGES = (
    Page(
        name="retention",
        path="/retention",
        title="Retention",
        command="ottla doctor retention",
        view=retention,
        section="Data",
    ),
)
