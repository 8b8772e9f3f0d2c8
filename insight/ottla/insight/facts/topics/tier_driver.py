"""Tiered topics of a cluster: how far their partitions are copied to the object store, and the
problems with it."""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.insight.facts.survey_driver import SurveyedBroker
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.resources import ConfigKind
from ottla.model.settings.storage.tier import PROBLEM_PREFIX
from ottla.wire.offset_timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED

IS_TIERED = "remote.storage.enable"
"""Key of the topic setting that enables tiered storage."""
TOPICS_PER_REQUEST = 500
"""Number of topics whose settings one request reads. A larger number makes long responses."""


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


def tier_problems(brokers: Sequence[SurveyedBroker]) -> list[str]:
    """Return the problems with tiered storage that brokers report, one sentence each."""
    return [
        f"broker {broker.id}: {problem}"
        for broker in brokers
        for problem in broker.problems
        if problem.startswith(PROBLEM_PREFIX)
    ]


async def tiered_topics(admin: Admin, names: list[str]) -> list[str]:
    """Return the sorted names of the tiered topics."""
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


async def tiered_partitions(admin: Admin, topic: str) -> list[TieredPartition]:
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
