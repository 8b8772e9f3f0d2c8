"""Metrics of the groups that this broker coordinates.  Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator

from ottla.broker.groups.classic.classic_group import CLASSIC, GroupState
from ottla.broker.groups.consumer.consumer_group import ConsumerGroupState
from ottla.broker.groups.shard import GroupShard
from ottla.telemetry.metrics.instruments import Family
from ottla.telemetry.metrics.kafka_families import gauge, gauges


def group_families(shards: Iterable[GroupShard]) -> Iterator[Family]:
    """Yield the number of groups by protocol and state, and the number of committed offsets."""
    shards = list(shards)
    classic: Counter[str] = Counter()
    consumer: Counter[str] = Counter()
    for shard in shards:
        for group in shard.groups.values():
            states = classic if group.type == CLASSIC else consumer
            states[group.state_name] += 1
    manager = "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups"
    yield gauge(manager, "Groups of both protocols.", classic.total() + consumer.total())
    for state in GroupState:
        yield gauge(
            f"{manager}{state.value}", f"Classic groups: {state.value}.", classic[state.value]
        )
    yield gauge(
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
        "Committed offsets.",
        sum(len(shard.offsets) for shard in shards),
    )
    bean = "kafka.coordinator.group:type=group-coordinator-metrics,attribute="
    yield gauges(
        f"{bean}group-count",
        "Groups by protocol.",
        ("protocol",),
        (
            (("classic",), classic.total()),
            (("consumer",), consumer.total()),
        ),
    )
    yield gauges(
        f"{bean}consumer-group-count",
        "Groups of the consumer protocol by state.",
        ("state",),
        [((state.value.lower(),), consumer[state.value]) for state in ConsumerGroupState],
    )
