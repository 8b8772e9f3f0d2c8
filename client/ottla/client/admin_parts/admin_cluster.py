"""Admin calls for the cluster as a whole: the controller quorum, its voters, and the feature
levels."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from ottla.client.admin_parts.admin_calls import AdminCalls
from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import raise_for
from ottla.model.ids import METADATA_TOPIC, ZERO_UUID, Epoch, NodeId, Offset
from ottla.model.version import VERSION
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.wire.messages.add_raft_voter_response import AddRaftVoterResponse
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse, ReplicaState
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.remove_raft_voter_response import RemoveRaftVoterResponse
from ottla.wire.messages.unregister_controller_request import UnregisterControllerRequest
from ottla.wire.messages.unregister_controller_response import UnregisterControllerResponse
from ottla.wire.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.wire.messages.update_features_response import UpdateFeaturesResponse

FEATURES_FROM = 3
"""First version of ApiVersions whose response contains features."""


class QuorumReplica(NamedTuple):
    """A node that replicates the metadata log as a voter or observer, as reported by the quorum
    leader."""

    node: NodeId
    directory_id: UUID
    end_offset: Offset
    last_fetch_ms: int
    """Time of the replica's last fetch, in ms since 1970, or -1 if unknown."""
    last_caught_up_ms: int
    """Time when the replica last had the complete log of the leader, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """State of the controller quorum: its leader, voters and observers, and the offset up to which
    each node has replicated the metadata log."""

    leader: NodeId
    """Node id of the active controller, which leads the quorum."""
    leader_epoch: Epoch
    """Leader epoch of the active controller."""
    high_watermark: Offset
    """High watermark of the metadata log: all records before it are committed."""
    voters: tuple[QuorumReplica, ...]
    """Voters of the quorum: controllers that elect the leader and commit records."""
    observers: tuple[QuorumReplica, ...]
    """Observers of the quorum: the brokers, which only replicate the metadata log."""
    addresses: Mapping[NodeId, tuple[str, int]]
    """Host and port of each controller's first listener, by node id. Empty if the responding broker
    is too old to report addresses."""
    problems: str = ""
    """Current problems of the quorum or of the leader's disk, one per line."""
    warnings: str = ""
    """Expected problems of the leader's disk that an operator can still prevent, one per line."""


class FeatureUpdateKind(IntEnum):
    """Kind of change of a feature level: an upgrade, a safe downgrade, or an unsafe downgrade."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3
    """Downgrade that may delete metadata. Kafka and Ottla refuse it in the same cases as
    SAFE_DOWNGRADE."""


class FeatureLevels(NamedTuple):
    """Levels of one feature: the level that is finalized in the cluster, and the range that a
    broker supports."""

    finalized: int
    """Finalized level in the cluster.  0 if the feature is disabled."""
    supported_min: int
    """Lowest level that the responding broker supports."""
    supported_max: int
    """Highest level that the responding broker supports."""


class ClusterCalls(AdminCalls):
    """Methods of the admin client for the cluster as a whole."""

    async def describe_quorum(self) -> QuorumDescription:
        """Return the state of the controller quorum. Waits while the quorum has no leader."""
        return await self._retry_until_timeout(self.ask_quorum)

    async def ask_quorum(self) -> QuorumDescription:
        """Return the state of the controller quorum, by a single request without retries.

        Raises RefusedError if the quorum has no leader.
        """
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

    async def add_voter(
        self,
        node: int,
        directory_id: UUID,
        listeners: Mapping[str, tuple[str, int]],
        *,
        ack_when_committed: bool = True,
    ) -> None:
        """Add a running controller to the voters of the quorum. The controller must already
        replicate the leader's metadata log.

        `listeners` contains the host and port of each listener of the controller, by listener name.
        With `ack_when_committed`, returns when the new set of voters is committed; otherwise,
        returns as soon as the leader has appended it to its log.

        Sends a single request. Raises RefusedError if the change is refused. After
        REQUEST_TIMED_OUT or a lost connection, the change may still take effect: `describe_quorum`
        shows it.
        """
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._timeout_ms,
            voter_id=node,
            voter_directory_id=directory_id,
            listeners=[
                Listener(name=name, host=host, port=port)
                for name, (host, port) in listeners.items()
            ],
            ack_when_committed=ack_when_committed,
        )
        answer = await self._cluster.request(request, AddRaftVoterResponse)
        raise_for(answer.error_code, answer.error_message)

    async def remove_voter(self, node: int, directory_id: UUID) -> None:
        """Remove a controller from the voters of the quorum.

        Returns when the new set of voters is committed.  Sends a single request.  Raises
        RefusedError if the change is refused.  After REQUEST_TIMED_OUT or a lost connection, the
        change may still take effect: `describe_quorum` shows it.
        """
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=node, voter_directory_id=directory_id
        )
        answer = await self._cluster.request(request, RemoveRaftVoterResponse)
        raise_for(answer.error_code, answer.error_message)

    async def unregister_controller(self, node: int) -> None:
        """Delete the registration of a controller that is no longer a voter. A controller that is
        still running registers itself again.

        Sends a single request. Raises RefusedError if the controller is active or is not
        registered.
        """
        request = UnregisterControllerRequest(controller_id=node)
        answer = await self._cluster.request(request, UnregisterControllerResponse)
        raise_for(answer.error_code, answer.error_message)

    async def describe_features(self, node: int | None = None) -> dict[str, FeatureLevels]:
        """Return the finalized level of each feature, and the range of levels that a broker
        supports. The request is sent to the broker `node`, or to any broker if `node` is None."""
        version = max(FEATURES_FROM, await self._cluster.version_of(ApiVersionsRequest.API_KEY))
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version=VERSION)
        answer = await self._cluster.request(
            request,
            ApiVersionsResponse,
            node=None if node is None else NodeId(node),
            version=version,
        )
        raise_for(answer.error_code)
        finalized = {one.name: one.max_version_level for one in answer.finalized_features}
        return {
            one.name: FeatureLevels(finalized.get(one.name, 0), one.min_version, one.max_version)
            for one in answer.supported_features
        }

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        kind: FeatureUpdateKind = FeatureUpdateKind.UPGRADE,
        is_dry_run: bool = False,
    ) -> None:
        """Change the finalized levels of features. Either all changes are made or none. Level 0
        disables a feature.

        With `is_dry_run`, the cluster only checks the changes. Raises RefusedError if a node does
        not support a level, or if a feature must not be downgraded to a level.
        """
        request = UpdateFeaturesRequest(
            timeout_ms=self._timeout_ms,
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level in levels.items()
            ],
            validate_only=is_dry_run,
        )
        answer = await self._cluster.request(request, UpdateFeaturesResponse)
        raise_for(answer.error_code, answer.error_message)


def _replica(row: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        NodeId(row.replica_id),
        row.replica_directory_id or ZERO_UUID,
        Offset(row.log_end_offset),
        row.last_fetch_timestamp,
        row.last_caught_up_timestamp,
    )
