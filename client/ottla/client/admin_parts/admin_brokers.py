"""Admin calls that describe the brokers of a cluster and their log directories.

These calls have a separate module, so that a command that needs only these calls imports less code.
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
    """One broker of the cluster: its id, its address, its rack, and whether it is fenced."""

    node: NodeId
    host: str
    port: int
    rack: str | None
    is_fenced: bool = False
    """True if the broker is registered but fenced. Always False if the responding broker is too old
    to report fenced brokers."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, controller and brokers."""

    cluster_id: str
    """Id of the cluster."""
    controller: NodeId
    """Id of the node that accepts requests for the controller. The node is a controller, or a
    broker that forwards the requests to the controller."""
    brokers: tuple[BrokerDescription, ...]
    """Registered brokers of the cluster. Fenced brokers are included only if the caller requested
    them."""


class ReplicaOnDisk(NamedTuple):
    """One replica in a log directory of a broker, with its size in bytes and its lag."""

    size_bytes: int
    offset_lag: Offset
    """Lag of the replica, in records. It is measured from the high watermark or, for a future
    replica, from the end of the replica that it will replace."""
    is_future: bool
    """True for a future replica: a copy that the broker creates in this directory, because it moves
    the replica from another of its log directories."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker: its state, its free space, and the replicas in it."""

    path: str
    """Path of the log directory on the broker's machine."""
    error: ErrorCode
    """Error code with the reason why the directory is offline, or NONE if it is online."""
    total_bytes: int | None
    """Size, in bytes, of the file system that contains the directory. None if the broker did not
    report it."""
    usable_bytes: int | None
    """Free space, in bytes, of the file system that contains the directory. None if the broker did
    not report it."""
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    """Replicas in the directory, by partition."""
    is_cordoned: bool = False
    """True if the directory accepts no new replicas (KIP-1066)."""


class BrokerCalls(AdminCalls):
    """Methods of the admin client that describe brokers and their log directories."""

    async def describe_cluster(self, *, has_fenced: bool = False) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers.

        Fenced brokers are included only with `has_fenced`.
        """
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
        """Return the log directories of a broker, and the replicas in them.

        With `partitions`, only the replicas of these partitions are included. None includes all
        replicas.
        """
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
                path=row.log_dir,
                error=code_of(row.error_code),
                total_bytes=row.total_bytes if row.total_bytes >= 0 else None,
                usable_bytes=row.usable_bytes if row.usable_bytes >= 0 else None,
                is_cordoned=row.is_cordoned,
                replicas={
                    TopicPartition(topic.name, one.partition_index): ReplicaOnDisk(
                        one.partition_size, Offset(one.offset_lag), one.is_future_key
                    )
                    for topic in row.topics
                    for one in topic.partitions
                },
            )
            for row in answer.results
        ]
