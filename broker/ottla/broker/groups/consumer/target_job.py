"""Target of a consumer group, computed from a snapshot in steps.  Pure.

A group may have tens of thousands of partitions and a thousand members, which takes more than one
event-loop iteration.  The group may change meanwhile.  The result therefore has the epoch of the
snapshot and is adapted to the current group.  Members that left are skipped.  A member that
returned under another id gets the target of its old id.  A member with a changed subscription gets
none of the topics that it unsubscribed.  All of these changes increment the group's epoch, so that
the next target corrects the result.
"""

from typing import NamedTuple
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.groups.consumer.assignors.subscription import (
    AssignedSubscription,
    Assignor,
)
from ottla.broker.groups.consumer.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, Subscription
from ottla.broker.groups.consumer.consumer_member import NOTHING, Assignment, ConsumerMember
from ottla.broker.groups.consumer.consumer_records import target_record
from ottla.metadata.image import MetadataImage
from ottla.node.network.steps import StepPace, Steps

PARTITIONS_PER_COUNT = 8
"""Partitions in a record that cost as much encoding time as one other operation."""


class _Change(NamedTuple):
    """Changed target of one member, and its record."""

    target: Assignment
    record: CoordinatorRecord


class TargetJob:
    """Computation of one group's target assignment, with its snapshot of the group and its
    result."""

    def __init__(self, group: ConsumerGroup, image: MetadataImage, assign: Assignor) -> None:
        self.group = group
        self.epoch = group.group_epoch
        self._image = image
        self._assign = assign
        self._members = dict(group.members)
        self._targets = dict(group.targets)
        self._topics = {one: group.topics_of(member) for one, member in self._first_of_each()}
        self._changes: dict[str, _Change] = {}
        self._renamed: dict[str, str] = {}

    def _first_of_each(self) -> list[tuple[Subscription, ConsumerMember]]:
        """Return one member for each distinct subscription."""
        return list({_subscription(one): one for one in self._members.values()}.items())

    def rename(self, old_id: str, new_id: str) -> None:
        """Rename a static member that joined under another id."""
        self._renamed[old_id] = new_id

    def steps(self) -> Steps[None]:
        """Compute the target of each member, and the records of changed targets."""
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
                    topic_ids=ids[_subscription(member)],
                    assigned=self._targets.get(member.member_id, NOTHING),
                )
                for member in self._members.values()
            },
            counts,
        )
        for member_id in self._members:
            target = targets.get(member_id, NOTHING)
            if self._targets.get(member_id) != target:
                record = target_record(self.group.group_id, member_id, target)
                self._changes[member_id] = _Change(target, record)
            partition_count = sum(map(len, target.values()))
            if pace.is_due(1 + len(target) + partition_count // PARTITIONS_PER_COUNT):
                yield

    def apply(self, changes: ConsumerChanges) -> None:
        """Apply the computed targets to the group, as far as they fit its current members."""
        group = self.group
        for old_id, (target, record) in self._changes.items():
            member_id = self._id_now(old_id)
            member = group.members.get(member_id)
            if member is None:
                continue
            if _subscription(member) != _subscription(self._members[old_id]):
                target, record = self._narrowed(member, target)
            elif member_id != old_id:
                record = target_record(group.group_id, member_id, target)
            changes.set_target(group, member_id, target, record)
        changes.finish_target(group, self.epoch)

    def _id_now(self, member_id: str) -> str:
        while member_id in self._renamed:
            member_id = self._renamed[member_id]
        return member_id

    def _narrowed(self, member: ConsumerMember, target: Assignment) -> _Change:
        """Return a computed target without the topics to which the member no longer subscribes."""
        topics = map(self._image.topic, self.group.topics_of(member))
        ids = {topic.id for topic in topics if topic is not None}
        narrowed = {topic_id: target[topic_id] for topic_id in target if topic_id in ids}
        return _Change(narrowed, target_record(self.group.group_id, member.member_id, narrowed))


def _subscription(member: ConsumerMember) -> Subscription:
    return member.subscribed_names, member.subscribed_regex
