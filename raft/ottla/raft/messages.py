"""The requests of the quorum and their responses, as immutable values.

Vote (with its pre-vote), BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, AddVoter,
RemoveVoter and UpdateVoter have Kafka's fields with Kafka's meaning (KIP-595, KIP-630, KIP-853,
KIP-996). DescribeReplica replaces ApiVersions, with which Kafka's leader probes a new voter. Nodes
exchange these messages by gRPC. This module makes no decisions.

Every response contains the leader and the epoch known to its sender. A refusal therefore gives the
correct leader and epoch to a node that contacted the wrong replica or has an old epoch.
"""

from collections.abc import Sized
from typing import Protocol, runtime_checkable
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.raft.transitions import Standing
from ottla.raft.voters import KRAFT_VERSION, ReplicaKey, Voter, VoterEndpoint


@runtime_checkable
class StoredRecords(Sized, Protocol):
    """Records that are read on demand, such as a slice of a log file. The length is in bytes."""

    def read(self) -> bytes:
        """Read the bytes of the records from where they are stored, and return them."""
        ...


Records = bytes | memoryview | StoredRecords
"""Complete record batches, as the log stores them."""


@frozen(kw_only=True)
class VoteRequest:
    """A request of a prospective (pre-vote) or a candidate for one voter's vote."""

    cluster_id: str
    voter_id: NodeId
    """Id of the voter to which the request is addressed. A replica with the same id but another
    directory must not respond."""
    voter_directory_id: UUID = ZERO_UUID
    replica_epoch: Epoch
    """Epoch of the vote request's sender: its current epoch in a pre-vote, otherwise the new epoch
    in which it stands for election."""
    replica_id: NodeId
    replica_directory_id: UUID
    last_epoch: Epoch
    """Epoch of the last entry in the log of the vote request's sender."""
    end_offset: Offset
    """End offset of the log of the vote request's sender (Kafka's LastOffset, which is exclusive
    too)."""
    pre_vote: bool

    @property
    def replica_key(self) -> ReplicaKey:
        """Node id and directory id of the vote request's sender."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@frozen(kw_only=True)
class VoteResponse:
    """A voter's response to a VoteRequest."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    vote_granted: bool = False


@frozen(kw_only=True)
class BeginQuorumEpochRequest:
    """Announcement of a new leader to the voters, so that they fetch from this leader."""

    cluster_id: str
    voter_id: NodeId
    voter_directory_id: UUID = ZERO_UUID
    leader_id: NodeId
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class BeginQuorumEpochResponse:
    """A voter's response to a BeginQuorumEpochRequest."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class EndQuorumEpochRequest:
    """A leader's announcement to the voters that it resigns, with its preferred successors, the
    best first."""

    cluster_id: str
    leader_id: NodeId
    leader_epoch: Epoch
    preferred_candidates: tuple[ReplicaKey, ...] = ()
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class EndQuorumEpochResponse:
    """A voter's response to an EndQuorumEpochRequest."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class FetchRequest:
    """A fetch by a follower or an observer. It requests the entries after the end of the sender's
    log.

    The request is also the acknowledgement: `fetch_offset` is the end of the entries that the
    sender has *flushed*. The offset that a majority of the voters has reached raises the high
    watermark.
    """

    cluster_id: str
    replica_id: NodeId
    replica_directory_id: UUID
    current_leader_epoch: Epoch
    fetch_offset: Offset
    last_fetched_epoch: Epoch
    """Epoch of the last entry in the sender's log, just below `fetch_offset`. If the leader's entry
    at that offset has another epoch, the logs diverge."""
    high_watermark: Offset
    """High watermark that the sender of the fetch knows. The leader answers immediately if its own
    high watermark is higher."""
    wait_ms_max: int
    bytes_max: int
    standing: Standing = Standing.FULL
    """Standing of the fetch's sender: FULL, or a lower value after a loss of votes or of
    acknowledged entries. It is only reported to operators; the leader's decisions do not depend on
    it."""

    @property
    def replica_key(self) -> ReplicaKey:
        """Node id and directory id of the fetch's sender."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@frozen(kw_only=True)
class FetchResponse:
    """The leader's response to a fetch: records, a truncation point, or a snapshot to fetch
    instead.

    At most one of `diverging`, `snapshot_id` and non-empty `records` is set.
    """

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: OffsetAndEpoch | None = None
    """Last epoch that the logs of leader and follower can have in common, and its end offset. The
    follower truncates its log to this offset or below. None if the logs do not diverge."""
    snapshot_id: OffsetAndEpoch | None = None
    records: Records = b""


@frozen(kw_only=True)
class FetchSnapshotRequest:
    """A request to the leader for a byte range of a snapshot. The range need not be aligned with
    batches (KIP-630)."""

    cluster_id: str
    replica_id: NodeId
    replica_directory_id: UUID
    current_leader_epoch: Epoch
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int

    @property
    def replica_key(self) -> ReplicaKey:
        """Node id and directory id of the sender that fetches the snapshot."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@frozen(kw_only=True)
class FetchSnapshotResponse:
    """The leader's response to a FetchSnapshotRequest: a byte range of a snapshot, and the size of
    the whole snapshot."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    snapshot_id: OffsetAndEpoch | None = None
    size_bytes: int = 0
    position: int = 0
    data: Records = b""


@frozen(kw_only=True)
class AddVoterRequest:
    """A request to the leader to add a replica to the voter set."""

    cluster_id: str
    voter: Voter
    ack_when_committed: bool = True
    """True if the leader responds once the new voter set is committed. Otherwise it responds once
    the set is appended."""


@frozen(kw_only=True)
class RemoveVoterRequest:
    """A request to the leader to remove a voter from the voter set."""

    cluster_id: str
    voter_key: ReplicaKey


@frozen(kw_only=True)
class UpdateVoterRequest:
    """A voter's request to the leader to update its endpoints or its range of kraft.version in the
    voter set."""

    cluster_id: str
    leader_epoch: Epoch
    voter: Voter


@frozen(kw_only=True)
class VoterChangeResponse:
    """The leader's response to AddVoter, RemoveVoter and UpdateVoter."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    """Explanation of the error for operators, or None without an explanation."""
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class DescribeReplicaRequest:
    """A leader's request for the identity of a replica, sent to the endpoint of a new voter."""

    cluster_id: str
    leader_id: NodeId


@frozen(kw_only=True)
class DescribeReplicaResponse:
    """Response to a DescribeReplicaRequest: the identity of the replica at an endpoint, and the
    range of kraft.version that it supports."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    replica_id: NodeId = NodeId(-1)
    replica_directory_id: UUID = ZERO_UUID
    kraft_versions: tuple[int, int] = (0, KRAFT_VERSION)

    @property
    def replica_key(self) -> ReplicaKey:
        """Node id and directory id of the replica that responds."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


VoterChangeRequest = AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest

Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | VoterChangeRequest
    | DescribeReplicaRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
    | VoterChangeResponse
    | DescribeReplicaResponse
)
