"""Converts a consumer group to its records and back. The records have the kinds 3 to 8 and 16 in
Kafka's format. Pure.

    3  group epoch, and a hash of its topics     6  epoch of the target assignment
    4  topics (before Kafka 4.1)                 7  target of one member
    5  description of a member                   8  current assignment of a member
                                                16  topics that match a regular expression

A record with a null value deletes the entity in its key. A compacted log may contain the records of
a group in any order, so each record creates its group and member if they do not exist.
"""

from dataclasses import replace

from ottla.broker.coordinators.effects import CoordinatorRecord, MemberClient
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from ottla.broker.groups.consumer.consumer_member import (
    NOTHING,
    Assignment,
    ClassicMemberState,
    ConsumerMember,
    MemberState,
    assignment_of,
)
from ottla.broker.groups.group_records import Key, Value, record
from ottla.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey as CurrentKey,
)
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue as CurrentValue,
)
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    TopicPartitions as CurrentPartitions,
)
from ottla.wire.messages.consumer_group_member_metadata_key import (
    ConsumerGroupMemberMetadataKey as MemberKey,
)
from ottla.wire.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
)
from ottla.wire.messages.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue as MemberValue,
)
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey as GroupKey
from ottla.wire.messages.consumer_group_metadata_value import (
    ConsumerGroupMetadataValue as GroupValue,
)
from ottla.wire.messages.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey as OldTopicsKey,
)
from ottla.wire.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey as RegexKey,
)
from ottla.wire.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue as RegexValue,
)
from ottla.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey as TargetKey,
)
from ottla.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue as TargetValue,
)
from ottla.wire.messages.consumer_group_target_assignment_member_value import (
    TopicPartition as TargetPartitions,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey as TargetEpochKey,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue as TargetEpochValue,
)

CONSUMER_GROUP_KEYS = (
    GroupKey,
    OldTopicsKey,
    MemberKey,
    TargetEpochKey,
    TargetKey,
    CurrentKey,
    RegexKey,
)

# ---- writing


def epoch_record(group: ConsumerGroup) -> CoordinatorRecord:
    """Return the record that stores a consumer group's epoch."""
    value = GroupValue(epoch=group.group_epoch, metadata_hash=group.metadata_hash)
    return record(GroupKey(group_id=group.group_id), value)


def target_epoch_record(group: ConsumerGroup) -> CoordinatorRecord:
    """Return the record that stores the epoch of a consumer group's target assignment."""
    value = TargetEpochValue(assignment_epoch=group.target_epoch)
    return record(TargetEpochKey(group_id=group.group_id), value)


def group_tombstones(group_id: str, *, has_old_topics: bool) -> list[CoordinatorRecord]:
    """Return the tombstones for the records of a consumer group without members."""
    gone = [record(TargetEpochKey(group_id=group_id), None)]
    if has_old_topics:
        gone.append(old_topics_tombstone(group_id))
    return [*gone, record(GroupKey(group_id=group_id), None)]


def old_topics_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the tombstone for a record of a group's topics, which coordinators wrote before Kafka
    4.1."""
    return record(OldTopicsKey(group_id=group_id), None)


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record that stores the description of a consumer group member."""
    classic = member.classic
    value = MemberValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client.id,
        client_host=member.client.host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=None
        if classic is None
        else ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols
            ],
        ),
    )
    return record(MemberKey(group_id=group_id, member_id=member.member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record that stores the current assignment of a consumer group member."""
    value = CurrentValue(
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=member.state,
        assigned_partitions=_current(member.assigned),
        partitions_pending_revocation=_current(member.pending_revocation),
    )
    return record(CurrentKey(group_id=group_id, member_id=member.member_id), value)


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    """Return the record that stores the target assignment of a consumer group member."""
    value = TargetValue(
        topic_partitions=[
            TargetPartitions(topic_id=topic_id, partitions=sorted(target[topic_id]))
            for topic_id in sorted(target)
        ]
    )
    return record(TargetKey(group_id=group_id, member_id=member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the tombstones for all records of a consumer group member, in the order that Kafka's
    coordinator requires."""
    return [
        record(CurrentKey(group_id=group_id, member_id=member_id), None),
        record(TargetKey(group_id=group_id, member_id=member_id), None),
        record(MemberKey(group_id=group_id, member_id=member_id), None),
    ]


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    """Return the record that stores the topics matching a regular expression, or its tombstone if
    `resolved` is None."""
    key = RegexKey(group_id=group_id, regular_expression=regex)
    if resolved is None:
        return record(key, None)
    value = RegexValue(
        topics=sorted(resolved.topics),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    return record(key, value)


def _current(assignment: Assignment) -> list[CurrentPartitions]:
    return [
        CurrentPartitions(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
    ]


# ---- reading


def replay(group: ConsumerGroup, key: Key, value: Value | None) -> None:
    """Apply a record from the log to its consumer group. The record must not delete the group
    itself."""
    match key, value:
        case GroupKey(), GroupValue():
            group.group_epoch, group.metadata_hash = value.epoch, value.metadata_hash
        case OldTopicsKey(), _:
            group.has_old_topics = value is not None
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
        case RegexKey(), RegexValue():
            resolved = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
            group.put_regex(key.regular_expression, resolved)
        case RegexKey(), None:
            group.put_regex(key.regular_expression, None)


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    return group.members.get(member_id, ConsumerMember(member_id=member_id))


def _described(member: ConsumerMember, value: MemberValue) -> ConsumerMember:
    classic = value.classic_member_metadata
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client=MemberClient(value.client_id, value.client_host),
        subscribed_names=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMemberState(
            classic.session_timeout_ms,
            tuple((one.name, one.metadata) for one in classic.supported_protocols),
        ),
    )


def _placed(member: ConsumerMember, value: CurrentValue) -> ConsumerMember:
    known = {state.value: state for state in MemberState}
    return replace(
        member,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=known.get(value.state, MemberState.UNKNOWN),
        assigned=assignment_of(value.assigned_partitions) or NOTHING,
        pending_revocation=assignment_of(value.partitions_pending_revocation) or NOTHING,
    )
