"""What the brokers are asked about partitions that move, and told to do."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import trio

from ottla.cli.cluster.reassignment_plan import Move, Place
from ottla.client.cluster import Cluster, raise_for
from ottla.client.connection import ConnectionLostError
from ottla.model.errors import ErrorCode, OttlaError, row_of
from ottla.model.ids import NodeId
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
)

REQUEST_TIMEOUT_MS = 30_000
SIZES_TIMEOUT_S = 3.0
"""A broker that needs longer to tell its sizes is left out."""

At = tuple[str, int]
"""A partition, by topic and number."""


@dataclass(frozen=True, slots=True)
class Ongoing:
    """A partition that is on its way."""

    at: At
    replicas: tuple[int, ...]
    """Who holds it now, those who come with those who go."""
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def name(self) -> str:
        """How people call the partition."""
        return f"{self.at[0]}-{self.at[1]}"

    @property
    def target(self) -> tuple[int, ...]:
        """Who will hold it."""
        return tuple(one for one in self.replicas if one not in self.removing)


async def places_of(cluster: Cluster, names: Sequence[str] | None) -> list[Place]:
    """Return where the partitions of topics (all of them for None) are now."""
    wanted = None if names is None else list(dict.fromkeys(names))
    places = []
    for topic in (await cluster.metadata(wanted)).topics:
        code = topic.error_code
        is_unknown = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        said = "it does not exist; see 'ottla topic list'" if is_unknown else row_of(code).meaning
        raise_for(code, f"topic {topic.name!r}: {said}")
        for row in topic.partitions:
            places.append(Place(topic.name or "", row.partition_index, tuple(row.replica_nodes)))
    return sorted(places)


async def ongoing_of(cluster: Cluster, names: Collection[str]) -> list[Ongoing]:
    """Return what is on its way, of these topics (all of them for none)."""
    answer = await cluster.request(
        ListPartitionReassignmentsRequest(topics=None, timeout_ms=REQUEST_TIMEOUT_MS),
        ListPartitionReassignmentsResponse,
    )
    raise_for(answer.error_code, answer.error_message)
    found = [
        Ongoing(
            (topic.name, row.partition_index),
            tuple(row.replicas),
            tuple(row.adding_replicas),
            tuple(row.removing_replicas),
        )
        for topic in answer.topics
        for row in topic.partitions
        if not names or topic.name in names
    ]
    return sorted(found, key=lambda one: one.at)


async def start(cluster: Cluster, moves: Iterable[Move]) -> dict[At, tuple[int, str]]:
    """Begin moves; return what was refused, with a sentence."""
    wanted: dict[At, Sequence[int] | None] = {
        (move.after.topic, move.after.partition): move.after.replicas for move in moves
    }
    return await _alter(cluster, wanted)


async def cancel(cluster: Cluster, moving: Iterable[Ongoing]) -> dict[At, tuple[int, str]]:
    """Go back to the replicas before; return what was refused, with a sentence."""
    return await _alter(cluster, dict.fromkeys(one.at for one in moving))


async def _alter(
    cluster: Cluster, wanted: dict[At, Sequence[int] | None]
) -> dict[At, tuple[int, str]]:
    topics: dict[str, list[ReassignablePartition]] = defaultdict(list)
    for (topic, index), replicas in wanted.items():
        topics[topic].append(
            ReassignablePartition(
                partition_index=index, replicas=None if replicas is None else list(replicas)
            )
        )
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name, partitions=rows) for name, rows in topics.items()],
        timeout_ms=REQUEST_TIMEOUT_MS,
    )
    answer = await cluster.request(request, AlterPartitionReassignmentsResponse)
    raise_for(answer.error_code, answer.error_message)
    refusals = {}
    for topic_answer in answer.responses:
        for row in topic_answer.partitions:
            if row.error_code != ErrorCode.NONE:
                at = (topic_answer.name, row.partition_index)
                said = row.error_message or row_of(row.error_code).meaning
                refusals[at] = (row.error_code, f"{at[0]}-{at[1]}: {said.rstrip('.')}")
    return refusals


async def sizes_of(
    cluster: Cluster, partitions: Collection[At], brokers: Collection[int]
) -> dict[At, dict[int, int]]:
    """Return how many bytes of each partition lie on each broker that answers."""
    by_topic: dict[str, list[int]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(index)
    request = DescribeLogDirsRequest(
        topics=[
            DescribableLogDirTopic(topic=topic, partitions=indexes)
            for topic, indexes in by_topic.items()
        ]
    )
    sizes: dict[At, dict[int, int]] = {at: {} for at in partitions}

    async def ask(broker: int) -> None:
        with trio.move_on_after(SIZES_TIMEOUT_S):
            try:
                answer = await cluster.request(
                    request, DescribeLogDirsResponse, node=NodeId(broker)
                )
            except (ConnectionLostError, OttlaError, trio.TooSlowError):
                return
            for directory in answer.results:
                for topic in directory.topics:
                    for row in topic.partitions:
                        sizes[topic.name, row.partition_index][broker] = row.partition_size

    async with trio.open_nursery() as nursery:
        for broker in brokers:
            nursery.start_soon(ask, broker)
    return sizes
