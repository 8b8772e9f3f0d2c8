"""Page of tiered storage: the offsets up to which topics are copied to the object store, copies to
make and deleted copies, and problems."""

import trio

from ottla.console.absences import CLUSTER_DESCRIBE, Absence, NeededRight, absence_of
from ottla.console.listing import listing
from ottla.console.page_types import Page, PageRequest, PageView
from ottla.console.sheets import (
    Cell,
    Column,
    NotePart,
    SheetPart,
    TablePart,
    code,
    count,
    listed,
    sheet_view,
    size,
)
from ottla.console.views.groups.group_parts import topic_address
from ottla.insight.facts.survey_driver import SurveyedBroker, survey_nodes
from ottla.insight.facts.topics.tier_driver import (
    TieredPartition,
    tier_problems,
    tiered_partitions,
    tiered_topics,
)
from ottla.insight.rules.disk import (
    TIER_BYTES,
    TIER_COPY_LIMIT,
    TIER_COPY_RATE,
    TIER_FETCH_LIMIT,
    TIER_FETCH_RATE,
    TIER_LAG_BYTES,
    TIER_RELIEF_BYTES,
    TIER_SEGMENTS,
)
from ottla.model.errors import OttlaError

TOPICS_S = 10.0
"""Maximum seconds for finding the tiered topics, and for reading the offsets of a page."""
BROKERS_MAX = 100
TOPIC_COLUMNS = (
    Column(title="Topic", key="topic"),
    Column(title="Partitions", is_number=True),
    Column(title="Records only in the object store", is_number=True),
    Column(title="Records not copied yet", is_number=True),
)


async def tiers(request: PageRequest) -> PageView:
    """Return the page that shows the tiered storage of brokers and topics."""
    parts: list[SheetPart] = []
    try:
        brokers = (await survey_nodes(request.admin)).brokers
    except OttlaError as error:
        absence = absence_of("the state of brokers", error, CLUSTER_DESCRIBE)
        parts.append(absence.part(request.user))
    else:
        parts += [NotePart(text=one, tone="warning") for one in tier_problems(brokers)]
        parts.append(_broker_table(brokers))
        parts += _limits(brokers)
    parts += await _topics(request)
    return sheet_view(
        "Tiers",
        parts,
        lead="Brokers copy closed segments of tiered topics to an object store. Records that only "
        "the object store has are read there.",
    )


def _broker_table(brokers: list[SurveyedBroker]) -> TablePart:
    tiered = [one for one in brokers if TIER_BYTES in one.metrics]
    return TablePart(
        title="Object store, by leading broker",
        columns=(
            Column(title="Broker", is_number=True),
            Column(title="Copied", is_number=True),
            Column(title="Segments", is_number=True),
            Column(title="Waits to be copied", is_number=True),
            Column(title="Deleted for free space", is_number=True),
            Column(title="Failures", is_number=True),
        ),
        rows=tuple(map(_broker_row, tiered[:BROKERS_MAX])),
        empty="No broker has tiered storage.",
        empty_command="ottla up --tier file:///srv/tier",
    )


def _broker_row(broker: SurveyedBroker) -> tuple[Cell, ...]:
    metrics = broker.metrics
    return (
        count(int(broker.id)),
        size(metrics[TIER_BYTES]),
        count(metrics.get(TIER_SEGMENTS, 0)),
        size(metrics.get(TIER_LAG_BYTES, 0)),
        size(metrics.get(TIER_RELIEF_BYTES)),
        count(metrics.get("tier.failures", 0)),
    )


def _limits(brokers: list[SurveyedBroker]) -> list[SheetPart]:
    """Return the table of the two bandwidth limits, or no table if no broker has a limit."""
    limited = [
        one for one in brokers if TIER_COPY_LIMIT in one.metrics or TIER_FETCH_LIMIT in one.metrics
    ]
    if not limited:
        return []
    table = TablePart(
        title="Limits of the bandwidth, a second",
        columns=(
            Column(title="Broker", is_number=True),
            Column(title="Copied", is_number=True),
            Column(title="Limit of copies", is_number=True),
            Column(title="Read", is_number=True),
            Column(title="Limit of reads", is_number=True),
        ),
        rows=tuple(map(_limit_row, limited[:BROKERS_MAX])),
    )
    return [table]


def _limit_row(broker: SurveyedBroker) -> tuple[Cell, ...]:
    names = (TIER_COPY_RATE, TIER_COPY_LIMIT, TIER_FETCH_RATE, TIER_FETCH_LIMIT)
    return (count(int(broker.id)), *(size(broker.metrics.get(name)) for name in names))


async def _topics(request: PageRequest) -> list[SheetPart]:
    """Return the table of tiered topics. Offsets are read only for topics that the page shows."""
    found: list[str] = []
    offsets: dict[str, list[TieredPartition]] = {}
    absence: Absence | None = None
    needs = NeededRight(operation="describe-configs", resource="topic")
    try:
        with trio.fail_after(TOPICS_S):
            found = await tiered_topics(request.admin, await request.admin.list_topics())
    except (OttlaError, trio.TooSlowError) as error:
        absence = absence_of("tiered topics", error, needs)
    page = listing(
        found, request.query, text_of=lambda name: name, sorts={"topic": lambda name: name}
    )
    try:
        with trio.fail_after(TOPICS_S):
            for name in page.rows:
                offsets[name] = await tiered_partitions(request.admin, name)
    except (OttlaError, trio.TooSlowError) as error:
        absence = absence_of("offsets of topics", error, needs)
    table = listed(
        "Tiered topics",
        page,
        TOPIC_COLUMNS,
        (_topic_row(name, offsets.get(name)) for name in page.rows),
        empty="No topic is tiered.",
        empty_command="ottla topic create TOPIC --config remote.storage.enable=true",
        search_label="Search topics",
    )
    return [table] if absence is None else [absence.part(request.user), table]


def _topic_row(name: str, partitions: list[TieredPartition] | None) -> tuple[Cell, ...]:
    known = partitions or []
    return (
        code(name, topic_address(name)),
        count(None if partitions is None else len(known)),
        count(None if partitions is None else sum(one.only_copied for one in known)),
        count(None if partitions is None else sum(one.not_copied for one in known)),
    )


PAGES = (
    Page(
        name="tiers",
        path="/tiers",
        title="Tiers",
        command="ottla tier status",
        view=tiers,
        section="Data",
    ),
)
