"""Failover of many partitions: the time from the fencing of their common leader until each
partition accepts records again.

The same broker is the first replica of all partitions of a topic, and it is killed.  The benchmark
detects the fencing in the brokers' own metadata. It then sends records to every partition until a
new leader has acknowledged one.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

import trio

from ottla.bench.local_cluster import StartedCluster
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.batch_builder import build_batch
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.metadata_response import MetadataResponseTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

TOPIC = "many-partitions"
PARTITIONS = 1_000
BROKER = "broker "
ASK_AGAIN_S = 0.002
TIMEOUT_MS = 10_000
PATIENCE_S = 60.0
ACKS_ALL = -1


class ManyFailover(NamedTuple):
    """Durations, in seconds, of the phases of a failover with many partitions."""

    detection_s: float
    """Time in seconds from the kill until another broker's metadata no longer listed the killed
    broker."""
    failover_s: float
    """Time in seconds from the end of the detection until every partition had acknowledged a
    record."""


class OpenPartitions:
    """Partitions of the topic that have not acknowledged a record since their leader was killed."""

    def __init__(self, count: int) -> None:
        self._open = set(range(count))

    def __bool__(self) -> bool:
        return bool(self._open)

    def by_leader(self, leaders: Mapping[int, int], *, without: int) -> dict[int, list[int]]:
        """Return the partitions that have not acknowledged a record since the kill, by leader.
        Partitions that the killed broker still leads are omitted."""
        found: dict[int, list[int]] = {}
        for index in sorted(self._open):
            leader = leaders.get(index, NO_NODE)
            if leader not in (NO_NODE, without):
                found.setdefault(leader, []).append(index)
        return found

    def note(self, answers: Iterable[tuple[int, int]]) -> None:
        """Remove the partitions that have acknowledged a record. `answers` has the partition and
        the error code of each response to a produce request."""
        self._open.difference_update(index for index, code in answers if code == ErrorCode.NONE)


def replicas_of(index: int, leader: int, others: Sequence[int]) -> list[int]:
    """Return the broker ids of a partition's replicas: the leader first, then the followers. The
    followers are chosen in rotation, so that partitions of one leader have different followers."""
    first = index % len(others)
    return [leader, *others[first:], *others[:first]]


def create_topics(cluster: StartedCluster, topics: list[CreatableTopic]) -> None:
    """Create topics that do not exist yet. Refused requests are repeated for a minute."""
    request = CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)

    async def ask(one: Cluster) -> bool:
        answer = await one.request(request, CreateTopicsResponse)
        for topic in answer.topics:
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise RefusedError(ErrorCode(topic.error_code))
        return True

    cluster.wait_for(ask)


def make_led_by_one(cluster: StartedCluster) -> int:
    """Create the benchmark's topic so that one broker is the first replica of all partitions.
    Returns the broker's id."""
    leader, *others = sorted(
        int(name.removeprefix(BROKER)) for name in cluster.pids if name.startswith(BROKER)
    )
    assignments = [
        CreatableReplicaAssignment(
            partition_index=index, broker_ids=replicas_of(index, leader, others)
        )
        for index in range(PARTITIONS)
    ]
    topic = CreatableTopic(
        name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments
    )
    create_topics(cluster, [topic])
    cluster.wait_in_sync(TOPIC)
    return leader


def kill_leader(cluster: StartedCluster, leader: int) -> ManyFailover:
    """Kill the broker that leads every partition of the topic. Returns the durations of the
    failover."""
    return trio.run(_killed, cluster, leader)


async def _killed(cluster: StartedCluster, leader: int) -> ManyFailover:
    with trio.fail_after(PATIENCE_S):
        async with open_cluster(parse_bootstrap(cluster.bootstrap)) as any_of_them:
            known = (await any_of_them.metadata([])).brokers
        survivor = next((each.host, each.port) for each in known if each.node_id != leader)
        async with open_cluster([survivor]) as client:
            await client.metadata([TOPIC])
            killed = time.perf_counter()
            cluster.kill(f"broker {leader}")
            while leader in await _brokers(client):
                await trio.sleep(ASK_AGAIN_S)
            fenced = time.perf_counter()
            await _write_to_all(client, leader)
            return ManyFailover(fenced - killed, time.perf_counter() - fenced)


async def _brokers(client: Cluster) -> set[int]:
    return {each.node_id for each in (await client.metadata([])).brokers}


async def _write_to_all(client: Cluster, dead: int) -> None:
    open_partitions = OpenPartitions(PARTITIONS)
    while open_partitions:
        (topic,) = (await client.metadata([TOPIC])).topics
        wanted = open_partitions.by_leader(_leaders(topic), without=dead)
        async with trio.open_nursery() as nursery:
            for leader, indexes in wanted.items():
                nursery.start_soon(
                    _write, client, NodeId(leader), topic.topic_id, indexes, open_partitions
                )
        if open_partitions:
            await trio.sleep(ASK_AGAIN_S)


def _leaders(topic: MetadataResponseTopic) -> dict[int, int]:
    return {each.partition_index: each.leader_id for each in topic.partitions}


async def _write(
    client: Cluster,
    leader: NodeId,
    topic_id: UUID,
    indexes: list[int],
    open_partitions: OpenPartitions,
) -> None:
    batch = build_batch([(0, None, b"x")])
    data = [
        PartitionProduceData(index=index, records=memoryview(bytearray(batch))) for index in indexes
    ]
    request = ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=data)],
    )
    try:
        answer = await client.request(request, ProduceResponse, node=leader)
    except ConnectionLostError:
        return
    open_partitions.note(
        (each.index, each.error_code) for each in answer.responses[0].partition_responses
    )
