"""Requests the state that a cluster reports: leaders, in-sync replicas, and whether the cluster is
healthy.

Every broker is asked for its metadata, because a broker that was cut off reports old metadata. The
quorum reports the metadata offset up to which each broker has fetched. This is needed because a
broker that has just restarted may report even older metadata.
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
    """Raised if a node or the cluster did not answer in time, or refused the request."""


@dataclass(frozen=True, slots=True)
class ViewedPartition:
    """One partition as a broker describes it in its metadata response."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_full(self) -> bool:
        """True if the partition has a leader and all its replicas are in sync."""
        return self.leader >= 0 and set(self.isr) == set(self.replicas)


@dataclass(frozen=True, slots=True)
class View:
    """The metadata that one broker reports in a response."""

    brokers: frozenset[int]
    """Ids of the registered brokers that are not fenced, according to the reporting broker."""
    partitions: dict[str, ViewedPartition] = field(default_factory=dict)
    """Partitions that the broker reports, by key ("topic-partition")."""


@dataclass(frozen=True, slots=True)
class ViewedQuorum:
    """State of the controller quorum, as its leader reports it in a response."""

    leader: int
    high_watermark: int
    end_offsets: dict[int, int]
    """For each voter and each broker, by node id, the metadata offset up to which it has
    fetched."""


async def ask_broker(address: str) -> View:
    """Request the metadata of all topics from one broker, and return it. Raises NoAnswerError if
    the broker does not answer."""
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
    """Return the metadata that each broker reports, by the broker's address. Brokers that do not
    answer are left out."""
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
    """Return the state of the controller quorum. Requests it through the brokers at `addresses`,
    one after the other, until one answers. Raises NoAnswerError if no broker answers."""
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


def reason_not_full(
    quorum: ViewedQuorum, views: Sequence[View], brokers: Sequence[int]
) -> str | None:
    """Return the reason why not all replicas are known to be in sync, or None if they are.

    The caller must request `quorum` before `views`, so that the metadata of the brokers are not
    older than the quorum's report.
    """
    if quorum.leader < 0:
        return "there is no active controller"
    late = [id_ for id_ in brokers if quorum.end_offsets.get(id_, -1) < quorum.high_watermark]
    if late:
        return f"brokers {late} have not applied all metadata"
    if len(views) < len(brokers):
        return f"only {len(views)} of {len(brokers)} brokers answer"
    for view in views:
        if view.brokers != frozenset(brokers):
            return f"only brokers {sorted(view.brokers)} are unfenced"
        thin = [key for key, partition in view.partitions.items() if not partition.is_full]
        if thin:
            return f"{len(thin)} partitions have replicas out of sync, such as {thin[0]}"
    return None
