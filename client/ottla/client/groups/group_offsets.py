"""Committed offsets of one group: read, written, each with its leader epoch and a note."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.client.groups.coordinator import Coordinator
from ottla.client.groups.group_member import NO_MEMBER, Membership
from ottla.client.network.cluster import raise_for
from ottla.client.network.told import only
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import NO_EPOCH, Epoch, Offset, TopicPartition
from ottla.wire.apis import OFFSETS_TOPIC_IDS_FROM
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_commit_response import OffsetCommitResponse
from ottla.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse

BY_NAME_VERSION = OFFSETS_TOPIC_IDS_FROM - 1
"""The last version of OffsetCommit and OffsetFetch that names topics by their names."""


class Committed(NamedTuple):
    """A group's position in one partition: the next record to process."""

    offset: Offset
    """Offset of the next record to process."""
    leader_epoch: Epoch = NO_EPOCH
    """The epoch of the record before it: with it a truncation is noticed."""
    metadata: str = ""
    """Note of the application that committed."""


async def fetch_offsets(
    coordinator: Coordinator,
    partitions: Collection[TopicPartition] | None,
    *,
    member: Membership = NO_MEMBER,
    timeout_s: float = 30.0,
    is_read_committed: bool = False,
) -> dict[TopicPartition, Committed]:
    """Return what is committed of these partitions, or of all; those without a commit are absent.

    RefusedError with the coordinator's code when it refuses.  `member` is who asks, in a group of
    the consumer protocol; there nobody is answered who has not heard of its last epoch.
    """
    topics: dict[str, OffsetFetchRequestTopics] = {}
    for at in partitions or ():
        topic = topics.setdefault(at.topic, OffsetFetchRequestTopics(name=at.topic))
        topic.partition_indexes.append(at.partition)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=coordinator.key,
                member_id=member.member_id or None,
                member_epoch=member.generation_id,
                topics=None if partitions is None else list(topics.values()),
            )
        ],
        require_stable=is_read_committed,
    )
    answer = await coordinator.request(
        request, OffsetFetchResponse, timeout_s=timeout_s, version=BY_NAME_VERSION
    )
    group = only(answer.groups, "group")
    raise_for(group.error_code)
    found: dict[TopicPartition, Committed] = {}
    for told in group.topics:
        for partition in told.partitions:
            raise_for(partition.error_code)
            if partition.committed_offset >= 0:
                found[TopicPartition(told.name, partition.partition_index)] = Committed(
                    Offset(partition.committed_offset),
                    Epoch(partition.committed_leader_epoch),
                    partition.metadata or "",
                )
    return found


async def commit_offsets(
    coordinator: Coordinator,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership = NO_MEMBER,
    *,
    timeout_s: float = 30.0,
) -> None:
    """Commit; RefusedError with the first code of a partition that was refused."""
    for refusal in (
        await try_commit(coordinator, offsets, membership, timeout_s=timeout_s)
    ).values():
        raise refusal


async def try_commit(
    coordinator: Coordinator,
    offsets: Mapping[TopicPartition, Committed],
    membership: Membership = NO_MEMBER,
    *,
    timeout_s: float = 30.0,
) -> dict[TopicPartition, RefusedError]:
    """Commit; return the partitions that were refused, and why."""
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for at, one in offsets.items():
        topic = topics.setdefault(at.topic, OffsetCommitRequestTopic(name=at.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(
                partition_index=at.partition,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                committed_metadata=one.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=coordinator.key,
        generation_id_or_member_epoch=membership.generation_id,
        member_id=membership.member_id,
        group_instance_id=membership.group_instance_id,
        topics=list(topics.values()),
    )
    answer = await coordinator.request(
        request, OffsetCommitResponse, timeout_s=timeout_s, version=BY_NAME_VERSION
    )
    refused: dict[TopicPartition, RefusedError] = {}
    for told in answer.topics:
        for partition in told.partitions:
            if partition.error_code != ErrorCode.NONE:
                row = row_of(partition.error_code)
                at = TopicPartition(told.name, partition.partition_index)
                refused[at] = RefusedError(ErrorCode(row.code), row.meaning)
    return refused
