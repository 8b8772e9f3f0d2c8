"""What a cluster says of itself: who leads, who is in sync, whether all is well.

Every broker is asked, for one that was cut off tells yesterday's truth; and the quorum is asked how
far each broker has read the metadata, for one that has just come back tells last week's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from ottla.client.network.cluster import Cluster, open_cluster, raise_for
from ottla.client.network.connection import open_connection
from ottla.model.errors import OttlaError
from ottla.model.ids import METADATA_TOPIC
from ottla.model.settings.endpoints import parse_address
from ottla.wire.messages import describe_quorum_request as quorum_request
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse

ANSWER_TIMEOUT_S = 3.0
NOBODY = -1


class NoAnswerError(Exception):
    """The cluster, or the node that was asked, does not answer in time, or refuses."""


@dataclass(frozen=True, slots=True)
class ViewedPartition:
    """One partition as a broker has it."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        """Whether it has a leader and all its replicas are in sync."""
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


@dataclass(frozen=True, slots=True)
class View:
    """What one broker says."""

    brokers: frozenset[int]
    """Those that are registered and not fenced."""
    partitions: dict[str, ViewedPartition] = field(default_factory=dict)
    """By key, "topic-partition"."""


@dataclass(frozen=True, slots=True)
class ViewedQuorum:
    """What the quorum's leader says."""

    leader: int
    high_watermark: int
    end_offsets: dict[int, int]
    """How far each voter and each broker has fetched the metadata."""


async def ask_broker(address: str) -> View:
    """Ask one broker what it knows of all topics; NoAnswerError."""
    host, port = parse_address(address)
    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            async with open_connection(host, port) as connection:
                alive = await connection.request(DescribeClusterRequest(), DescribeClusterResponse)
                raise_for(alive.error_code, alive.error_message)
                found = await connection.request(MetadataRequest(topics=None), MetadataResponse)
    except (OttlaError, trio.TooSlowError) as error:
        raise NoAnswerError(f"{address}: {error}") from None
    return View(
        frozenset(row.broker_id for row in alive.brokers),
        {
            f"{topic.name}-{row.partition_index}": ViewedPartition(
                row.leader_id, tuple(row.replica_nodes), tuple(row.isr_nodes)
            )
            for topic in found.topics
            for row in topic.partitions
        },
    )


async def ask_all(addresses: Sequence[str]) -> dict[str, View]:
    """Ask so many brokers at once; who does not answer is not in the answer."""
    found: dict[str, View] = {}

    async def ask(address: str) -> None:
        try:
            found[address] = await ask_broker(address)
        except NoAnswerError:
            return

    async with trio.open_nursery() as nursery:
        for address in addresses:
            nursery.start_soon(ask, address)
    return found


async def ask_quorum(addresses: Sequence[str]) -> ViewedQuorum:
    """Ask, by way of any of the brokers, for the quorum's state; NoAnswerError."""
    topic = quorum_request.TopicData(
        topic_name=METADATA_TOPIC, partitions=[quorum_request.PartitionData()]
    )
    request = quorum_request.DescribeQuorumRequest(topics=[topic])

    async def ask(cluster: Cluster) -> DescribeQuorumResponse:
        answer = await cluster.request(request, DescribeQuorumResponse)
        raise_for(answer.error_code, answer.error_message)
        raise_for(answer.topics[0].partitions[0].error_code)
        return answer

    try:
        with trio.fail_after(ANSWER_TIMEOUT_S):
            async with open_cluster([parse_address(one) for one in addresses]) as cluster:
                answer = await ask(cluster)
    except (OttlaError, trio.TooSlowError) as error:
        raise NoAnswerError(f"the quorum: {error}") from None
    found = answer.topics[0].partitions[0]
    replicas = [*found.current_voters, *found.observers]
    return ViewedQuorum(
        leader=found.leader_id,
        high_watermark=found.high_watermark,
        end_offsets={one.replica_id: one.log_end_offset for one in replicas},
    )


def why_not_full(quorum: ViewedQuorum, views: Sequence[View], brokers: Sequence[int]) -> str | None:
    """Say why not all replicas are known to be in sync; None when they are.

    The quorum must have been asked before the brokers: they know at least what it had then.
    """
    if quorum.leader < 0:
        return "there is no active controller"
    late = [id_ for id_ in brokers if quorum.end_offsets.get(id_, -1) < quorum.high_watermark]
    if late:
        return f"brokers {late} have not read all the metadata"
    if len(views) < len(brokers):
        return f"only {len(views)} of {len(brokers)} brokers answer"
    for view in views:
        if view.brokers != frozenset(brokers):
            return f"only brokers {sorted(view.brokers)} are unfenced"
        thin = [key for key, partition in view.partitions.items() if not partition.is_full]
        if thin:
            return f"{len(thin)} partitions are not in sync everywhere, such as {thin[0]}"
    return None
