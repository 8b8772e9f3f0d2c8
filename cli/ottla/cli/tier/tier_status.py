"""`ottla tier status`: shows the offset up to which each tiered partition is copied, and the
records that are only in the object store."""

import argparse

from ottla.cli.common import print_json
from ottla.cli.main import OK
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.insight.facts.survey_driver import survey_nodes
from ottla.insight.facts.topics.tier_driver import (
    IS_TIERED,
    TieredPartition,
    tier_problems,
    tiered_partitions,
    tiered_topics,
)
from ottla.model.errors import RefusedError

COLUMNS = ("PARTITION", "START", "LOCAL-START", "COPIED-TO", "END", "ONLY-COPIED", "NOT-COPIED")
KEYS = (
    "partition",
    "start_offset",
    "local_start_offset",
    "copied_offset",
    "end_offset",
    "only_copied",
    "not_copied",
)


def cells(row: TieredPartition) -> tuple[object, ...]:
    """Return the cells of a partition's row in a table."""
    return (
        f"{row.at.topic}:{row.at.partition}",
        row.start_offset,
        row.local_start_offset,
        None if row.copied_offset < 0 else row.copied_offset,
        row.end_offset,
        row.only_copied,
        row.not_copied,
    )


async def status(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla tier status`: print the offsets of tiered partitions. Returns the exit code."""
    topics = arguments.topic or await admin.list_topics()
    tiered = await tiered_topics(admin, topics)
    for name in arguments.topic:
        if name not in tiered:
            note(f"topic {name} is not tiered: set {IS_TIERED}=true with 'ottla config set'")
    for problem in await _problems_of(admin):
        note(problem)
    rows = [row for name in tiered for row in await tiered_partitions(admin, name)]
    if arguments.format == "json":
        print_json([dict(zip(KEYS, cells(row), strict=True)) for row in rows])
    elif rows:
        print_table(COLUMNS, [cells(row) for row in rows])
    else:
        create = f"ottla topic create NAME --config {IS_TIERED}=true"
        note(f"no topic is tiered; create one with '{create}'")
    return OK


async def _problems_of(admin: Admin) -> list[str]:
    try:
        return tier_problems((await survey_nodes(admin)).brokers)
    except RefusedError:
        return []
