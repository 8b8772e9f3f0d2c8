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
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint
from ottla.rpc.quorum_codec import ENDPOINTS_MAX, QUORUM_METHODS, TEXT_CHARS_MAX

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
    "voter": Voter(
        id=NodeId(104), directory_id=UUID(int=14), endpoints=ENDPOINTS, kraft_versions=(1, 3)
    ),
    "voter_key": ReplicaKey(NodeId(105), UUID(int=15)),
    "ack_when_committed": True,
    "message": "a reason",
    "kraft_versions": (1, 2),
}
RESPONSES = {
    raft.VoteRequest: raft.VoteResponse,
    raft.BeginQuorumEpochRequest: raft.BeginQuorumEpochResponse,
    raft.EndQuorumEpochRequest: raft.EndQuorumEpochResponse,
    raft.FetchRequest: raft.FetchResponse,
    raft.FetchSnapshotRequest: raft.FetchSnapshotResponse,
    raft.AddVoterRequest: raft.VoterChangeResponse,
    raft.RemoveVoterRequest: raft.VoterChangeResponse,
    raft.UpdateVoterRequest: raft.VoterChangeResponse,
    raft.DescribeReplicaRequest: raft.DescribeReplicaResponse,
}
ENDPOINT = pb.Endpoint(name="CONTROLLER", host="host", port=9093)


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


def test_every_request_of_the_quorum_has_its_test() -> None:
    assert set(RESPONSES) == set(QUORUM_METHODS)


@pytest.mark.parametrize(
    "fields",
    [
        {"endpoints": [pb.Endpoint(name=f"L{at}", host="h", port=1) for at in range(9)]},
        {"endpoints": [ENDPOINT, ENDPOINT]},
        {"endpoints": [pb.Endpoint(name="L", host="", port=1)]},
        {"endpoints": [pb.Endpoint(name="", host="h", port=1)]},
        {"endpoints": [pb.Endpoint(name="L", host="h" * (TEXT_CHARS_MAX + 1), port=1)]},
        {"endpoints": [pb.Endpoint(name="L" * (TEXT_CHARS_MAX + 1), host="h", port=1)]},
        {"endpoints": [pb.Endpoint(name="L", host="h", port=0)]},
        {"endpoints": [pb.Endpoint(name="L", host="h", port=1 << 16)]},
        {"kraft_version_min": -1},
        {"kraft_version_min": 2, "kraft_version_max": 1},
        {"kraft_version_max": 1 << 15},
        {"replica_directory_id": b"short"},
    ],
)
def test_a_voter_that_the_log_cannot_contain_is_the_peers_fault(fields: dict[str, Any]) -> None:
    for kind, message in (
        (raft.AddVoterRequest, pb.AddVoterRequest),
        (raft.UpdateVoterRequest, pb.UpdateVoterRequest),
    ):
        read = QUORUM_METHODS[kind].read_request
        read(message(endpoints=[ENDPOINT] if "endpoints" in fields else []))
        with pytest.raises(ProtocolError):
            read(message(**fields))


def test_a_voter_has_at_most_eight_endpoints() -> None:
    endpoints = [pb.Endpoint(name=f"L{at}", host="h", port=1) for at in range(ENDPOINTS_MAX)]
    request = QUORUM_METHODS[raft.AddVoterRequest].read_request(
        pb.AddVoterRequest(endpoints=endpoints)
    )
    assert len(request.voter.endpoints) == ENDPOINTS_MAX


def test_a_range_of_kraft_version_is_checked_in_the_answer_to_a_probe() -> None:
    read = QUORUM_METHODS[raft.DescribeReplicaRequest].read_response
    with pytest.raises(ProtocolError):
        read(pb.DescribeReplicaResponse(kraft_version_min=1))
