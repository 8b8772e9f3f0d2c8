"""`ottla tier status`: shows how far tiered topics are copied, and which records only the object
store has."""

import argparse
from typing import NamedTuple

from ottla.cli.common import print_json
from ottla.cli.main import OK
from ottla.cli.tables import print_table
from ottla.cli.terminal import note
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.insight.facts.survey_driver import survey_nodes
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.tier import PROBLEM_PREFIX
from ottla.wire.offset_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED

IS_TIERED = "remote.storage.enable"
TOPICS_PER_REQUEST = 500
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


class TieredPartition(NamedTuple):
    """Start offset, local start, last copied offset and end offset of a tiered partition."""

    at: TopicPartition
    start_offset: int
    local_start_offset: int
    copied_offset: int
    """Last offset that is copied to the object store, or -1 if none is known."""
    end_offset: int

    @property
    def only_copied(self) -> int:
        """Number of offsets whose records only the object store has."""
        return max(0, self.local_start_offset - self.start_offset)

    @property
    def not_copied(self) -> int:
        """Number of offsets whose records only the brokers have."""
        return max(0, self.end_offset - max(self.copied_offset + 1, self.start_offset))

    def cells(self) -> tuple[object, ...]:
        """Return the cells of the partition's row in a table."""
        return (
            f"{self.at.topic}:{self.at.partition}",
            self.start_offset,
            self.local_start_offset,
            None if self.copied_offset < 0 else self.copied_offset,
            self.end_offset,
            self.only_copied,
            self.not_copied,
        )


async def status(admin: Admin, arguments: argparse.Namespace) -> int:
    """`ottla tier status`: print the offsets of tiered partitions. Returns the exit code."""
    topics = arguments.topic or await admin.list_topics()
    tiered = await tiered_topics(admin, topics)
    for name in arguments.topic:
        if name not in tiered:
            note(f"topic {name} is not tiered: set {IS_TIERED}=true with 'ottla config set'")
    for problem in await problems_of(admin):
        note(problem)
    rows = [row for name in tiered for row in await partitions_of(admin, name)]
    if arguments.format == "json":
        print_json([dict(zip(KEYS, row.cells(), strict=True)) for row in rows])
    elif rows:
        print_table(COLUMNS, [row.cells() for row in rows])
    else:
        create = f"ottla topic create NAME --config {IS_TIERED}=true"
        note(f"no topic is tiered; create one with '{create}'")
    return OK


async def tiered_topics(admin: Admin, names: list[str]) -> list[str]:
    """Return the names of those topics that are tiered, sorted."""
    found = []
    for at in range(0, len(names), TOPICS_PER_REQUEST):
        resources = [
            ConfigResource(ConfigKind.TOPIC, name) for name in names[at : at + TOPICS_PER_REQUEST]
        ]
        outcomes = await admin.try_describe_configs(resources, keys=[IS_TIERED])
        for resource, outcome in outcomes.items():
            if isinstance(outcome, RefusedError) or IS_TIERED not in outcome:
                continue
            if outcome[IS_TIERED].value == "true":
                found.append(resource.name)
    return sorted(found)


async def problems_of(admin: Admin) -> list[str]:
    """Return the problems with tiered storage that the brokers report, one sentence each."""
    try:
        brokers = (await survey_nodes(admin)).brokers
    except RefusedError:
        return []
    return [
        f"broker {broker.id}: {problem}"
        for broker in brokers
        for problem in broker.problems
        if problem.startswith(PROBLEM_PREFIX)
    ]


async def partitions_of(admin: Admin, topic: str) -> list[TieredPartition]:
    """Return the offsets of each partition of a tiered topic."""
    described = await admin.describe_topic(topic)
    places = [TopicPartition(topic, one.partition) for one in described.partitions]
    offsets = [
        await admin.list_offsets(dict.fromkeys(places, special))
        for special in (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, LATEST)
    ]
    return [
        TieredPartition(at, *(int(found[at].offset) for found in offsets)) for at in sorted(places)
    ]
