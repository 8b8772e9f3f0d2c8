"""Conversion of the quorum's messages between raft's classes and protobuf, field by field.

Pure. Raises ProtocolError for a malformed UUID or an unknown error code. The table at the end lists
the five methods of `ottla.quorum.Quorum`, each with its four conversions.
"""

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from uuid import UUID

from google.protobuf.message import Message

from ottla.model.errors import ErrorCode, ProtocolError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.proto import quorum_pb2 as pb
from ottla.raft import messages as raft
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey, VoterEndpoint
from ottla.rpc.method import RpcMethod

NO_LEADER = -1

_STANDINGS = {standing.value: standing for standing in Standing}
"""Standings by number. An unknown number was sent by a later version, and does not count as
FULL."""


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


def _head(response: raft.Response) -> dict[str, Any]:
    """Return the fields that all responses have in common: error, leader and epoch."""
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
    """Decode a UUID of 16 bytes.  Empty bytes become ZERO_UUID.  Raises ProtocolError for other
    lengths."""
    if not data:
        return ZERO_UUID
    if len(data) != 16:
        raise ProtocolError(f"a uuid of {len(data)} bytes")
    return UUID(bytes=data)


def error_code_of(number: int) -> ErrorCode:
    """Return the error code with a number.  Raises ProtocolError if Kafka has none with that
    number."""
    try:
        return ErrorCode(number)
    except ValueError as error:
        raise ProtocolError(f"error code {number}") from error


RaftRequest = TypeVar("RaftRequest", bound=raft.Request)
RaftResponse = TypeVar("RaftResponse", bound=raft.Response)


@frozen
class QuorumMethod(Generic[RaftRequest, RaftResponse]):
    """One of the quorum's five methods, with the conversions of its request and response."""

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
}
"""Methods and conversions, by raft's request class."""
