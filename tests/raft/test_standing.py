"""A voter whose files were damaged: it follows, and neither votes nor stands before it has caught
up."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, voter
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteResponse,
)
from ottla.raft.transitions import Role, Standing
from ottla.raft.voters import ReplicaKey

DAMAGED = ElectionState(epoch=Epoch(2), leader_id=NodeId(2), standing=Standing.CATCHING_UP)


def damaged(*epochs: int, election: ElectionState = DAMAGED) -> Solo:
    return Solo(1, election=election, entry_epochs=epochs, is_watched=False)


def answer_fetch(solo: Solo, *epochs: int, high_watermark: int, epoch: int = 2) -> None:
    """Answer the open fetch as the leader does, and flush the received records."""
    outgoing = next(one for one in solo.sent if isinstance(one.request, FetchRequest))
    entries = [MemoryEntry(Epoch(each), f"new {at}") for at, each in enumerate(epochs)]
    solo.respond(
        outgoing,
        FetchResponse(
            leader_id=NodeId(2),
            leader_epoch=Epoch(epoch),
            high_watermark=Offset(high_watermark),
            records=Entries(entries),
        ),
    )
    if epochs:
        solo.flushed()


@pytest.mark.parametrize("is_pre_vote", [True, False])
def test_a_voter_that_lost_entries_votes_for_no_log(is_pre_vote: bool) -> None:
    solo = damaged(1)

    request = solo.vote_request(
        3, epoch=2 if is_pre_vote else 3, end_offset=99, last_epoch=2, pre_vote=is_pre_vote
    )
    answer = solo.ask(request)

    assert isinstance(answer, VoteResponse)
    assert (answer.error, answer.vote_granted) == (ErrorCode.NONE, False)
    assert solo.persisted.voted is None if solo.member.election is not None else True


def test_a_voter_that_lost_entries_does_not_stand_however_long_it_waits() -> None:
    solo = damaged(1)

    for _ in range(20):
        solo.tick(10 * solo.config.fetch_timeout_ms)
        assert solo.role() in (Role.FOLLOWER, Role.UNATTACHED)
        for outgoing in list(solo.sent):
            solo.fail(outgoing)


def test_a_leader_that_lost_entries_leads_its_epoch_no_longer() -> None:
    own = ElectionState(
        epoch=Epoch(2),
        leader_id=NodeId(1),
        voted=ReplicaKey(NodeId(1), voter(1).directory_id),
        standing=Standing.CATCHING_UP,
    )

    assert damaged(1, election=own).role() is Role.UNATTACHED


def test_it_votes_again_with_all_of_a_later_leader_s_committed_entries() -> None:
    solo = damaged(1)
    solo.ask(
        BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=NodeId(1),
            voter_directory_id=voter(1).directory_id,
            leader_id=NodeId(2),
            leader_epoch=Epoch(3),
        )
    )

    answer_fetch(solo, 2, 2, high_watermark=3, epoch=3)
    assert solo.core.standing is Standing.CATCHING_UP, "nothing of the leader's epoch is committed"
    answer_fetch(solo, 3, high_watermark=3, epoch=3)
    assert solo.core.standing is Standing.CATCHING_UP
    answer_fetch(solo, high_watermark=4, epoch=3)

    assert solo.persisted.standing is Standing.FULL, "it is on disk before anything is answered"
    vote = solo.ask(solo.vote_request(3, epoch=4, end_offset=9, last_epoch=3))
    assert isinstance(vote, VoteResponse)
    assert vote.vote_granted


def test_a_leader_from_before_the_damage_may_count_lost_entries_until_its_log_ends() -> None:
    solo = damaged(1)
    solo.tick()

    answer_fetch(solo, 2, high_watermark=2)
    answer_fetch(solo, 2, high_watermark=2)
    assert solo.core.standing is Standing.CATCHING_UP, "it may have acknowledged what comes next"
    answer_fetch(solo, high_watermark=3)

    assert solo.persisted.standing is Standing.FULL


def test_a_voter_without_a_vote_fetches_nothing_before_all_others_have_named_their_epochs() -> None:
    forgotten = ElectionState(standing=Standing.AMNESIAC)
    solo = damaged(1, 2, election=forgotten)
    solo.tick()

    asked = {one.to: one for one in solo.sent}
    assert set(asked) == {2, 3}
    for one in asked.values():
        assert isinstance(one.request, FetchRequest)
        assert one.request.current_leader_epoch == 0, "a leader counts no fetch of that epoch"
    refusal = FetchResponse(
        error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(5)
    )
    solo.respond(asked[NodeId(3)], refusal)
    assert solo.core.standing is Standing.AMNESIAC
    assert all(
        isinstance(one.request, FetchRequest) and one.request.current_leader_epoch == 0
        for one in solo.sent
        if one.to == 3
    ), "its leader is not fetched from yet"
    again = next(one for one in solo.sent if one.to == 2)
    solo.respond(
        again, FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(4))
    )

    assert solo.persisted == ElectionState(
        epoch=Epoch(5), leader_id=NodeId(3), standing=Standing.CATCHING_UP
    )


def test_a_leader_elected_after_it_named_its_epoch_learns_of_the_lost_vote() -> None:
    """Its reply to DescribeQuorum then says why this voter lags, as long as another is down."""
    solo = damaged(1, 2, election=ElectionState(standing=Standing.AMNESIAC))
    solo.tick()
    asked = next(one for one in solo.sent if one.to == 3)
    solo.respond(
        asked, FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(4))
    )
    assert all(one.to != 3 for one in solo.sent)

    solo.ask(
        BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=NodeId(1),
            voter_directory_id=voter(1).directory_id,
            leader_id=NodeId(3),
            leader_epoch=Epoch(5),
        )
    )
    report = next(one for one in solo.sent if one.to == 3)
    assert isinstance(report.request, FetchRequest)
    assert (report.request.standing, report.request.current_leader_epoch) == (Standing.AMNESIAC, 0)
    refusal = FetchResponse(
        error=ErrorCode.FENCED_LEADER_EPOCH, leader_id=NodeId(3), leader_epoch=Epoch(5)
    )
    solo.respond(report, refusal)
    solo.tick(solo.config.request_timeout_ms)
    assert all(one.to != 3 for one in solo.sent), "it is reported once"
    assert solo.core.standing is Standing.AMNESIAC


def test_a_leader_that_remembers_only_its_candidacy_believes_that_it_led() -> None:
    """An older `quorum-state` has the vote and not the election (walk raft-damaged, 461929)."""
    own_vote = ElectionState(
        epoch=Epoch(2),
        voted=ReplicaKey(NodeId(1), voter(1).directory_id),
        standing=Standing.AMNESIAC,
    )
    solo = damaged(1, 2, election=own_vote)
    solo.tick()

    outgoing = next(one for one in solo.sent if one.to == 2)
    effects = solo.respond(
        outgoing,
        FetchResponse(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=NodeId(1), leader_epoch=Epoch(2)
        ),
    )

    assert effects.rejected is None, "the other voter is right"
    assert solo.role() is not Role.LEADER


def test_an_amnesiac_that_hears_only_some_stays_one() -> None:
    solo = damaged(1, election=ElectionState(standing=Standing.AMNESIAC))
    solo.tick()

    for _ in range(10):
        for outgoing in list(solo.sent):
            if outgoing.to == 2:
                solo.respond(
                    outgoing,
                    FetchResponse(error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(1)),
                )
            else:
                solo.fail(outgoing)
        solo.tick(1_000)

    assert solo.core.standing is Standing.AMNESIAC


@pytest.mark.parametrize("standing", Standing)
def test_a_leader_knows_the_standing_that_each_voter_reported_last(standing: Standing) -> None:
    solo = Solo(1)
    solo.become_leader()

    for reported in (standing, Standing.FULL):
        epoch = 0 if reported is Standing.AMNESIAC else None
        solo.ask(
            solo.fetch_request(2, offset=0, last_epoch=0, wait_ms=0, epoch=epoch, standing=reported)
        )
        described = solo.core.describe()

        assert described is not None
        standings = {int(one.key.id): one.standing for one in described.voters}
        assert standings == {1: Standing.FULL, 2: reported, 3: Standing.FULL}


def test_a_wiped_namesake_says_nothing_of_a_voter() -> None:
    solo = Solo(1)
    solo.become_leader()
    fetch = solo.fetch_request(2, offset=0, last_epoch=0, wait_ms=0, standing=Standing.CATCHING_UP)

    solo.ask(replace(fetch, replica_directory_id=UUID(int=99)))

    described = solo.core.describe()
    assert described is not None
    assert {one.standing for one in described.voters} == {Standing.FULL}


def test_a_damaged_voter_tells_its_standing_with_each_fetch() -> None:
    for standing in (Standing.CATCHING_UP, Standing.AMNESIAC):
        solo = damaged(1, election=replace(DAMAGED, standing=standing))
        solo.tick()
        fetches = [one.request for one in solo.sent if isinstance(one.request, FetchRequest)]
        assert fetches
        assert {fetch.standing for fetch in fetches} == {standing}
