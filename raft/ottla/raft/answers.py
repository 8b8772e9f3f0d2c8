"""Checks of requests from other replicas, responses that name the known leader, and the delay after
a leader's resignation.

Pure functions that read a replica's state and never change it. A refusal is a normal response of
the protocol, not a fault. The requester had an old epoch or contacted the wrong node, and learns
the current epoch and leader.
"""

from typing import Any

from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH, ZERO_UUID, Epoch, NodeId
from ottla.raft.effects import ReadSnapshot, Reply
from ottla.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeReplicaRequest,
    DescribeReplicaResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.replica import Replica
from ottla.raft.voters import KRAFT_VERSION, VOTERS_MAX, ReplicaKey, VoterEndpoint

_ANSWERS: dict[type[Request], type[Response]] = {
    VoteRequest: VoteResponse,
    BeginQuorumEpochRequest: BeginQuorumEpochResponse,
    EndQuorumEpochRequest: EndQuorumEpochResponse,
    FetchRequest: FetchResponse,
    FetchSnapshotRequest: FetchSnapshotResponse,
    AddVoterRequest: VoterChangeResponse,
    RemoveVoterRequest: VoterChangeResponse,
    UpdateVoterRequest: VoterChangeResponse,
    DescribeReplicaRequest: DescribeReplicaResponse,
}


def is_answer_to(response: Response, request: Request) -> bool:
    """Return whether a response has the type that belongs to the type of a request."""
    return type(response) is _ANSWERS[type(request)]


# --- refusals -----------------------------------------------------------------------------------


def vote_error(replica: Replica, request: VoteRequest, now_ms: int) -> ErrorCode:
    """Return the error code that rejects a vote request without considering the vote, or NONE if
    the vote must be decided."""
    if request.cluster_id != replica.identity.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.replica_epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if not _is_meant_for(replica, request.voter_id, request.voter_directory_id):
        return ErrorCode.INVALID_VOTER_KEY
    # A candidate that is not in this replica's voter set may be in a later one, and need the vote.
    is_known = replica.identity.voters.is_voter(request.replica_key)
    if not is_known and not replica.identity.is_controller:
        return ErrorCode.INCONSISTENT_VOTER_SET
    if request.replica_id == replica.identity.node_id:
        return ErrorCode.INVALID_REQUEST
    if not replica.may_be_raised_to(request.replica_epoch, now_ms):
        return ErrorCode.INVALID_REQUEST
    # A candidate's epoch is new, so no log can have an entry of it yet.
    last_epoch_max = request.replica_epoch - (0 if request.pre_vote else 1)
    is_sane = 0 <= request.last_epoch <= last_epoch_max and request.end_offset >= 0
    return ErrorCode.NONE if is_sane else ErrorCode.INVALID_REQUEST


def begin_error(replica: Replica, request: BeginQuorumEpochRequest, now_ms: int) -> ErrorCode:
    """Return the error code that rejects a BeginQuorumEpoch request, or NONE if this replica
    accepts it."""
    error = _leader_claim_error(replica, request, now_ms)
    if error is ErrorCode.NONE and not _is_meant_for(
        replica, request.voter_id, request.voter_directory_id
    ):
        return ErrorCode.INVALID_VOTER_KEY
    return error


def end_error(replica: Replica, request: EndQuorumEpochRequest, now_ms: int) -> ErrorCode:
    """Return the error code that rejects an EndQuorumEpoch request, or NONE if this replica accepts
    it."""
    if len(request.preferred_candidates) > VOTERS_MAX:
        return ErrorCode.INVALID_REQUEST
    return _leader_claim_error(replica, request, now_ms)


def fetch_error(
    replica: Replica, is_leader: bool, request: FetchRequest | FetchSnapshotRequest
) -> ErrorCode:
    """Return the error code that refuses a fetch of records or of a snapshot, or NONE if this
    replica may serve the fetch."""
    if request.cluster_id != replica.identity.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.current_leader_epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.current_leader_epoch > replica.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if request.bytes_max <= 0 or request.replica_id == replica.identity.node_id:
        return ErrorCode.INVALID_REQUEST
    if request.replica_id < 0:
        return ErrorCode.INVALID_REQUEST
    if isinstance(request, FetchRequest) and not (
        request.fetch_offset >= 0 and 0 <= request.last_fetched_epoch <= replica.epoch
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _leader_claim_error(
    replica: Replica, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int
) -> ErrorCode:
    identity = replica.identity
    if request.cluster_id != identity.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if request.leader_epoch < replica.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.leader_id == identity.node_id:
        return ErrorCode.INVALID_REQUEST
    if replica.reachable(request.leader_id, request.leader_endpoints) is None:
        return ErrorCode.INVALID_REQUEST
    if request.leader_epoch <= 0 or not replica.may_be_raised_to(request.leader_epoch, now_ms):
        return ErrorCode.INVALID_REQUEST
    if replica.contradicts(request.leader_id, request.leader_epoch):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _is_meant_for(replica: Replica, voter_id: NodeId, directory_id: Any) -> bool:
    """Return whether a request with this voter id and directory id is addressed to this replica.

    A node whose disk was replaced is a different replica with the same id, so the directory id must
    match too.
    """
    identity = replica.identity
    is_ours = voter_id == identity.node_id and directory_id in (ZERO_UUID, identity.directory_id)
    return is_ours and identity.keeps_votes


# --- responses ----------------------------------------------------------------------------------


def vote(
    replica: Replica,
    leader_id: NodeId | None,
    error: ErrorCode = ErrorCode.NONE,
    *,
    is_granted: bool = False,
) -> VoteResponse:
    """Return this replica's response to a VoteRequest. It names the leader that the replica
    knows."""
    return VoteResponse(vote_granted=is_granted, **_hints(replica, leader_id, error))


def begin(replica: Replica, leader_id: NodeId | None, error: ErrorCode) -> BeginQuorumEpochResponse:
    """Return this replica's response to a BeginQuorumEpochRequest. It names the leader that the
    replica knows."""
    return BeginQuorumEpochResponse(**_hints(replica, leader_id, error))


def end(replica: Replica, leader_id: NodeId | None, error: ErrorCode) -> EndQuorumEpochResponse:
    """Return this replica's response to an EndQuorumEpochRequest. It names the leader that the
    replica knows."""
    return EndQuorumEpochResponse(**_hints(replica, leader_id, error))


def fetch(replica: Replica, leader_id: NodeId | None, error: ErrorCode) -> FetchResponse:
    """Return a FetchResponse with the error and the leader that this replica knows. The leader
    fields are empty if the sender of the request belongs to another cluster."""
    assert error is not ErrorCode.NONE
    return FetchResponse(**_hints(replica, leader_id, error))


def fetch_snapshot(
    replica: Replica, leader_id: NodeId | None, token: int, request: FetchSnapshotRequest
) -> Reply:
    """Return the reply to a FetchSnapshotRequest, which names the leader that this replica knows.
    The reply includes the read of the snapshot's bytes, which the driver performs."""
    is_leader = leader_id == replica.identity.node_id
    error = fetch_error(replica, is_leader, request)
    size_bytes = replica.log.snapshot_size_bytes(request.snapshot_id)
    read = None
    if error is ErrorCode.NONE:
        if size_bytes is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < size_bytes:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        else:
            bytes_max = min(request.bytes_max, replica.config.fetch_snapshot_bytes_max)
            read = ReadSnapshot(
                snapshot_id=request.snapshot_id, position=request.position, bytes_max=bytes_max
            )
    response = FetchSnapshotResponse(
        snapshot_id=request.snapshot_id,
        size_bytes=size_bytes or 0,
        position=request.position,
        **_hints(replica, leader_id, error),
    )
    return Reply(token=token, response=response, read=read)


def _hints(replica: Replica, leader_id: NodeId | None, error: ErrorCode) -> dict[str, Any]:
    """Return the fields of a response that contain the known leader and epoch. They are empty if
    the sender of the request belongs to another cluster."""
    epoch: Epoch = replica.epoch
    if error is ErrorCode.INCONSISTENT_CLUSTER_ID:
        leader_id, epoch = None, NO_EPOCH
    return {
        "error": error,
        "leader_id": leader_id,
        "leader_epoch": epoch,
        "leader_endpoints": endpoints_of_leader(replica, leader_id),
    }


def change_error(replica: Replica, is_leader: bool, request: VoterChangeRequest) -> ErrorCode:
    """Return the error code that refuses a request to change the voter set, or NONE if the leader
    may decide the change."""
    if request.cluster_id != replica.identity.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if not is_leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if isinstance(request, UpdateVoterRequest) and request.leader_epoch != replica.epoch:
        is_old = request.leader_epoch < replica.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def change(replica: Replica, leader_id: NodeId | None, error: ErrorCode) -> VoterChangeResponse:
    """Return the response that refuses a request to change the voter set."""
    return VoterChangeResponse(**_hints(replica, leader_id, error))


def describe_replica(
    replica: Replica, leader_id: NodeId | None, request: DescribeReplicaRequest
) -> DescribeReplicaResponse:
    """Return the response to a DescribeReplicaRequest, with this replica's identity. A request for
    another cluster is refused."""
    identity = replica.identity
    if request.cluster_id != identity.cluster_id:
        hints = _hints(replica, leader_id, ErrorCode.INCONSISTENT_CLUSTER_ID)
        return DescribeReplicaResponse(**hints)
    return DescribeReplicaResponse(
        replica_id=identity.node_id,
        replica_directory_id=identity.directory_id,
        kraft_versions=(0, KRAFT_VERSION),
        **_hints(replica, leader_id, ErrorCode.NONE),
    )


def endpoints_of_leader(replica: Replica, leader_id: NodeId | None) -> tuple[VoterEndpoint, ...]:
    """Return a leader's endpoints from the voter set, from this node's settings if this node is the
    leader, or from a message. Returns an empty tuple if the endpoints are unknown."""
    if leader_id is None:
        return ()
    identity = replica.identity
    found = identity.voters.endpoints_of(leader_id)
    if not found and leader_id == identity.node_id:
        return identity.endpoints
    return found or (replica.leader_endpoints if leader_id == replica.epoch_leader_id else ())


def succession_pause_ms(replica: Replica, preferred: tuple[ReplicaKey, ...]) -> int:
    """Return the time in ms that this replica must wait before it stands for election after the
    leader resigned.

    The first replica in `preferred` (the leader's preferred successors) waits zero ms; each further
    replica waits longer. A replica that is not in `preferred` waits longest.
    """
    longest_ms = replica.config.election_backoff_ms_max
    ids = [key.id for key in preferred]
    if replica.identity.node_id not in ids:
        return longest_ms
    position = ids.index(replica.identity.node_id)
    if position == 0:
        return 0
    # Distinct powers of two: increasing with each position, never above the longest.
    shortest_ms = max(1, longest_ms >> (len(ids) - 1))
    return min(longest_ms, shortest_ms << (position - 1))
