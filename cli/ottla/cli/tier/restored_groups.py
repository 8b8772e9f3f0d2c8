"""Committed offsets of groups after a restore. Pure.

Groups commit offsets of records that may not be in the bucket yet. Such an offset is set to the end
of the restored log, from which the group continues with the records of the new cluster.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from ottla.broker.coordinators.find_coordinator import offsets_topic
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.groups.offsets.uploaded_offsets import (
    OffsetsObject,
    StoredOffset,
    newest_of,
    record_of,
)
from ottla.cli.common import counted
from ottla.cli.tier.internal_topics_driver import Entry, RestoredInternalTopic
from ottla.cli.tier.restore_plan import RestorePlan
from ottla.model.ids import NO_EPOCH, Epoch, NodeId
from ottla.model.settings.groups import GroupConfig

EPOCH_MAX = 1 << 30
"""Highest accepted leader epoch of a restored partition. An object in the bucket may state any
epoch, but later elections need higher ones."""


class RestoredGroups(NamedTuple):
    """Plan of the committed offsets to restore, sorted by group, with notes on changed and omitted
    offsets."""

    offsets: tuple[StoredOffset, ...]
    partition_count: int
    """Number of partitions of the restored topic `__consumer_offsets`."""
    epochs: dict[int, Epoch]
    """Leader epochs of the partitions of `__consumer_offsets` in the former cluster."""
    notes: tuple[str, ...]

    def rows(self) -> list[tuple[str, int, int]]:
        """Return each group with the numbers of its topics and partitions, sorted."""
        places: dict[str, list[str]] = {}
        for one in self.offsets:
            places.setdefault(one.group, []).append(one.topic)
        return [(group, len(set(own)), len(own)) for group, own in places.items()]

    def topic(
        self, *, topic_id: UUID, brokers: Sequence[NodeId], replication_factor: int
    ) -> RestoredInternalTopic:
        """Return the topic `__consumer_offsets` of the restored cluster."""
        entries: dict[int, list[Entry]] = {}
        for one in self.offsets:
            at = partition_of(one.group, self.partition_count)
            entries.setdefault(at, []).append(record_of(one))
        config = GroupConfig(
            offsets_topic_num_partitions=self.partition_count,
            offsets_topic_replication_factor=replication_factor,
        )
        return RestoredInternalTopic(offsets_topic(config), topic_id, brokers, entries, self.epochs)


def plan_groups(
    objects: Sequence[OffsetsObject], plan: RestorePlan, *, now_ms: int
) -> RestoredGroups:
    """Return the committed offsets of the restored topics. Offsets of other topics are omitted. The
    commit time is `now_ms`, so that the offsets do not expire at once."""
    topics = {topic.topic_id: topic for topic in plan.topics}
    newest = newest_of(objects)
    found: dict[tuple[str, UUID, int], StoredOffset] = {}
    late = others = 0
    for stored in sorted(
        (one for each in newest for one in each.offsets), key=lambda one: one.commit_timestamp_ms
    ):
        topic = topics.get(stored.topic_id)
        if topic is None or stored.partition >= topic.partition_count:
            others += 1
            continue
        log = topic.logs.get(stored.partition)
        end_offset = log.end_offset if log else 0
        one = stored._replace(topic=topic.name, commit_timestamp_ms=now_ms)
        if one.offset > end_offset:
            late += 1
            one = one._replace(offset=int(end_offset), leader_epoch=NO_EPOCH)
        found[one.group, one.topic_id, one.partition] = one
    notes = []
    if late:
        notes.append(
            f"{counted(late, 'offset')} of groups beyond the uploaded records: set to their end"
        )
    if others:
        notes.append(f"{counted(others, 'offset')} of groups in other topics: left out")
    if left_out := sum(one.left_out_count for one in newest):
        notes.append(
            f"{counted(left_out, 'offset')} of groups did not fit into the bucket's objects"
        )
    return RestoredGroups(
        tuple(sorted(found.values())),
        max((one.partition_count for one in newest), default=0),
        {one.partition: Epoch(min(one.leader_epoch, EPOCH_MAX)) for one in newest},
        tuple(notes),
    )
