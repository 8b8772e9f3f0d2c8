"""Raft's messages there and back through protobuf, with every field set."""

import dataclasses
from typing import Any
from uuid import UUID

import pytest

from ottla.model.errors import ErrorCode, ProtocolError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.proto import quorum_pb2 as pb
from ottla.raft import messages as raft
from ottla.raft.transitions import Standing
from ottla.raft.voters import ReplicaKey, VoterEndpoint
from ottla.rpc.quorum_codec import QUORUM_METHODS

ENDPOINTS = (VoterEndpoint("CONTROLLER", "host", 9093), VoterEndpoint("OTHER", "::1", 1))
POSITION = OffsetAndEpoch(Offset(77), Epoch(5))
VALUES: dict[str, Any] = {
    "cluster_id": "31KS2JtqQaygF2owBPlqAQ",
    "voter_id": NodeId(101),
    "voter_directory_id": UUID(int=11),
    "replica_id": NodeId(102),
    "replica_directory_id": UUID(int=12),
    "replica_epoch": Epoch(3),
    "last_epoch": Epoch(2),
    "end_offset": Offset(1 << 40),
    "pre_vote": True,
    "leader_id": NodeId(103),
    "leader_epoch": Epoch(4),
    "leader_endpoints": ENDPOINTS,
    "preferred_candidates": (ReplicaKey(NodeId(1), UUID(int=1)), ReplicaKey(NodeId(2))),
    "current_leader_epoch": Epoch(6),
    "fetch_offset": Offset(99),
    "last_fetched_epoch": Epoch(7),
    "high_watermark": Offset(98),
    "wait_ms_max": 500,
    "bytes_max": 1 << 20,
    "snapshot_id": POSITION,
    "position": 12,
    "error": ErrorCode.FENCED_LEADER_EPOCH,
    "vote_granted": True,
    "log_start_offset": Offset(9),
    "diverging": OffsetAndEpoch(Offset(8), Epoch(1)),
    "records": b"batches",
    "size_bytes": 1234,
    "data": b"bytes",
    "standing": Standing.AMNESIAC,
}
RESPONSES = {
    raft.VoteRequest: raft.VoteResponse,
    raft.BeginQuorumEpochRequest: raft.BeginQuorumEpochResponse,
    raft.EndQuorumEpochRequest: raft.EndQuorumEpochResponse,
    raft.FetchRequest: raft.FetchResponse,
    raft.FetchSnapshotRequest: raft.FetchSnapshotResponse,
}


def full(kind: type[Any]) -> Any:
    return kind(**{part.name: VALUES[part.name] for part in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", RESPONSES, ids=lambda kind: kind.__name__)
def test_every_field_of_a_request_comes_back(kind: type[Any]) -> None:
    method = QUORUM_METHODS[kind]
    data = method.write_request(full(kind)).SerializeToString()
    assert method.read_request(method.method.decode_request(data)) == full(kind)


@pytest.mark.parametrize("kind", RESPONSES, ids=lambda kind: kind.__name__)
def test_every_field_of_a_response_comes_back(kind: type[Any]) -> None:
    method, response = QUORUM_METHODS[kind], full(RESPONSES[kind])
    data = method.write_response(response).SerializeToString()
    assert method.read_response(method.method.decode_response(data)) == response


@pytest.mark.parametrize("kind", RESPONSES, ids=lambda kind: kind.__name__)
def test_what_a_response_leaves_out_stays_out(kind: type[Any]) -> None:
    method, response = QUORUM_METHODS[kind], RESPONSES[kind](leader_epoch=Epoch(0))
    data = method.write_response(response).SerializeToString()
    assert method.read_response(method.method.decode_response(data)) == response


def test_a_uuid_of_another_length_is_the_peers_fault() -> None:
    message = pb.VoteRequest(voter_directory_id=b"short")
    with pytest.raises(ProtocolError):
        QUORUM_METHODS[raft.VoteRequest].read_request(message)


def test_an_unknown_error_code_is_the_peers_fault() -> None:
    with pytest.raises(ProtocolError):
        QUORUM_METHODS[raft.VoteRequest].read_response(pb.VoteResponse(error_code=9999))
