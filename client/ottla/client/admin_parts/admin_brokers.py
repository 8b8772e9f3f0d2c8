"""The brokers of the cluster, and their log directories.

Apart from the cluster's and the replicas' other calls: a list of topics needs these alone.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.client.admin_parts.admin_calls import AdminCalls, by_topic
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, code_of
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_log_dirs_request import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse


class BrokerDescription(NamedTuple):
    """One broker of the cluster."""

    node: NodeId
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False
    """Registered, and not in service; False where the broker is too old to say."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Who the cluster is."""

    cluster_id: str
    """Id of the cluster."""
    controller: NodeId
    """Node that acts as controller for clients."""
    brokers: tuple[BrokerDescription, ...]
    """The brokers of the cluster."""


class ReplicaOnDisk(NamedTuple):
    """One replica in one log directory."""

    size_bytes: int
    offset_lag: Offset
    """How far it is behind its leader's high watermark; a future one: behind the present one."""
    is_future: bool
    """Whether it is being moved here from another directory."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker."""

    path: str
    """Path of the directory."""
    error: ErrorCode
    """NONE, or why it is offline."""
    total_bytes: int | None
    """Size of its volume, in bytes."""
    usable_bytes: int | None
    """Of its file system; None where nobody told."""
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    """Replicas in the directory."""
    is_cordoned: bool = False
    """Whether it takes no new replica."""


class BrokerCalls(AdminCalls):
    """Calls about brokers."""

    async def describe_cluster(self, *, has_fenced: bool = False) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers, with fenced ones or without."""
        request = DescribeClusterRequest()
        if has_fenced:
            request.include_fenced_brokers = True
        answer = await self._cluster.request(request, DescribeClusterResponse)
        raise_for(answer.error_code, answer.error_message)
        return ClusterDescription(
            answer.cluster_id,
            NodeId(answer.controller_id),
            tuple(
                BrokerDescription(
                    NodeId(one.broker_id), one.host, one.port, one.rack, one.is_fenced
                )
                for one in answer.brokers
            ),
        )

    async def describe_log_dirs(
        self, node: NodeId, partitions: Iterable[TopicPartition] | None = None
    ) -> list[LogDirDescription]:
        """Return a broker's log directories, with the replicas there: these or all."""
        wanted = None
        if partitions is not None:
            wanted = [
                DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]
        answer = await self._cluster.request(
            DescribeLogDirsRequest(topics=wanted), DescribeLogDirsResponse, node=node
        )
        raise_for(answer.error_code)
        return [
            LogDirDescription(
                path=told.log_dir,
                error=code_of(told.error_code),
                total_bytes=told.total_bytes if told.total_bytes >= 0 else None,
                usable_bytes=told.usable_bytes if told.usable_bytes >= 0 else None,
                is_cordoned=told.is_cordoned,
                replicas={
                    TopicPartition(topic.name, one.partition_index): ReplicaOnDisk(
                        one.partition_size, Offset(one.offset_lag), one.is_future_key
                    )
                    for topic in told.topics
                    for one in topic.partitions
                },
            )
            for told in answer.results
        ]
