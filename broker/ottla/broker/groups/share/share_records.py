"""Converts a share group to its records and back. The records have the kinds 10 to 15 in Kafka's
format. Pure.

    10  description of a member             13  target of one member
    11  group epoch, hash of its topics     14  current assignment of a member
    12  epoch of the target assignment      15  partitions by the progress of their state

A record with a null value deletes the entity in its key. A compacted log may contain the records of
a group in any order, so each record creates its group and member if they do not exist.
"""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord, MemberClient
from ottla.broker.groups.consumer.consumer_member import NOTHING, Assignment, assignment_of
from ottla.broker.groups.group_records import Key, Value, record
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.share.share_member import ShareMember
from ottla.broker.groups.share.share_partitions import SharePartitions, TopicStates
from ottla.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey as CurrentKey,
)
from ottla.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue as CurrentValue,
)
from ottla.wire.messages.share_group_current_member_assignment_value import (
    TopicPartitions as CurrentPartitions,
)
from ottla.wire.messages.share_group_member_metadata_key import (
    ShareGroupMemberMetadataKey as MemberKey,
)
from ottla.wire.messages.share_group_member_metadata_value import (
    ShareGroupMemberMetadataValue as MemberValue,
)
from ottla.wire.messages.share_group_metadata_key import ShareGroupMetadataKey as GroupKey
from ottla.wire.messages.share_group_metadata_value import ShareGroupMetadataValue as GroupValue
from ottla.wire.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey as PartitionsKey,
)
from ottla.wire.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue as PartitionsValue,
)
from ottla.wire.messages.share_group_state_partition_metadata_value import (
    TopicInfo,
    TopicPartitionsInfo,
)
from ottla.wire.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey as TargetKey,
)
from ottla.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue as TargetValue,
)
from ottla.wire.messages.share_group_target_assignment_member_value import (
    TopicPartition as TargetPartitions,
)
from ottla.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey as TargetEpochKey,
)
from ottla.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue as TargetEpochValue,
)

SHARE_GROUP_KEYS = (
    MemberKey,
    GroupKey,
    TargetEpochKey,
    TargetKey,
    CurrentKey,
    PartitionsKey,
)

# ---- writing


def epoch_record(group: ShareGroup) -> CoordinatorRecord:
    """Return the record that stores a share group's epoch."""
    value = GroupValue(epoch=group.group_epoch, metadata_hash=group.metadata_hash)
    return record(GroupKey(group_id=group.group_id), value)


def target_epoch_record(group: ShareGroup) -> CoordinatorRecord:
    """Return the record that stores the epoch of a share group's target assignment."""
    value = TargetEpochValue(assignment_epoch=group.target_epoch)
    return record(TargetEpochKey(group_id=group.group_id), value)


def partitions_record(group: ShareGroup) -> CoordinatorRecord:
    """Return the record that stores a share group's partitions by the progress of their durable
    state."""
    partitions = group.partitions
    value = PartitionsValue(
        initializing_topics=_topics(partitions.initializing),
        initialized_topics=_topics(partitions.initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=partitions.deleting[topic_id])
            for topic_id in sorted(partitions.deleting)
        ],
    )
    return record(PartitionsKey(group_id=group.group_id), value)


def group_tombstones(group_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones for the records of a share group without members."""
    return [
        record(PartitionsKey(group_id=group_id), None),
        record(TargetEpochKey(group_id=group_id), None),
        record(GroupKey(group_id=group_id), None),
    ]


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record that stores the description of a share group member."""
    value = MemberValue(
        rack_id=member.rack_id,
        client_id=member.client.id,
        client_host=member.client.host,
        subscribed_topic_names=sorted(member.subscribed_names),
    )
    return record(MemberKey(group_id=group_id, member_id=member.member_id), value)


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record that stores the current assignment of a share group member."""
    value = CurrentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        assigned_partitions=[
            CurrentPartitions(topic_id=topic_id, partitions=sorted(member.assigned[topic_id]))
            for topic_id in sorted(member.assigned)
        ],
    )
    return record(CurrentKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record that stores the target assignment of a share group member."""
    value = TargetValue(
        topic_partitions=[
            TargetPartitions(topic_id=topic_id, partitions=sorted(target[topic_id]))
            for topic_id in sorted(target)
        ]
    )
    return record(TargetKey(group_id=group_id, member_id=member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones for all records of a share group member, in the order that Kafka's
    coordinator requires."""
    return [
        record(CurrentKey(group_id=group_id, member_id=member_id), None),
        record(TargetKey(group_id=group_id, member_id=member_id), None),
        record(MemberKey(group_id=group_id, member_id=member_id), None),
    ]


def _topics(states: Mapping[UUID, TopicStates]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(
            topic_id=topic_id,
            topic_name=states[topic_id].name,
            partitions=sorted(states[topic_id].partitions),
        )
        for topic_id in sorted(states)
    ]


# ---- reading


def replay(group: ShareGroup, key: Key, value: Value | None) -> None:
    """Apply a record from the log to its share group. The record must not delete the group
    itself."""
    match key, value:
        case GroupKey(), GroupValue():
            group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case TargetEpochKey(), TargetEpochValue():
            group.target_epoch = value.assignment_epoch
        case TargetKey(), TargetValue():
            group.targets[key.member_id] = assignment_of(value.topic_partitions)
        case TargetKey(), None:
            group.targets.pop(key.member_id, None)
        case MemberKey(), MemberValue():
            group.put(_described(_member(group, key.member_id), value))
        case MemberKey(), None:
            group.remove(key.member_id)
        case CurrentKey(), CurrentValue():
            group.put(_placed(_member(group, key.member_id), value))
        case CurrentKey(), None if key.member_id in group.members:
            group.put(_placed(_member(group, key.member_id), CurrentValue()))
        case PartitionsKey(), PartitionsValue():
            group.partitions = _partitions(value)
        case PartitionsKey(), None:
            group.partitions = SharePartitions()


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    return group.members.get(member_id, ShareMember(member_id=member_id))


def _described(member: ShareMember, value: MemberValue) -> ShareMember:
    return replace(
        member,
        rack_id=value.rack_id,
        client=MemberClient(value.client_id, value.client_host),
        subscribed_names=frozenset(value.subscribed_topic_names),
    )


def _placed(member: ShareMember, value: CurrentValue) -> ShareMember:
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        assigned=assignment_of(value.assigned_partitions) or NOTHING,
    )


def _partitions(value: PartitionsValue) -> SharePartitions:
    found = SharePartitions()
    found.initializing = _states(value.initializing_topics)
    found.initialized = _states(value.initialized_topics)
    found.deleting = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}
    return found


def _states(topics: list[TopicPartitionsInfo]) -> dict[UUID, TopicStates]:
    return {
        topic.topic_id: TopicStates(topic.topic_name, frozenset(topic.partitions))
        for topic in topics
        if topic.partitions
    }
