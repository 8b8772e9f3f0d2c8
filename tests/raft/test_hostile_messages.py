"""A replica refuses impossible messages of other replicas, and continues.

Any process can send a quorum's requests, and a listener at a voter's address its responses.
"""

import os
from dataclasses import fields, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, voter
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.limits import INT32_MAX, INT64_MAX
from ottla.raft import election_state
from ottla.raft.effects import OutgoingRequest
from ottla.raft.election_state import ElectionState
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
    UpdateVoterRequest,
    VoterChangeResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.transitions import Role
from ottla.raft.trust import EPOCH_JUMP_MAX, EPOCH_MAX
from ottla.raft.voters import ReplicaKey, Voter, VoterEndpoint

ROLES = (
    "unattached",
    "follower",
    "prospective",
    "candidate",
    "leader",
    "resigned",
    "wiped",
    "alone",
)


def started(role: str) -> Solo:
    """Return a replica in a role, with a log of a few entries."""
    if role == "alone":
        solo = Solo(voter_ids=(1,), is_watched=False)
        solo.tick()
        solo.flushed()
        return solo
    state = ElectionState(
        epoch=Epoch(2), leader_id=NodeId(3) if role in ("follower", "wiped") else None
    )
    solo = Solo(election=state, entry_epochs=(1, 1, 2), is_wiped=role == "wiped", is_watched=False)
    solo.tick()
    if role == "prospective":
        solo.tick(2 * solo.config.election_timeout_ms)
    elif role == "candidate":
        solo.become_candidate()
    elif role in ("leader", "resigned"):
        solo.become_leader()
    if role == "resigned":
        solo.tick(2 * solo.config.fetch_timeout_ms)
    return solo


def claim(kind: type[Any], epoch: int, leader_id: int = 2) -> Any:
    """Return a leader's greeting or goodbye to replica 1."""
    if kind is EndQuorumEpochRequest:
        return EndQuorumEpochRequest(
            cluster_id=CLUSTER_ID, leader_id=NodeId(leader_id), leader_epoch=Epoch(epoch)
        )
    return BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        voter_id=NodeId(1),
        voter_directory_id=voter(1).directory_id,
        leader_id=NodeId(leader_id),
        leader_epoch=Epoch(epoch),
    )


def asked(solo: Solo, kind: type[Any], epoch: int) -> ErrorCode:
    """Ask by a vote request, a greeting or a goodbye of an epoch; return the answer's error."""
    request = (
        solo.vote_request(2, epoch=epoch, end_offset=9, last_epoch=2)
        if kind is VoteRequest
        else claim(kind, epoch)
    )
    answer = solo.ask(request)
    assert answer is not None
    return answer.error


RAISING = (VoteRequest, BeginQuorumEpochRequest, EndQuorumEpochRequest)


@pytest.mark.parametrize("role", ROLES[:6])
@pytest.mark.parametrize("kind", RAISING)
@pytest.mark.parametrize("epoch", [INT32_MAX, INT32_MAX - 1, 3 + EPOCH_JUMP_MAX + 10])
def test_a_request_of_an_epoch_far_ahead_is_refused_and_leaves_no_trace(
    role: str, kind: type[Any], epoch: int
) -> None:
    solo = started(role)
    before = (solo.core.role, solo.core.election_state, solo.member.election)
    assert asked(solo, kind, epoch) is ErrorCode.INVALID_REQUEST
    assert (solo.core.role, solo.core.election_state, solo.member.election) == before


@pytest.mark.parametrize("kind", RAISING)
def test_repeated_jumps_use_up_one_epoch_only(kind: type[Any]) -> None:
    solo = started("unattached")
    for _ in range(300):
        asked(solo, kind, solo.core.epoch + EPOCH_JUMP_MAX)
        asked(solo, kind, solo.core.epoch + EPOCH_JUMP_MAX // 2)
    assert solo.core.epoch == 2 + EPOCH_JUMP_MAX
    # In the long run they raise it as fast as elections do, at most.
    solo.now_ms += 60_000
    for _ in range(10_000):
        asked(solo, kind, solo.core.epoch + 1)
    assert solo.core.epoch == 2 + EPOCH_JUMP_MAX + 600


def test_a_replica_that_refused_an_epoch_learns_it_from_an_answer() -> None:
    """A peer at a voter's own address is trusted more than the sender of a request."""
    solo = started("unattached")
    asked(solo, BeginQuorumEpochRequest, solo.core.epoch + EPOCH_JUMP_MAX)
    (outgoing,) = solo.sent
    away = Epoch(solo.core.epoch + 1_000_000)
    assert asked(solo, BeginQuorumEpochRequest, away) is ErrorCode.INVALID_REQUEST

    answer = FetchResponse(
        error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(2), leader_epoch=away
    )
    solo.respond(outgoing, answer)
    assert (solo.core.epoch, solo.core.leader_id) == (away, 2)


@pytest.mark.parametrize("kind", [BeginQuorumEpochRequest, EndQuorumEpochRequest])
@pytest.mark.parametrize("role", ["follower", "leader", "resigned"])
def test_a_second_leader_of_an_epoch_is_refused(kind: type[Any], role: str) -> None:
    solo = started(role)
    before = (solo.core.role, solo.core.election_state)
    assert asked(solo, kind, solo.core.epoch) is ErrorCode.INVALID_REQUEST
    assert (solo.core.role, solo.core.election_state) == before


def test_an_answer_that_names_a_second_leader_is_disbelieved() -> None:
    solo = started("follower")
    effects = solo.respond(solo.sent[0], FetchResponse(leader_id=NodeId(2), leader_epoch=Epoch(2)))
    assert effects.rejected is not None
    assert solo.core.leader_id == 3


def test_no_other_replica_can_declare_a_candidate_the_winner() -> None:
    solo = Solo(1, is_watched=False)
    solo.become_candidate()
    answer = VoteResponse(leader_id=NodeId(1), leader_epoch=solo.core.epoch)
    effects = solo.respond(solo.sent[0], answer)
    assert effects.rejected is not None
    assert solo.core.election_state.leader_id is None


def test_no_voter_stands_for_election_in_the_last_epoch() -> None:
    solo = Solo(election=ElectionState(epoch=EPOCH_MAX), is_watched=False)
    for _ in range(50):
        solo.tick(solo.config.election_timeout_ms)
    assert (solo.core.epoch, solo.role()) == (EPOCH_MAX, Role.UNATTACHED)


def test_a_snapshots_fetch_by_a_stranger_is_no_sign_of_a_voters_life() -> None:
    solo = started("leader")
    request = FetchSnapshotRequest(
        cluster_id="another",
        replica_id=NodeId(2),
        replica_directory_id=voter(2).directory_id,
        current_leader_epoch=solo.core.epoch,
        snapshot_id=OffsetAndEpoch(Offset(3), Epoch(2)),
        position=0,
        bytes_max=1,
    )
    for _ in range(10):
        solo.now_ms += solo.config.fetch_timeout_ms // 2
        solo.ask(request)
    assert solo.role() is not Role.LEADER


def test_a_leader_that_parts_from_what_is_committed_is_disbelieved() -> None:
    solo = started("follower")
    solo.respond(
        solo.sent[0],
        FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(2), high_watermark=Offset(3)),
    )
    assert solo.core.high_watermark == 3
    answers = (
        {"diverging": OffsetAndEpoch(Offset(1), Epoch(1))},
        {"diverging": OffsetAndEpoch(Offset(-1), Epoch(-1))},
        {"snapshot_id": OffsetAndEpoch(Offset(1), Epoch(1))},
        {"snapshot_id": OffsetAndEpoch(Offset(9), Epoch(-1))},
    )
    for answer in answers:
        while not solo.sent:
            solo.tick_when_due()
        effects = solo.respond(
            solo.sent[0],
            FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(2), **answer),  # type: ignore[arg-type]
        )
        assert effects.rejected is not None
        assert effects.truncate_to is None


# --- any message at all -------------------------------------------------------------------------


INT32 = st.one_of(
    st.integers(-2, 6),
    st.integers(-(1 << 31), INT32_MAX),
    st.sampled_from([INT32_MAX, INT32_MAX - 1, EPOCH_JUMP_MAX, 2 + EPOCH_JUMP_MAX, -(1 << 31)]),
)
INT64 = st.one_of(INT32, st.integers(-(1 << 63), INT64_MAX))
POSITIONS = st.builds(
    lambda offset, epoch: OffsetAndEpoch(Offset(offset), Epoch(epoch)), INT64, INT32
)
UUIDS = st.sampled_from([ZERO_UUID, UUID(int=7), *(voter(one).directory_id for one in (1, 2, 3))])
ENTRIES = st.lists(
    st.builds(lambda value: MemoryEntry(Epoch(2), value), st.text(max_size=2)), max_size=2
).map(Entries)
BY_TYPE: dict[str, st.SearchStrategy[Any]] = {
    "cluster_id": st.sampled_from([CLUSTER_ID, CLUSTER_ID, CLUSTER_ID, "another"]),
    "error": st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, *ErrorCode]),
    "pre_vote": st.booleans(),
    "vote_granted": st.booleans(),
    "leader_endpoints": st.just((VoterEndpoint("A", "nowhere", 0),)),
    "preferred_candidates": st.lists(
        st.builds(ReplicaKey, INT32.map(NodeId), UUIDS), max_size=5
    ).map(tuple),
    "records": ENTRIES,
    "data": ENTRIES,
    "voter": st.builds(
        lambda id_, directory, endpoints: Voter(
            id=NodeId(id_), directory_id=directory, endpoints=endpoints
        ),
        st.one_of(st.integers(0, 4), INT32),
        UUIDS,
        st.sampled_from([(), (VoterEndpoint("A", "nowhere", 9),), (VoterEndpoint("A", "", 0),)]),
    ),
    "voter_key": st.builds(ReplicaKey, st.integers(0, 4).map(NodeId), UUIDS),
    "ack_when_committed": st.booleans(),
    "message": st.none(),
    "kraft_versions": st.tuples(INT32, INT32),
    "diverging": st.none() | POSITIONS,
    "snapshot_id": POSITIONS,
}
REQUESTS: tuple[type[Any], ...] = (
    *RAISING,
    FetchRequest,
    FetchSnapshotRequest,
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    DescribeReplicaRequest,
)
ANSWERS: dict[type[Any], type[Any]] = {
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


def values(name: str) -> st.SearchStrategy[Any]:
    """Return the values of a field: likely ones, and those at the edges."""
    known = BY_TYPE.get(name)
    if known is not None:
        return known
    if "directory" in name:
        return UUIDS
    if name.endswith(("_id", "_epoch", "_max")):
        return INT32
    return INT64


def messages(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return any message of a kind."""
    return st.builds(kind, **{field.name: values(field.name) for field in fields(kind)})


def mostly_true(solo: Solo, message: Any, is_true: list[bool]) -> Any:
    """Put the present truth into some of a message's fields, so that more of it is looked at."""
    truth = {
        "leader_epoch": solo.core.epoch,
        "replica_epoch": Epoch(solo.core.epoch + 1),
        "current_leader_epoch": solo.core.epoch,
        "voter_id": NodeId(1),
        "voter_directory_id": voter(1).directory_id,
        "leader_id": solo.core.leader_id or NodeId(2),
        "replica_id": NodeId(2),
        "replica_directory_id": voter(2).directory_id,
        "fetch_offset": solo.log.end_offset,
        "last_fetched_epoch": solo.log.last_epoch,
        "error": ErrorCode.NONE,
    }
    names = [field.name for field in fields(message) if field.name in truth]
    chosen = {name: truth[name] for name, each in zip(names, is_true, strict=False) if each}
    return replace(message, **chosen)


CHOICES = st.lists(st.booleans(), min_size=8, max_size=8)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.one_of(*map(messages, REQUESTS)), CHOICES),
        st.tuples(st.just("answer"), st.tuples(*map(messages, ANSWERS.values())), CHOICES),
        st.tuples(st.just("wait"), st.sampled_from([0, 1, 50, 600, 3_000]), CHOICES),
    ),
    min_size=1,
    max_size=12,
)


def take(solo: Solo, open_: list[OutgoingRequest], step: tuple[str, Any, list[bool]]) -> None:
    """Let one thing happen to a replica."""
    what, content, is_true = step
    if what == "ask":
        request: Request = mostly_true(solo, content, is_true)
        solo.ask(request)
    elif what == "answer" and open_:
        outgoing = open_.pop(0)
        at = list(ANSWERS).index(type(outgoing.request))
        solo.respond(outgoing, mostly_true(solo, content[at], is_true))
    elif what == "wait":
        solo.tick(content)
    open_.extend(solo.sent)
    if solo.member.wants_flush:
        solo.flushed()
        open_.extend(solo.sent)


@pytest.mark.parametrize("role", ROLES)
@settings(max_examples=int(os.environ.get("OTTLA_FUZZ_EXAMPLES", "40")), deadline=None)
@given(steps=STEPS)
def test_no_message_ends_a_replica_or_leaves_nonsense_on_its_disk(
    role: str, steps: list[tuple[str, Any, list[bool]]]
) -> None:
    solo = started(role)
    open_ = list(solo.sent)
    for step in steps:
        take(solo, open_, step)
        assert 0 <= solo.core.epoch <= EPOCH_MAX
        assert 0 <= solo.core.high_watermark <= max(solo.log.end_offset, solo.core.high_watermark)
        if solo.member.election is not None:
            data = election_state.encode(solo.member.election)
            assert election_state.decode(data) == solo.member.election
