"""Fuzz target: gRPC messages between nodes (the codec in both directions, and raft's core).

The core receives arbitrary messages of a peer. It may end with an error if a message breaks one of
the INVARIANTS, which are valid only among honest peers. Any other failure is a bug.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from google.protobuf.message import DecodeError

from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.jepsen.fuzz.targets.decisions import broker_requests
from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, voter
from ottla.model.errors import ErrorCode, ProtocolError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.raft import messages as raft
from ottla.rpc import controller_methods
from ottla.rpc.method import RpcMethod
from ottla.rpc.quorum_codec import QUORUM_METHODS
from ottla.rpc.status import refusal_of

# ---- the codec

KINDS = tuple(QUORUM_METHODS)
METHODS: tuple[RpcMethod[Any, Any], ...] = tuple(
    one for one in vars(controller_methods).values() if isinstance(one, RpcMethod)
)


def _conversation(data: bytes) -> None:
    talk = QUORUM_METHODS[KINDS[data[0] % len(KINDS)]] if data else QUORUM_METHODS[KINDS[0]]
    if data[1:2] < b"\x80":
        request = talk.read_request(talk.method.decode_request(data[2:]))
        assert talk.read_request(talk.write_request(request)) == request
    else:
        response = talk.read_response(talk.method.decode_response(data[2:]))
        assert talk.read_response(talk.write_response(response)) == response


def _method(data: bytes) -> None:
    method = METHODS[data[0] % len(METHODS)] if data else METHODS[0]
    method.decode_request(data[1:])
    method.decode_response(data[1:])


def _status(data: bytes) -> None:
    status, _, code = data.decode("latin-1").partition(" ")
    refusal_of(status, code, code)


# ---- raft's core

STEPS_MAX = 24
EPOCH = Epoch(5)
LAST = OffsetAndEpoch(Offset(3), Epoch(2))
"""End of the raft log of the replica under test: offset and epoch."""


INVARIANTS = ("MonotonicEpoch", "OneLeaderPerEpoch", "ConsistentCommittedData")
"""Names of raft invariants that a dishonest voter can break. The node must stop before that
happens."""


def _core(data: bytes) -> None:
    try:
        _course(data)
    except AssertionError as broken:
        if not str(broken).startswith(INVARIANTS):
            raise


def _course(data: bytes) -> None:
    """Pass the sequence of events in an input to raft's core. Each event is a byte for its kind,
    followed by a message if that kind has one."""
    solo = Solo(entry_epochs=(1, 1, 2))
    solo.member._invariants = None  # they hold among honest peers only
    at = 0
    for _ in range(STEPS_MAX):
        if at + 3 > len(data):
            break
        step, length = data[at], int.from_bytes(data[at + 1 : at + 3])
        message = data[at + 3 : at + 3 + length]
        at += 3 + length
        _play(solo, step, message)


def _play(solo: Solo, step: int, message: bytes) -> None:
    if step < 0x20:
        solo.tick(step * 100)
    elif step < 0x30:
        solo.flushed()
    elif step < 0x90:
        talk = QUORUM_METHODS[KINDS[step % len(KINDS)]]
        solo.ask(talk.read_request(talk.method.decode_request(message)))
    elif solo.sent:
        outgoing = solo.sent[step % len(solo.sent)]
        talk = QUORUM_METHODS[type(outgoing.request)]
        answer = talk.read_response(talk.method.decode_response(message))
        solo.respond(outgoing, _in_memory(answer))


def _in_memory(answer: raft.Response) -> raft.Response:
    """Return a copy of a raft response in which entries of a log in memory replace the encoded
    batches."""
    entries = Entries([MemoryEntry(Epoch(max(1, answer.leader_epoch)), "x")])
    if isinstance(answer, raft.FetchResponse) and len(answer.records):
        return replace(answer, records=entries)
    if isinstance(answer, raft.FetchSnapshotResponse) and len(answer.data):
        return replace(answer, data=entries)
    return answer


ME, OTHER = voter(1), voter(2)
LEADER: dict[str, Any] = {
    "leader_id": OTHER.id,
    "leader_epoch": EPOCH,
    "leader_endpoints": OTHER.endpoints,
}
WHOM: dict[str, Any] = {
    "cluster_id": CLUSTER_ID,
    "voter_id": ME.id,
    "voter_directory_id": ME.directory_id,
}
WHO: dict[str, Any] = {"replica_id": OTHER.id, "replica_directory_id": OTHER.directory_id}


def _raft_values() -> Iterator[tuple[type[Any], raft.Request, raft.Response]]:
    for request, response in (*_elections(), *_fetches(), *_voter_changes()):
        yield type(request), request, response


def _elections() -> tuple[tuple[raft.Request, raft.Response], ...]:
    return (
        (
            raft.VoteRequest(
                **WHOM,
                **WHO,
                replica_epoch=EPOCH,
                last_epoch=LAST.epoch,
                end_offset=LAST.offset,
                pre_vote=False,
            ),
            raft.VoteResponse(**LEADER, vote_granted=True),
        ),
        (
            raft.BeginQuorumEpochRequest(**WHOM, leader_id=OTHER.id, leader_epoch=EPOCH),
            raft.BeginQuorumEpochResponse(**LEADER),
        ),
        (
            raft.EndQuorumEpochRequest(
                cluster_id=CLUSTER_ID,
                leader_id=OTHER.id,
                leader_epoch=EPOCH,
                preferred_candidates=(ME.key,),
            ),
            raft.EndQuorumEpochResponse(**LEADER),
        ),
    )


def _fetches() -> tuple[tuple[raft.Request, raft.Response], ...]:
    return (
        (
            raft.FetchRequest(
                cluster_id=CLUSTER_ID,
                **WHO,
                current_leader_epoch=EPOCH,
                fetch_offset=LAST.offset,
                last_fetched_epoch=LAST.epoch,
                high_watermark=Offset(1),
                wait_ms_max=500,
                bytes_max=1_000,
            ),
            raft.FetchResponse(
                **LEADER,
                high_watermark=Offset(2),
                log_start_offset=Offset(0),
                diverging=OffsetAndEpoch(Offset(2), Epoch(1)),
                snapshot_id=LAST,
                records=b"r",
            ),
        ),
        (
            raft.FetchSnapshotRequest(
                cluster_id=CLUSTER_ID,
                **WHO,
                current_leader_epoch=EPOCH,
                snapshot_id=LAST,
                position=0,
                bytes_max=100,
            ),
            raft.FetchSnapshotResponse(
                **LEADER, snapshot_id=LAST, size_bytes=1, position=0, data=b"d"
            ),
        ),
    )


def _voter_changes() -> tuple[tuple[raft.Request, raft.Response], ...]:
    changed = raft.VoterChangeResponse(
        **LEADER, error=ErrorCode.REQUEST_TIMED_OUT, message="a previous change"
    )
    return (
        (raft.AddVoterRequest(cluster_id=CLUSTER_ID, voter=OTHER), changed),
        (raft.RemoveVoterRequest(cluster_id=CLUSTER_ID, voter_key=OTHER.key), changed),
        (raft.UpdateVoterRequest(cluster_id=CLUSTER_ID, leader_epoch=EPOCH, voter=OTHER), changed),
        (
            raft.DescribeReplicaRequest(cluster_id=CLUSTER_ID, leader_id=OTHER.id),
            raft.DescribeReplicaResponse(
                **LEADER, replica_id=OTHER.id, replica_directory_id=OTHER.directory_id
            ),
        ),
    )


def _good_conversations() -> Iterator[bytes]:
    for kind, request, response in _raft_values():
        talk, number = QUORUM_METHODS[kind], bytes([KINDS.index(kind)])
        yield number + b"\0" + talk.write_request(request).SerializeToString()
        yield number + b"\xff" + talk.write_response(response).SerializeToString()


def _good_courses(random: Random) -> Iterator[bytes]:
    asked = []
    answers = []
    for kind, request, response in _raft_values():
        talk = QUORUM_METHODS[kind]
        body = talk.write_request(request).SerializeToString()
        # A step modulo the number of kinds selects the kind of its request.
        step = next(one for one in range(0x30, 0x90) if one % len(KINDS) == KINDS.index(kind))
        asked.append(bytes([step]) + len(body).to_bytes(2) + body)
        body = talk.write_response(response).SerializeToString()
        answers.append(b"\x90" + len(body).to_bytes(2) + body)
    wait, flush = b"\x1f\0\0", b"\x20\0\0"
    granted = answers[0]
    for message in (*asked, *answers):
        yield message
        yield wait + message
        yield wait + granted + granted + flush + message
        yield asked[1] + wait + message + wait
    for _ in range(20):
        yield b"".join(random.choices([*asked, *answers, wait, flush], k=8))


def _good_methods() -> Iterator[bytes]:
    for number, request in enumerate(broker_requests()):
        yield bytes([number % len(METHODS)]) + request.SerializeToString()


READERS: tuple[Callable[[bytes], None], ...] = (_conversation, _method, _status, _core)


def _check(data: bytes) -> None:
    READERS[number_of(data, len(READERS))](data[2:])


def _seeds(random: Random) -> Iterator[bytes]:
    statuses = (b"UNAVAILABLE", b"FAILED_PRECONDITION 41", b"X -1", b"UNIMPLEMENTED 9999")
    return numbered((_good_conversations(), _good_methods(), statuses, _good_courses(random)))


def _name_of(data: bytes) -> str:
    return READERS[number_of(data, len(READERS))].__name__.strip("_")


PEERS = FuzzTarget(
    name="peers",
    sentence="gRPC between nodes: the quorum's and the controller's messages, and raft's core",
    check=_check,
    seeds=_seeds,
    refusals=(ProtocolError, DecodeError),
    name_of=_name_of,
)
