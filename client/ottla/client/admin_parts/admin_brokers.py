"""Admin calls for the brokers of the cluster and their log directories.

They are separate from the other admin calls, so that a command that needs only these imports less
code.
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
    """True if the broker is registered but fenced. Always False if the broker that responded is too
    old to report it."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id, controller and brokers."""

    cluster_id: str
    """Id of the cluster."""
    controller: NodeId
    """Id of the node to which requests for the controller are sent: a broker or a controller."""
    brokers: tuple[BrokerDescription, ...]
    """The brokers of the cluster."""


class ReplicaOnDisk(NamedTuple):
    """One replica in one log directory, with its size in bytes and its lag."""

    size_bytes: int
    offset_lag: Offset
    """Lag of the replica, in records: behind the high watermark or, for a future replica, behind
    the replica that it will replace."""
    is_future: bool
    """True for a future replica: a copy that is being built in this directory because the replica
    is moved here from another log directory of the broker."""


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker."""

    path: str
    """Path of the directory."""
    error: ErrorCode
    """NONE, or the reason why the directory is offline."""
    total_bytes: int | None
    """Size of the file system of the directory, in bytes.  None if the broker did not report it."""
    usable_bytes: int | None
    """Free space of the file system of the directory, in bytes.  None if the broker did not report
    it."""
    replicas: Mapping[TopicPartition, ReplicaOnDisk]
    """Replicas in the directory, by partition."""
    is_cordoned: bool = False
    """True if the directory accepts no new replica."""


class BrokerCalls(AdminCalls):
    """The admin calls for brokers."""

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

        Only the replicas of `partitions` are included, or all replicas if it is None.
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
