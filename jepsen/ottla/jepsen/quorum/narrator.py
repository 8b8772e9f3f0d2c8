"""Describes events and effects of raft as text, one line each, in the format of the tests'
transcripts. The module does no I/O."""

from ottla.jepsen.quorum.member import entries_of
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft.effects import Effects, LeaderChangeAppend, OutgoingRequest
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    DescribeReplicaRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveVoterRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)


def effect_lines(effects: Effects) -> list[str]:
    """Return one line of text for each effect of a raft step on its own replica, in the order in
    which the effects are performed."""
    lines = []
    if effects.truncate_to is not None:
        lines.append(f"truncates to {effects.truncate_to}")
    for append in effects.append:
        what = "LeaderChange, " if isinstance(append, LeaderChangeAppend) else ""
        lines.append(f"appends {what}{', '.join(e.value for e in entries_of(append))}")
    if effects.snapshot_chunk is not None:
        chunk = effects.snapshot_chunk
        end = "and installs it" if chunk.is_last else "so far"
        lines.append(
            f"writes [{chunk.position}, {chunk.position + len(chunk.data)}) "
            f"of snapshot {_id(chunk.snapshot_id)} {end}"
        )
    if effects.persist_election is not None:
        lines.append(f"persists {_election(effects.persist_election)}")
    if effects.high_watermark is not None:
        lines.append(f"commits up to {effects.high_watermark}")
    if effects.role_change is not None:
        change = effects.role_change
        leader = "" if change.leader_id is None else f", leader {change.leader_id}"
        lines.append(f"is {change.role.value} in epoch {change.epoch}{leader}")
    return lines


def request_line(sender: NodeId, outgoing: OutgoingRequest) -> str:
    """Return a line of text that describes one raft request."""
    return f"{sender} -> {outgoing.to}: {_request(outgoing.request)}"


def response_line(sender: NodeId, receiver: NodeId, response: Response) -> str:
    """Return a line of text that describes one raft response."""
    return f"{sender} => {receiver}: {_response(response)}"


def _request(request: Request) -> str:
    match request:
        case VoteRequest():
            kind = "PreVote" if request.pre_vote else "Vote"
            return (
                f"{kind} epoch {request.replica_epoch}, "
                f"log ends at {request.end_offset} in epoch {request.last_epoch}"
            )
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch {request.leader_epoch}"
        case AddVoterRequest() | UpdateVoterRequest():
            kind = "AddVoter" if isinstance(request, AddVoterRequest) else "UpdateVoter"
            return f"{kind} {request.voter.id} in {request.voter.directory_id}"
        case RemoveVoterRequest():
            return f"RemoveVoter {request.voter_key.id} in {request.voter_key.directory_id}"
        case DescribeReplicaRequest():
            return "DescribeReplica"
        case EndQuorumEpochRequest():
            order = ", ".join(str(key.id) for key in request.preferred_candidates)
            return f"EndQuorumEpoch {request.leader_epoch}, preferred {order}"
        case FetchRequest():
            return (
                f"Fetch epoch {request.current_leader_epoch} from {request.fetch_offset} "
                f"after epoch {request.last_fetched_epoch}, committed {request.high_watermark}"
            )
        case FetchSnapshotRequest():
            return f"FetchSnapshot {_id(request.snapshot_id)} from {request.position}"


def _response(response: Response) -> str:
    if response.error is not ErrorCode.NONE:
        leader = "" if response.leader_id is None else f", leader {response.leader_id}"
        return f"{response.error.name} epoch {response.leader_epoch}{leader}"
    match response:
        case VoteResponse():
            return "granted" if response.vote_granted else "not granted"
        case FetchResponse():
            return _fetched(response)
        case FetchSnapshotResponse():
            return f"{len(response.data)} of {response.size_bytes} from {response.position}"
        case _:
            return "ok"


def _fetched(response: FetchResponse) -> str:
    if response.diverging is not None:
        return f"diverging after {_id(response.diverging)}"
    if response.snapshot_id is not None:
        return f"take snapshot {_id(response.snapshot_id)}"
    return f"{len(response.records)} entries, committed {response.high_watermark}"


def _id(pair: tuple[int, int]) -> str:
    return f"{pair[0]}-{pair[1]}"


def _election(state: ElectionState) -> str:
    voted = "none" if state.voted is None else str(state.voted.id)
    leader = "unknown" if state.leader_id is None else str(state.leader_id)
    return f"epoch {state.epoch}, voted {voted}, leader {leader}"
