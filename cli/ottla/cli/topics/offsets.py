"""Offsets of many partitions at once, asked of each leader in one request."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.cluster import Cluster, raise_for
from ottla.model.errors import row_of
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.list_offsets_response import ListOffsetsResponse

EARLIEST = -2
LATEST = -1
CLIENT = -1
"""The replica id of whoever is no replica."""


async def by_leader(
    cluster: Cluster, topic: str, partitions: Iterable[int]
) -> Mapping[NodeId, list[int]]:
    """Return a topic's partitions by the broker that leads them."""
    led: dict[NodeId, list[int]] = defaultdict(list)
    for partition in partitions:
        led[await cluster.leader_of(TopicPartition(topic, partition))].append(partition)
    return led


async def offsets_at(
    cluster: Cluster, topic: str, partitions: Iterable[int], timestamp: int
) -> dict[int, int]:
    """Return each partition's first offset at or after a time; -1 where there is none.

    EARLIEST and LATEST are times, too.
    """
    found: dict[int, int] = {}
    for leader, led in (await by_leader(cluster, topic, partitions)).items():
        asked = [ListOffsetsPartition(partition_index=one, timestamp=timestamp) for one in led]
        request = ListOffsetsRequest(
            replica_id=CLIENT, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
        )
        answer = await cluster.request(request, ListOffsetsResponse, node=leader)
        for row in answer.topics[0].partitions:
            code = row.error_code
            raise_for(code, f"{topic}-{row.partition_index}: {row_of(code).meaning}")
            found[row.partition_index] = row.offset
    return found
