"""Computes the target assignment of a group from a snapshot, in steps. Pure.

A group may have tens of thousands of partitions and a thousand members, which takes more than one
event-loop iteration. The group may change meanwhile. The result has the epoch of the snapshot, and
is adapted to the group's state at the end of the computation. Members that left are skipped. A
member that returned under another id gets the target of its old id. A member with a changed
subscription does not get topics that it unsubscribed. All of these changes increment the group's
epoch, so that the next target corrects the result.
"""

from collections.abc import Iterable
from typing import Generic, NamedTuple
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.groups.consumer.assigned_changes import AssignedChanges, AssignedGroupT
from ottla.broker.groups.consumer.assigned_group import MemberT, Subscription
from ottla.broker.groups.consumer.assignors.subscription import (
    NO_RACKS,
    AssignedSubscription,
    Assignor,
    PartitionRacks,
    Racks,
)
from ottla.broker.groups.consumer.consumer_member import NOTHING, Assignment
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId
from ottla.node.network.steps import StepPace, Steps

PARTITIONS_PER_COUNT = 8
"""Number of partitions in the record of a target assignment that are encoded in the time of one
unit of work."""


class _Change(NamedTuple):
    """Changed target assignment of one group member, and its encoded record."""

    target: Assignment
    record: CoordinatorRecord


class TargetJob(Generic[AssignedGroupT, MemberT]):
    """Computation of one group's target assignment, with its snapshot of the group and its
    result."""

    def __init__(
        self,
        group: AssignedGroupT,
        image: MetadataImage,
        assign: Assignor,
        changes: AssignedChanges[AssignedGroupT, MemberT],
    ) -> None:
        self.group = group
        self._group_changes = changes
        self.epoch = group.group_epoch
        self._image = image
        self._assign = assign
        self._members: dict[str, MemberT] = dict(group.members)
        self._targets = dict(group.targets)
        self._topics = {one: group.topics_of(member) for one, member in self._first_of_each()}
        self._changes: dict[str, _Change] = {}
        self._renamed: dict[str, str] = {}

    def _first_of_each(self) -> list[tuple[Subscription, MemberT]]:
        """Return one group member for each distinct subscription in the snapshot of the group."""
        return list({one.subscription: one for one in self._members.values()}.items())

    def rename(self, old_id: str, new_id: str) -> None:
        """Use the new member id of a static member that joined again under another id."""
        self._renamed[old_id] = new_id

    def steps(self) -> Steps[None]:
        """Compute the target assignment of each group member in steps, and the records of changed
        targets."""
        pace = StepPace()
        ids: dict[Subscription, frozenset[UUID]] = {}
        counts: dict[UUID, int] = {}
        for subscription, names in self._topics.items():
            found = []
            for name in names:
                topic = self._image.topic(name)
                if topic is not None:
                    found.append(topic.id)
                    counts[topic.id] = len(topic.partitions)
                if pace.is_due():
                    yield
            ids[subscription] = frozenset(found)
        targets = yield from self._assign(
            {
                member.member_id: AssignedSubscription(
                    instance_id=member.instance_id,
                    rack=member.rack_id,
                    topic_ids=ids[member.subscription],
                    assigned=self._targets.get(member.member_id, NOTHING),
                )
                for member in self._members.values()
            },
            counts,
            (yield from self._racks(counts, pace)),
        )
        for member_id in self._members:
            target = targets.get(member_id, NOTHING)
            if self._targets.get(member_id) != target:
                record = self._group_changes.target_record(self.group.group_id, member_id, target)
                self._changes[member_id] = _Change(target, record)
            partition_count = sum(map(len, target.values()))
            if pace.is_due(1 + len(target) + partition_count // PARTITIONS_PER_COUNT):
                yield

    def _racks(self, topic_ids: Iterable[UUID], pace: StepPace) -> Steps[PartitionRacks]:
        """Return the racks of each partition's replicas by topic id, or an empty mapping if no
        group member has a rack."""
        if not any(member.rack_id for member in self._members.values()):
            return NO_RACKS
        brokers = self._image.brokers
        known: dict[tuple[NodeId, ...], Racks] = {}
        found = {}
        for topic_id in topic_ids:
            racks: list[Racks] = []
            partitions = self._image.topics[topic_id].partitions
            for index in range(len(partitions)):
                replicas = partitions[index].replicas
                if replicas not in known:
                    registered = (brokers.get(each) for each in replicas)
                    known[replicas] = frozenset(
                        broker.rack for broker in registered if broker and broker.rack
                    )
                racks.append(known[replicas])
                if pace.is_due():
                    yield
            found[topic_id] = racks
        return found

    def apply(self) -> None:
        """Apply the computed target assignments to the group. Members that have left, and topics
        that a member has unsubscribed, are left out."""
        group, changes = self.group, self._group_changes
        for old_id, (target, record) in self._changes.items():
            member_id = self._id_now(old_id)
            member = group.members.get(member_id)
            if member is None:
                continue
            if member.subscription != self._members[old_id].subscription:
                target, record = self._narrowed(member, target)
            elif member_id != old_id:
                record = changes.target_record(group.group_id, member_id, target)
            changes.set_target(group, member_id, target, record)
        changes.finish_target(group, self.epoch)

    def _id_now(self, member_id: str) -> str:
        while member_id in self._renamed:
            member_id = self._renamed[member_id]
        return member_id

    def _narrowed(self, member: MemberT, target: Assignment) -> _Change:
        """Return a computed target assignment without the topics to which the member no longer
        subscribes."""
        topics = map(self._image.topic, self.group.topics_of(member))
        ids = {topic.id for topic in topics if topic is not None}
        narrowed = {topic_id: target[topic_id] for topic_id in target if topic_id in ids}
        record = self._group_changes.target_record(self.group.group_id, member.member_id, narrowed)
        return _Change(narrowed, record)
