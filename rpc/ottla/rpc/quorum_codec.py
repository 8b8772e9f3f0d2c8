"""Conversion of the quorum's messages between raft's classes and protobuf, field by field.

Pure. A conversion raises ProtocolError for a malformed UUID, an unknown error code, or an entry of
the voter set that the metadata log cannot contain. The table `QUORUM_METHODS` lists the methods of
`ottla.quorum.Quorum`, each with its four conversions.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from ottla.model.errors import ErrorCode, ProtocolError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.limits import INT16_MAX
from ottla.model.settings.endpoints import PORT_MAX
from ottla.model.values import frozen
from ottla.proto import quorum_pb2 as pb
from ottla.raft import messages as raft
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint
from ottla.rpc.method import RpcMethod

NO_LEADER = -1

ENDPOINTS_MAX = 8
"""Maximum number of endpoints of one quorum voter. Every voter set in the log contains all
endpoints of its voters."""

TEXT_CHARS_MAX = 255
"""Maximum length, in characters, of the listener name and of the host in a voter's endpoint (DNS's
limit for a name)."""

_STANDINGS = {standing.value: standing for standing in Standing}
"""Standing of a voter (its ability to vote and to acknowledge entries) by its number in a message.
An unknown number, which a later release sent, does not count as FULL."""


def _vote_request(request: raft.VoteRequest) -> pb.VoteRequest:
    return pb.VoteRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter_id,
        voter_directory_id=request.voter_directory_id.bytes,
        replica_id=request.replica_id,
        replica_directory_id=request.replica_directory_id.bytes,
        replica_epoch=request.replica_epoch,
        last_offset_epoch=request.last_epoch,
        last_offset=request.end_offset,
        pre_vote=request.pre_vote,
    )


def _read_vote_request(message: pb.VoteRequest) -> raft.VoteRequest:
    return raft.VoteRequest(
        cluster_id=message.cluster_id,
        voter_id=NodeId(message.voter_id),
        voter_directory_id=uuid_of(message.voter_directory_id),
        replica_id=NodeId(message.replica_id),
        replica_directory_id=uuid_of(message.replica_directory_id),
        replica_epoch=Epoch(message.replica_epoch),
        last_epoch=Epoch(message.last_offset_epoch),
        end_offset=Offset(message.last_offset),
        pre_vote=message.pre_vote,
    )


def _vote_response(response: raft.VoteResponse) -> pb.VoteResponse:
    return pb.VoteResponse(**_head(response), vote_granted=response.vote_granted)


def _read_vote_response(message: pb.VoteResponse) -> raft.VoteResponse:
    return raft.VoteResponse(**_read_head(message), vote_granted=message.vote_granted)


def _begin_request(request: raft.BeginQuorumEpochRequest) -> pb.BeginQuorumEpochRequest:
    return pb.BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=request.voter_id,
        voter_directory_id=request.voter_directory_id.bytes,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
        leader_endpoints=_endpoints(request.leader_endpoints),
    )


def _read_begin_request(message: pb.BeginQuorumEpochRequest) -> raft.BeginQuorumEpochRequest:
    return raft.BeginQuorumEpochRequest(
        cluster_id=message.cluster_id,
        voter_id=NodeId(message.voter_id),
        voter_directory_id=uuid_of(message.voter_directory_id),
        leader_id=NodeId(message.leader_id),
        leader_epoch=Epoch(message.leader_epoch),
        leader_endpoints=_read_endpoints(message.leader_endpoints),
    )


def _begin_response(response: raft.BeginQuorumEpochResponse) -> pb.BeginQuorumEpochResponse:
    return pb.BeginQuorumEpochResponse(**_head(response))


def _read_begin_response(message: pb.BeginQuorumEpochResponse) -> raft.BeginQuorumEpochResponse:
    return raft.BeginQuorumEpochResponse(**_read_head(message))


def _end_request(request: raft.EndQuorumEpochRequest) -> pb.EndQuorumEpochRequest:
    return pb.EndQuorumEpochRequest(
        cluster_id=request.cluster_id,
        leader_id=request.leader_id,
        leader_epoch=request.leader_epoch,
        preferred_candidates=[
            pb.ReplicaKey(id=key.id, directory_id=key.directory_id.bytes)
            for key in request.preferred_candidates
        ],
        leader_endpoints=_endpoints(request.leader_endpoints),
    )


def _read_end_request(message: pb.EndQuorumEpochRequest) -> raft.EndQuorumEpochRequest:
    return raft.EndQuorumEpochRequest(
        cluster_id=message.cluster_id,
        leader_id=NodeId(message.leader_id),
        leader_epoch=Epoch(message.leader_epoch),
        preferred_candidates=tuple(
            ReplicaKey(NodeId(key.id), uuid_of(key.directory_id))
            for key in message.preferred_candidates
        ),
        leader_endpoints=_read_endpoints(message.leader_endpoints),
    )


def _end_response(response: raft.EndQuorumEpochResponse) -> pb.EndQuorumEpochResponse:
    return pb.EndQuorumEpochResponse(**_head(response))


def _read_end_response(message: pb.EndQuorumEpochResponse) -> raft.EndQuorumEpochResponse:
    return raft.EndQuorumEpochResponse(**_read_head(message))


def _fetch_request(request: raft.FetchRequest) -> pb.FetchRequest:
    return pb.FetchRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica_id,
        replica_directory_id=request.replica_directory_id.bytes,
        current_leader_epoch=request.current_leader_epoch,
        fetch_offset=request.fetch_offset,
        last_fetched_epoch=request.last_fetched_epoch,
        high_watermark=request.high_watermark,
        bytes_max=request.bytes_max,
        wait_ms_max=request.wait_ms_max,
        standing=request.standing.value,
    )


def _read_fetch_request(message: pb.FetchRequest) -> raft.FetchRequest:
    return raft.FetchRequest(
        cluster_id=message.cluster_id,
        replica_id=NodeId(message.replica_id),
        replica_directory_id=uuid_of(message.replica_directory_id),
        current_leader_epoch=Epoch(message.current_leader_epoch),
        fetch_offset=Offset(message.fetch_offset),
        last_fetched_epoch=Epoch(message.last_fetched_epoch),
        high_watermark=Offset(message.high_watermark),
        bytes_max=message.bytes_max,
        wait_ms_max=message.wait_ms_max,
        standing=_STANDINGS.get(message.standing, Standing.CATCHING_UP),
    )


def _fetch_response(response: raft.FetchResponse) -> pb.FetchResponse:
    return pb.FetchResponse(
        **_head(response),
        high_watermark=response.high_watermark,
        log_start_offset=response.log_start_offset,
        diverging_epoch=_position(response.diverging),
        snapshot_id=_position(response.snapshot_id),
        records=_bytes(response.records),
    )


def _read_fetch_response(message: pb.FetchResponse) -> raft.FetchResponse:
    return raft.FetchResponse(
        **_read_head(message),
        high_watermark=Offset(message.high_watermark),
        log_start_offset=Offset(message.log_start_offset),
        diverging=(
            _read_position(message.diverging_epoch) if message.HasField("diverging_epoch") else None
        ),
        snapshot_id=_read_position(message.snapshot_id)
        if message.HasField("snapshot_id")
        else None,
        records=message.records,
    )


def _snapshot_request(request: raft.FetchSnapshotRequest) -> pb.FetchSnapshotRequest:
    return pb.FetchSnapshotRequest(
        cluster_id=request.cluster_id,
        replica_id=request.replica_id,
        replica_directory_id=request.replica_directory_id.bytes,
        current_leader_epoch=request.current_leader_epoch,
        snapshot_id=_position(request.snapshot_id),
        position=request.position,
        bytes_max=request.bytes_max,
    )


def _read_snapshot_request(message: pb.FetchSnapshotRequest) -> raft.FetchSnapshotRequest:
    return raft.FetchSnapshotRequest(
        cluster_id=message.cluster_id,
        replica_id=NodeId(message.replica_id),
        replica_directory_id=uuid_of(message.replica_directory_id),
        current_leader_epoch=Epoch(message.current_leader_epoch),
        snapshot_id=_read_position(message.snapshot_id),
        position=message.position,
        bytes_max=message.bytes_max,
    )


def _snapshot_response(response: raft.FetchSnapshotResponse) -> pb.FetchSnapshotResponse:
    return pb.FetchSnapshotResponse(
        **_head(response),
        snapshot_id=_position(response.snapshot_id),
        size_bytes=response.size_bytes,
        position=response.position,
        unaligned_records=_bytes(response.data),
    )


def _read_snapshot_response(message: pb.FetchSnapshotResponse) -> raft.FetchSnapshotResponse:
    return raft.FetchSnapshotResponse(
        **_read_head(message),
        snapshot_id=_read_position(message.snapshot_id)
        if message.HasField("snapshot_id")
        else None,
        size_bytes=message.size_bytes,
        position=message.position,
        data=message.unaligned_records,
    )


def _add_voter_request(request: raft.AddVoterRequest) -> pb.AddVoterRequest:
    return pb.AddVoterRequest(
        cluster_id=request.cluster_id,
        **_voter(request.voter),
        ack_when_committed=request.ack_when_committed,
    )


def _read_add_voter_request(message: pb.AddVoterRequest) -> raft.AddVoterRequest:
    return raft.AddVoterRequest(
        cluster_id=message.cluster_id,
        voter=_read_voter(message),
        ack_when_committed=message.ack_when_committed,
    )


def _remove_voter_request(request: raft.RemoveVoterRequest) -> pb.RemoveVoterRequest:
    return pb.RemoveVoterRequest(
        cluster_id=request.cluster_id,
        replica_id=request.voter_key.id,
        replica_directory_id=request.voter_key.directory_id.bytes,
    )


def _read_remove_voter_request(message: pb.RemoveVoterRequest) -> raft.RemoveVoterRequest:
    return raft.RemoveVoterRequest(
        cluster_id=message.cluster_id,
        voter_key=ReplicaKey(NodeId(message.replica_id), uuid_of(message.replica_directory_id)),
    )


def _update_voter_request(request: raft.UpdateVoterRequest) -> pb.UpdateVoterRequest:
    return pb.UpdateVoterRequest(
        cluster_id=request.cluster_id,
        leader_epoch=request.leader_epoch,
        **_voter(request.voter),
    )


def _read_update_voter_request(message: pb.UpdateVoterRequest) -> raft.UpdateVoterRequest:
    return raft.UpdateVoterRequest(
        cluster_id=message.cluster_id,
        leader_epoch=Epoch(message.leader_epoch),
        voter=_read_voter(message),
    )


def _voter_change_response(response: raft.VoterChangeResponse) -> pb.VoterChangeResponse:
    return pb.VoterChangeResponse(**_head(response), error_message=response.message)


def _read_voter_change_response(message: pb.VoterChangeResponse) -> raft.VoterChangeResponse:
    return raft.VoterChangeResponse(
        **_read_head(message),
        message=message.error_message if message.HasField("error_message") else None,
    )


def _describe_replica_request(request: raft.DescribeReplicaRequest) -> pb.DescribeReplicaRequest:
    return pb.DescribeReplicaRequest(cluster_id=request.cluster_id, leader_id=request.leader_id)


def _read_describe_replica_request(
    message: pb.DescribeReplicaRequest,
) -> raft.DescribeReplicaRequest:
    return raft.DescribeReplicaRequest(
        cluster_id=message.cluster_id, leader_id=NodeId(message.leader_id)
    )


def _describe_replica_response(
    response: raft.DescribeReplicaResponse,
) -> pb.DescribeReplicaResponse:
    return pb.DescribeReplicaResponse(
        **_head(response),
        replica_id=response.replica_id,
        replica_directory_id=response.replica_directory_id.bytes,
        kraft_version_min=response.kraft_versions[0],
        kraft_version_max=response.kraft_versions[1],
    )


def _read_describe_replica_response(
    message: pb.DescribeReplicaResponse,
) -> raft.DescribeReplicaResponse:
    return raft.DescribeReplicaResponse(
        **_read_head(message),
        replica_id=NodeId(message.replica_id),
        replica_directory_id=uuid_of(message.replica_directory_id),
        kraft_versions=_read_kraft_versions(message),
    )


def _voter(voter: Voter) -> dict[str, Any]:
    """Return the fields of the protobuf message for an entry in the voter set."""
    return {
        "replica_id": voter.id,
        "replica_directory_id": voter.directory_id.bytes,
        "endpoints": _endpoints(voter.endpoints),
        "kraft_version_min": voter.kraft_versions[0],
        "kraft_version_max": voter.kraft_versions[1],
    }


def _read_voter(message: pb.AddVoterRequest | pb.UpdateVoterRequest) -> Voter:
    voter = Voter(
        id=NodeId(message.replica_id),
        directory_id=uuid_of(message.replica_directory_id),
        endpoints=_read_endpoints(message.endpoints[: ENDPOINTS_MAX + 1]),
        kraft_versions=_read_kraft_versions(message),
    )
    fault = fault_of_endpoints(voter.endpoints)
    if fault is not None:
        raise ProtocolError(fault)
    return voter


def fault_of_endpoints(endpoints: tuple[VoterEndpoint, ...]) -> str | None:
    """Return the reason why a voter in the log cannot have these endpoints, as one sentence.
    Returns None if the endpoints are valid."""
    if len(endpoints) > ENDPOINTS_MAX:
        return f"A voter has at most {ENDPOINTS_MAX} endpoints."
    if len({one.name for one in endpoints}) < len(endpoints):
        return "Two endpoints of a voter have the same listener name."
    for name, host, port in endpoints:
        if not 0 < len(name) <= TEXT_CHARS_MAX or not 0 < len(host) <= TEXT_CHARS_MAX:
            return (
                "An endpoint of a voter has a listener name and a host of at most"
                f" {TEXT_CHARS_MAX} characters each."
            )
        if not 0 < port <= PORT_MAX:
            return f"The port of a voter's endpoint is from 1 to {PORT_MAX}, not {port}."
    return None


def _read_kraft_versions(message: Any) -> tuple[int, int]:
    low, high = message.kraft_version_min, message.kraft_version_max
    if not 0 <= low <= high <= INT16_MAX:
        raise ProtocolError(f"a range of kraft.version from {low} to {high}")
    return low, high


def _head(response: raft.Response) -> dict[str, Any]:
    """Return the protobuf fields that all responses of the quorum have in common: error, leader and
    epoch."""
    return {
        "error_code": int(response.error),
        "leader_id": NO_LEADER if response.leader_id is None else response.leader_id,
        "leader_epoch": response.leader_epoch,
        "leader_endpoints": _endpoints(response.leader_endpoints),
    }


def _read_head(message: Any) -> dict[str, Any]:
    return {
        "error": error_code_of(message.error_code),
        "leader_id": None if message.leader_id == NO_LEADER else NodeId(message.leader_id),
        "leader_epoch": Epoch(message.leader_epoch),
        "leader_endpoints": _read_endpoints(message.leader_endpoints),
    }


def _endpoints(endpoints: Iterable[VoterEndpoint]) -> list[pb.Endpoint]:
    return [pb.Endpoint(name=name, host=host, port=port) for name, host, port in endpoints]


def _read_endpoints(endpoints: Iterable[pb.Endpoint]) -> tuple[VoterEndpoint, ...]:
    return tuple(VoterEndpoint(row.name, row.host, row.port) for row in endpoints)


def _position(position: OffsetAndEpoch | None) -> pb.OffsetAndEpoch | None:
    if position is None:
        return None
    return pb.OffsetAndEpoch(offset=position.offset, epoch=position.epoch)


def _read_position(message: pb.OffsetAndEpoch) -> OffsetAndEpoch:
    return OffsetAndEpoch(Offset(message.offset), Epoch(message.epoch))


def _bytes(records: raft.Records) -> bytes:
    if isinstance(records, bytes):
        return records
    return bytes(records) if isinstance(records, memoryview) else records.read()


def uuid_of(data: bytes) -> UUID:
    """Decode a UUID of 16 bytes. Empty bytes become ZERO_UUID. Raises ProtocolError for other
    lengths."""
    if not data:
        return ZERO_UUID
    if len(data) != 16:
        raise ProtocolError(f"a uuid of {len(data)} bytes")
    return UUID(bytes=data)


def error_code_of(number: int) -> ErrorCode:
    """Return Kafka's error code with this number. Raises ProtocolError if Kafka has no such error
    code."""
    try:
        return ErrorCode(number)
    except ValueError as error:
        raise ProtocolError(f"error code {number}") from error


RaftRequest = TypeVar("RaftRequest", bound=raft.Request)
RaftResponse = TypeVar("RaftResponse", bound=raft.Response)


@frozen
class QuorumMethod(Generic[RaftRequest, RaftResponse]):
    """One gRPC method of the quorum, with the conversions of its request and response between
    raft's classes and protobuf."""

    method: RpcMethod[Any, Any]
    write_request: Callable[[RaftRequest], Message]
    read_request: Callable[[Any], RaftRequest]
    write_response: Callable[[RaftResponse], Message]
    read_response: Callable[[Any], RaftResponse]


def _method(name: str, request: type[Any], response: type[Any]) -> RpcMethod[Any, Any]:
    return RpcMethod(f"/ottla.quorum.Quorum/{name}", request, response)


QUORUM_METHODS: dict[type[Any], QuorumMethod[Any, Any]] = {
    raft.VoteRequest: QuorumMethod(
        _method("Vote", pb.VoteRequest, pb.VoteResponse),
        _vote_request,
        _read_vote_request,
        _vote_response,
        _read_vote_response,
    ),
    raft.BeginQuorumEpochRequest: QuorumMethod(
        _method("BeginQuorumEpoch", pb.BeginQuorumEpochRequest, pb.BeginQuorumEpochResponse),
        _begin_request,
        _read_begin_request,
        _begin_response,
        _read_begin_response,
    ),
    raft.EndQuorumEpochRequest: QuorumMethod(
        _method("EndQuorumEpoch", pb.EndQuorumEpochRequest, pb.EndQuorumEpochResponse),
        _end_request,
        _read_end_request,
        _end_response,
        _read_end_response,
    ),
    raft.FetchRequest: QuorumMethod(
        _method("Fetch", pb.FetchRequest, pb.FetchResponse),
        _fetch_request,
        _read_fetch_request,
        _fetch_response,
        _read_fetch_response,
    ),
    raft.FetchSnapshotRequest: QuorumMethod(
        _method("FetchSnapshot", pb.FetchSnapshotRequest, pb.FetchSnapshotResponse),
        _snapshot_request,
        _read_snapshot_request,
        _snapshot_response,
        _read_snapshot_response,
    ),
    raft.AddVoterRequest: QuorumMethod(
        _method("AddVoter", pb.AddVoterRequest, pb.VoterChangeResponse),
        _add_voter_request,
        _read_add_voter_request,
        _voter_change_response,
        _read_voter_change_response,
    ),
    raft.RemoveVoterRequest: QuorumMethod(
        _method("RemoveVoter", pb.RemoveVoterRequest, pb.VoterChangeResponse),
        _remove_voter_request,
        _read_remove_voter_request,
        _voter_change_response,
        _read_voter_change_response,
    ),
    raft.UpdateVoterRequest: QuorumMethod(
        _method("UpdateVoter", pb.UpdateVoterRequest, pb.VoterChangeResponse),
        _update_voter_request,
        _read_update_voter_request,
        _voter_change_response,
        _read_voter_change_response,
    ),
    raft.DescribeReplicaRequest: QuorumMethod(
        _method("DescribeReplica", pb.DescribeReplicaRequest, pb.DescribeReplicaResponse),
        _describe_replica_request,
        _read_describe_replica_request,
        _describe_replica_response,
        _read_describe_replica_response,
    ),
}
"""The quorum's gRPC methods with their conversions, by raft's request class."""
