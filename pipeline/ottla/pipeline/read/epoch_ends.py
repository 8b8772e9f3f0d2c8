"""Requests to partition leaders for the ends of leader epochs in their logs."""

from collections.abc import Mapping

from ottla.client.network.cluster import Cluster, raise_for
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch, TopicPartition
from ottla.wire.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.messages.offset_for_leader_epoch_response import OffsetForLeaderEpochResponse

CONSUMER_REPLICA_ID = -1


async def find_epoch_ends(
    cluster: Cluster, wanted: Mapping[TopicPartition, Epoch]
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Return, for each partition, the largest leader epoch in its log up to the epoch in `wanted`,
    and the end offset of that epoch. The result is (-1, -1) if the log has no such epoch.

    Raises RefusedError if a leader refuses the request."""
    await cluster.metadata({at.topic for at in wanted})
    by_leader: dict[NodeId, dict[str, OffsetForLeaderTopic]] = {}
    for at, epoch in wanted.items():
        leader = cluster.known_leader(at)
        if leader is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {at} has no leader")
        topics = by_leader.setdefault(leader.node, {})
        topic = topics.setdefault(at.topic, OffsetForLeaderTopic(topic=at.topic))
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=at.partition, current_leader_epoch=leader.epoch, leader_epoch=epoch
            )
        )
    found: dict[TopicPartition, OffsetAndEpoch] = {}
    for node, topics in by_leader.items():
        request = OffsetForLeaderEpochRequest(
            replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values())
        )
        answer = await cluster.request(request, OffsetForLeaderEpochResponse, node=node)
        for row in answer.topics:
            for one in row.partitions:
                raise_for(one.error_code)
                at = TopicPartition(row.topic, one.partition)
                found[at] = OffsetAndEpoch(Offset(one.end_offset), Epoch(one.leader_epoch))
    return {at: found[at] for at in wanted if at in found}
