"""Look-up of offsets by time. The requests to partition leaders are repeated until every partition
has a result."""

from collections.abc import Mapping
from typing import NamedTuple

import trio

from ottla.client.network.cluster import Cluster, raise_for
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse

ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
CONSUMER_REPLICA_ID = -1


class FoundOffset(NamedTuple):
    """Result of a look-up of an offset by time. The offset is -1 if the partition has no record at
    or after that time."""

    offset: Offset
    timestamp_ms: int
    leader_epoch: Epoch


async def find_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation_level: str = "read_uncommitted",
    timeout_s: float = 60.0,
    retry_wait_s: float = 0.1,
) -> dict[TopicPartition, FoundOffset]:
    """Return the first offset in each partition whose record has a timestamp at or after the wanted
    time, in ms since 1970.

    Special times: -2 selects the first offset, -1 the end offset, -3 the record with the latest
    timestamp. Raises RefusedError if a broker refuses a partition permanently, or if a partition
    has no result within `timeout_s` seconds.
    """
    found: dict[TopicPartition, FoundOffset] = {}
    trouble = "no broker answered"
    with trio.move_on_after(timeout_s):
        while True:
            missing = {at: time_ms for at, time_ms in wanted.items() if at not in found}
            if not missing:
                return found
            try:
                await _ask_once(cluster, missing, ISOLATION[isolation_level], found)
            except (ConnectionLostError, RefusedError) as error:
                if isinstance(error, RefusedError) and not error.is_retriable:
                    raise
                trouble = str(error)
                await trio.sleep(retry_wait_s)
                await _refresh(cluster, {at.topic for at in missing})
    raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"offsets were not found: {trouble}")


async def _refresh(cluster: Cluster, topics: set[str]) -> None:
    try:
        await cluster.metadata(topics)
    except ConnectionLostError:
        await trio.lowlevel.checkpoint()


async def _ask_once(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    found: dict[TopicPartition, FoundOffset],
) -> None:
    by_leader: dict[NodeId, dict[str, ListOffsetsTopic]] = {}
    trouble: RefusedError | None = None
    if unknown := {at.topic for at in wanted if cluster.known_leader(at) is None}:
        for known_topic in (await cluster.metadata(unknown)).topics:
            if not row_of(known_topic.error_code).is_retriable:
                raise_for(known_topic.error_code)
    for at, time_ms in wanted.items():
        known = cluster.known_leader(at)
        if known is None:
            # A partition may have no leader for a long time: the others are requested without it.
            trouble = _leaderless(cluster, at)
            continue
        topics = by_leader.setdefault(known.node, {})
        topic = topics.setdefault(at.topic, ListOffsetsTopic(name=at.topic))
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=at.partition,
                current_leader_epoch=known.epoch,
                timestamp=time_ms,
            )
        )
    for node, topics in by_leader.items():
        request = ListOffsetsRequest(
            replica_id=CONSUMER_REPLICA_ID,
            isolation_level=isolation,
            topics=list(topics.values()),
            timeout_ms=30_000,
        )
        answer = await cluster.request(request, ListOffsetsResponse, node=node)
        for row in answer.topics:
            for partition in row.partitions:
                at = TopicPartition(row.name, partition.partition_index)
                if partition.error_code == ErrorCode.NONE:
                    found[at] = FoundOffset(
                        Offset(partition.offset),
                        partition.timestamp,
                        Epoch(partition.leader_epoch),
                    )
                elif trouble is None or not row_of(partition.error_code).is_retriable:
                    trouble = RefusedError(ErrorCode(row_of(partition.error_code).code))
    if trouble is not None:
        raise trouble


def _leaderless(cluster: Cluster, at: TopicPartition) -> RefusedError:
    topic = cluster.topics.get(at.topic)
    if topic is None or at.partition not in topic.at:
        return RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {at}")
    return RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {at} has no leader")
