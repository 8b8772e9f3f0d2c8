"""The cluster as a whole: who it is, how its quorum stands, which features are in force."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from ottla.client.admin_parts.admin_calls import AdminCalls
from ottla.client.network.cluster import raise_for
from ottla.client.network.told import only
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID, Epoch, NodeId, Offset
from ottla.model.version import VERSION
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse, ReplicaState

FEATURES_FROM = 3
"""From this version on ApiVersions tells of features."""


class QuorumReplica(NamedTuple):
    """A voter or observer of the metadata log, as its leader sees it."""

    node: NodeId
    directory_id: UUID
    end_offset: Offset
    last_fetch_ms: int
    """Wall time of its last fetch, -1 where nobody told."""
    last_caught_up_ms: int
    """Wall time when it last had all there was."""


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The controllers' quorum."""

    leader: NodeId
    """Id of the active controller."""
    leader_epoch: Epoch
    """Epoch of the leader."""
    high_watermark: Offset
    """End of what is committed in the metadata log."""
    voters: tuple[QuorumReplica, ...]
    """The voters of the quorum."""
    observers: tuple[QuorumReplica, ...]
    """The observers of the metadata log: brokers."""
    addresses: Mapping[NodeId, tuple[str, int]]
    """First listeners of the controllers, where the broker is new enough to say."""
    problems: str = ""
    """What the leader finds wrong with the quorum or its disk, a line each."""
    warnings: str = ""
    """What will be wrong with its disk unless an operator acts, a line each."""


class FeatureLevels(NamedTuple):
    """A feature's levels."""

    finalized: int
    """In force in the cluster; 0 where it is off."""
    supported_min: int
    """Lowest level that the broker supports."""
    supported_max: int
    """What the broker that was asked could do."""


class ClusterCalls(AdminCalls):
    """Calls about the cluster."""

    async def describe_quorum(self) -> QuorumDescription:
        """Return how the controllers' quorum stands; wait for one that has no leader."""
        return await self._sit_out(self.ask_quorum)

    async def ask_quorum(self) -> QuorumDescription:
        """Ask once how the controllers' quorum stands.  Raises RefusedError if it has no leader."""
        asked = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])
        request = DescribeQuorumRequest(topics=[asked])
        answer = await self._cluster.request(request, DescribeQuorumResponse)
        raise_for(answer.error_code, answer.error_message)
        partition = only(only(answer.topics, "topic").partitions, "partition")
        raise_for(partition.error_code, partition.error_message)
        return QuorumDescription(
            leader=NodeId(partition.leader_id),
            leader_epoch=Epoch(partition.leader_epoch),
            high_watermark=Offset(partition.high_watermark),
            voters=tuple(map(_replica, partition.current_voters)),
            observers=tuple(map(_replica, partition.observers)),
            addresses={
                NodeId(node.node_id): (node.listeners[0].host, node.listeners[0].port)
                for node in answer.nodes
                if node.listeners
            },
            problems=partition.error_message or "",
            warnings=answer.error_message or "",
        )

    async def describe_features(self) -> dict[str, FeatureLevels]:
        """Return every feature's level in force, and what brokers could do."""
        version = max(FEATURES_FROM, await self._cluster.version_of(ApiVersionsRequest.API_KEY))
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=VERSION)
        answer = await self._cluster.request(request, ApiVersionsResponse, version=version)
        raise_for(answer.error_code)
        finalized = {one.name: one.max_version_level for one in answer.finalized_features}
        return {
            one.name: FeatureLevels(finalized.get(one.name, 0), one.min_version, one.max_version)
            for one in answer.supported_features
        }


def _replica(told: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        NodeId(told.replica_id),
        told.replica_directory_id or ZERO_UUID,
        Offset(told.log_end_offset),
        told.last_fetch_timestamp,
        told.last_caught_up_timestamp,
    )
