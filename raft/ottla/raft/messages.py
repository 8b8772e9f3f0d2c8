"""The five conversations of the quorum, as values.

Vote (with its pre-vote), BeginQuorumEpoch, EndQuorumEpoch, Fetch and FetchSnapshot carry Kafka's
fields with Kafka's meaning (KIP-595, KIP-630, KIP-853, KIP-996); gRPC carries them between nodes.
Nothing here decides anything.

Every response names the leader and the epoch its sender knows: whoever asked the wrong node, or
asked too late, learns the right one from the refusal itself.
"""

from collections.abc import Sized
from typing import Protocol, runtime_checkable
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, ZERO_UUID, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey, VoterEndpoint


@runtime_checkable
class StoredRecords(Sized, Protocol):
    """Record bytes by reference, such as a slice of a log file; its length is in bytes."""

    def read(self) -> bytes:
        """Return the bytes themselves."""
        ...


Records = bytes | memoryview | StoredRecords
"""Whole record batches, as they lie in the log."""


@frozen(kw_only=True)
class VoteRequest:
    """A prospective (pre-vote) or a candidate asks one voter for its vote."""

    cluster_id: str
    voter_id: NodeId
    """Whom the request is meant for, so that a wiped namesake does not answer it."""
    voter_directory_id: UUID = ZERO_UUID
    replica_epoch: Epoch
    """The asking replica's epoch: with a pre-vote the one it is in, else the one it stands for."""
    replica_id: NodeId
    replica_directory_id: UUID
    last_epoch: Epoch
    """Epoch of the last entry of the asking replica's log."""
    end_offset: Offset
    """End of the asking replica's log (Kafka's LastOffset, which is exclusive too)."""
    pre_vote: bool

    @property
    def replica_key(self) -> ReplicaKey:
        """Return who asks."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@frozen(kw_only=True)
class VoteResponse:
    """One voter's answer to a VoteRequest."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    vote_granted: bool = False


@frozen(kw_only=True)
class BeginQuorumEpochRequest:
    """A new leader makes itself known: replication is pull, so followers must learn whom to ask."""

    cluster_id: str
    voter_id: NodeId
    voter_directory_id: UUID = ZERO_UUID
    leader_id: NodeId
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class BeginQuorumEpochResponse:
    """One voter's answer to a BeginQuorumEpochRequest."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class EndQuorumEpochRequest:
    """A leader says goodbye, naming who should follow it, the best one first."""

    cluster_id: str
    leader_id: NodeId
    leader_epoch: Epoch
    preferred_candidates: tuple[ReplicaKey, ...] = ()
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class EndQuorumEpochResponse:
    """One voter's answer to an EndQuorumEpochRequest."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()


@frozen(kw_only=True)
class FetchRequest:
    """A follower or an observer asks its leader for what comes after its log.

    The request is the acknowledgement too: `fetch_offset` is the end of what the sender has
    *flushed*, and a majority of those moves the high watermark.
    """

    cluster_id: str
    replica_id: NodeId
    replica_directory_id: UUID
    current_leader_epoch: Epoch
    fetch_offset: Offset
    last_fetched_epoch: Epoch
    """Epoch of the sender's last entry: where it differs from the leader's, the logs diverge."""
    high_watermark: Offset
    """What the sender knows to be committed; the leader answers at once when it knows more."""
    wait_ms_max: int
    bytes_max: int
    standing: Standing = Standing.FULL
    """The sender's: the leader decides nothing by it, and shows it to operators."""

    @property
    def replica_key(self) -> ReplicaKey:
        """Return who asks."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@frozen(kw_only=True)
class FetchResponse:
    """The leader's answer: records, or where to truncate, or which snapshot to take instead.

    At most one of `diverging`, `snapshot_id` and non-empty `records` is given.
    """

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    high_watermark: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    diverging: OffsetAndEpoch | None = None
    """The end of the last epoch both logs can share: the follower truncates to it at most."""
    snapshot_id: OffsetAndEpoch | None = None
    records: Records = b""


@frozen(kw_only=True)
class FetchSnapshotRequest:
    """A replica asks for a byte range of a snapshot, unaligned with its batches (KIP-630)."""

    cluster_id: str
    replica_id: NodeId
    replica_directory_id: UUID
    current_leader_epoch: Epoch
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int

    @property
    def replica_key(self) -> ReplicaKey:
        """Return who asks."""
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@frozen(kw_only=True)
class FetchSnapshotResponse:
    """A byte range of a snapshot, and how long the whole is."""

    error: ErrorCode = ErrorCode.NONE
    leader_id: NodeId | None = None
    leader_epoch: Epoch
    leader_endpoints: tuple[VoterEndpoint, ...] = ()
    snapshot_id: OffsetAndEpoch | None = None
    size_bytes: int = 0
    position: int = 0
    data: Records = b""


Request = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
)
Response = (
    VoteResponse
    | BeginQuorumEpochResponse
    | EndQuorumEpochResponse
    | FetchResponse
    | FetchSnapshotResponse
)
