"""Requests that fetch and commit the offsets of one group.

Each committed offset has a leader epoch and a metadata text.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ottla.client.groups.coordinator import Coordinator
from ottla.client.groups.group_member import NO_MEMBER, Membership
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
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
"""Last version of OffsetCommit and OffsetFetch that identifies topics by name. Later versions
identify topics by id."""


class Committed(NamedTuple):
    """Committed offset of a group in one partition."""

    offset: Offset
    """Offset of the next record to process."""
    leader_epoch: Epoch = NO_EPOCH
    """Leader epoch of the record before the offset.  It allows consumers to detect a truncated
    log."""
    metadata: str = ""
    """Text that the application has stored with the commit."""


async def fetch_offsets(
    coordinator: Coordinator,
    partitions: Collection[TopicPartition] | None,
    *,
    member: Membership = NO_MEMBER,
    timeout_s: float = 30.0,
    require_stable: bool = False,
) -> dict[TopicPartition, Committed]:
    """Return the committed offsets of `partitions`, or of all partitions if `partitions` is None.

    Partitions without a committed offset are not in the result. Raises RefusedError if the
    coordinator refuses the request. In a group of the consumer protocol, `member` identifies the
    requesting member, and the coordinator refuses an old member epoch. With `require_stable`, the
    request is repeated until open transactions with offsets of the group have ended.
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
        require_stable=require_stable,
    )
    answer = await coordinator.request(
        request, OffsetFetchResponse, timeout_s=timeout_s, version=BY_NAME_VERSION
    )
    group = only(answer.groups, "group")
    raise_for(group.error_code)
    found: dict[TopicPartition, Committed] = {}
    for answer_topic in group.topics:
        for partition in answer_topic.partitions:
            raise_for(partition.error_code)
            if partition.committed_offset >= 0:
                found[TopicPartition(answer_topic.name, partition.partition_index)] = Committed(
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
    """Commit offsets of a group. If the coordinator refuses partitions, the RefusedError of the
    first refused partition is raised."""
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
    """Commit offsets of a group. Returns the errors of the partitions that the coordinator refused,
    by partition."""
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
    for answer_topic in answer.topics:
        for partition in answer_topic.partitions:
            if partition.error_code != ErrorCode.NONE:
                row = row_of(partition.error_code)
                at = TopicPartition(answer_topic.name, partition.partition_index)
                refused[at] = RefusedError(ErrorCode(row.code), row.meaning)
    return refused
