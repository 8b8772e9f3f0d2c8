"""Unattached, Prospective and Candidate: candidacies, votes and winners."""

import pytest

from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, voter
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId
from ottla.raft.effects import LeaderChangeAppend
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey


def votes_sent(solo: Solo) -> list[VoteRequest]:
    return [m.request for m in solo.sent if isinstance(m.request, VoteRequest)]


def begin_request(leader: int, epoch: int, receiver: int) -> BeginQuorumEpochRequest:
    return BeginQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        voter_id=NodeId(receiver),
        voter_directory_id=voter(receiver).directory_id,
        leader_id=NodeId(leader),
        leader_epoch=Epoch(epoch),
        leader_endpoints=voter(leader).endpoints,
    )


def test_a_quorum_of_one_leads_at_its_first_tick() -> None:
    solo = Solo(1, (1,))

    solo.tick()

    assert solo.core.is_leader
    assert solo.core.epoch == 1
    assert solo.persisted == ElectionState(
        epoch=Epoch(1), leader_id=NodeId(1), voted=ReplicaKey(NodeId(1), voter(1).directory_id)
    )
    assert solo.sent == []


def test_a_quorum_of_one_leads_the_next_epoch_at_once_after_a_restart() -> None:
    state = ElectionState(epoch=Epoch(4), leader_id=NodeId(1), voted=voter(1).key)
    solo = Solo(1, (1,), election=state, entry_epochs=(4, 4))

    solo.tick()

    assert solo.core.is_leader
    assert solo.core.epoch == 5
    assert solo.core.epoch_start_offset == 2


def test_on_a_fresh_quorum_the_lowest_id_asks_at_once_and_the_others_wait() -> None:
    first, second = Solo(1), Solo(2)

    first.tick()
    second.tick()

    assert first.role() is Role.PROSPECTIVE
    assert [request.pre_vote for request in votes_sent(first)] == [True, True]
    assert second.role() is Role.UNATTACHED
    assert votes_sent(second) == []


def test_an_unattached_voter_looks_for_a_leader_by_fetching_until_its_timeout() -> None:
    solo = Solo(2)

    solo.tick()

    (outgoing,) = solo.sent
    assert isinstance(outgoing.request, FetchRequest)
    assert outgoing.request.wait_ms_max == 0


def test_a_pre_vote_leaves_no_trace_on_disk_and_no_new_epoch() -> None:
    solo = Solo(1)

    solo.tick()

    assert solo.effects.persist_election is None
    assert solo.core.epoch == 0


def test_a_majority_of_pre_votes_makes_a_candidate_that_votes_for_itself_durably() -> None:
    solo = Solo(1)
    solo.tick()

    solo.respond(solo.sent[0], VoteResponse(leader_epoch=Epoch(0), vote_granted=True))

    assert solo.role() is Role.CANDIDATE
    assert solo.persisted.epoch == 1
    assert solo.persisted.voted == voter(1).key
    assert [(r.replica_epoch, r.pre_vote) for r in votes_sent(solo)] == [(1, False), (1, False)]


def test_a_majority_of_votes_makes_a_leader_that_opens_its_epoch_in_the_log() -> None:
    solo = Solo(1)
    solo.become_candidate()

    effects = solo.respond(solo.sent[0], VoteResponse(leader_epoch=Epoch(1), vote_granted=True))

    assert solo.core.is_leader
    assert solo.persisted.leader_id == 1
    (append,) = effects.append
    assert isinstance(append, LeaderChangeAppend)
    assert append.leader_epoch == 1
    assert [key.id for key in append.voters] == [1, 2, 3]
    assert [key.id for key in append.granting_voters] == [1, 2]
    assert effects.flush


def test_five_voters_need_three_votes() -> None:
    solo = Solo(1, (1, 2, 3, 4, 5))
    solo.tick()
    granted = VoteResponse(leader_epoch=Epoch(0), vote_granted=True)
    asked = list(solo.sent)

    solo.respond(asked[0], granted)
    assert solo.role() is Role.PROSPECTIVE
    solo.respond(asked[1], granted)

    assert solo.role() is Role.CANDIDATE


def test_a_rejected_pre_vote_sends_a_follower_back_to_the_leader_the_others_hear() -> None:
    state = ElectionState(epoch=Epoch(2), leader_id=NodeId(3))
    solo = Solo(1, election=state)
    solo.tick()
    solo.tick(2 * solo.config.fetch_timeout_ms)
    assert solo.role() is Role.PROSPECTIVE

    for outgoing in list(solo.sent):
        solo.respond(outgoing, VoteResponse(leader_epoch=Epoch(2), leader_id=NodeId(3)))

    assert solo.role() is Role.FOLLOWER
    assert solo.core.leader_id == 3
    assert solo.core.epoch == 2


def test_a_voter_that_turned_us_down_and_then_stands_with_less_is_asked_again() -> None:
    """Else the better log would sit out its election timeout, for the lesser one can not win."""
    state = ElectionState(epoch=Epoch(2), leader_id=NodeId(3))
    solo = Solo(1, election=state, entry_epochs=(2, 2))
    solo.tick()
    solo.tick(2 * solo.config.fetch_timeout_ms)
    to_2 = next(message for message in solo.sent if message.to == 2)
    solo.respond(to_2, VoteResponse(leader_epoch=Epoch(2), leader_id=NodeId(3)))

    solo.ask(solo.vote_request(2, epoch=2, end_offset=1, last_epoch=2, pre_vote=True))

    assert [message.to for message in solo.sent] == [2]
    assert votes_sent(solo)[0].pre_vote


def test_a_no_that_was_overtaken_by_its_senders_own_candidacy_is_out_of_date() -> None:
    solo = Solo(1, election=ElectionState(epoch=Epoch(2), leader_id=NodeId(3)), entry_epochs=(2, 2))
    solo.tick()
    solo.tick(2 * solo.config.fetch_timeout_ms)
    to_2 = next(message for message in solo.sent if message.to == 2)
    solo.ask(solo.vote_request(2, epoch=2, end_offset=1, last_epoch=2, pre_vote=True))

    solo.respond(to_2, VoteResponse(leader_epoch=Epoch(2), leader_id=NodeId(3)))
    solo.tick(solo.config.retry_backoff_ms)

    assert 2 in [message.to for message in solo.sent], "it is asked again"


def test_a_prospective_that_loses_without_a_leader_waits_its_timeout_again() -> None:
    solo = Solo(1)
    solo.tick()

    for outgoing in list(solo.sent):
        solo.respond(outgoing, VoteResponse(leader_epoch=Epoch(0)))

    assert solo.role() is Role.UNATTACHED


def test_a_candidate_that_loses_pauses_and_asks_for_pre_votes_again_in_its_epoch() -> None:
    solo = Solo(1)
    solo.become_candidate()
    for outgoing in list(solo.sent):
        solo.respond(outgoing, VoteResponse(leader_epoch=Epoch(1)))
    assert solo.role() is Role.CANDIDATE

    solo.tick_when_due()

    assert solo.role() is Role.PROSPECTIVE
    assert solo.core.epoch == 1
    assert solo.now_ms - 2 * solo.config.election_timeout_ms > 0
    assert all(request.pre_vote for request in votes_sent(solo))


def test_a_vote_split_beside_a_dead_voter_is_tried_again_after_a_pause() -> None:
    """Waiting for the dead leader's vote would cost the whole election timeout."""
    solo = Solo(1)
    solo.become_candidate()
    rival, dead = solo.sent
    solo.respond(rival, VoteResponse(leader_epoch=solo.core.epoch))
    solo.fail(dead)
    assert solo.role() is Role.CANDIDATE

    solo.tick(solo.config.election_backoff_ms_max)

    assert solo.role() is Role.PROSPECTIVE


def test_a_candidate_that_hears_nothing_tries_again_after_its_election_timeout() -> None:
    solo = Solo(1)
    solo.become_candidate()

    solo.tick(2 * solo.config.election_timeout_ms)

    assert solo.role() is Role.PROSPECTIVE


def test_a_failed_vote_request_is_asked_again_after_its_back_off() -> None:
    solo = Solo(1)
    solo.tick()
    outgoing = solo.sent[0]

    solo.fail(outgoing)
    assert solo.sent == []
    solo.tick(solo.config.retry_backoff_ms)

    assert [message.to for message in solo.sent] == [outgoing.to]
    assert solo.sent[0].request == outgoing.request


def test_an_answer_that_comes_twice_or_too_late_is_dropped() -> None:
    solo = Solo(1)
    solo.tick()
    pre_vote = solo.sent[0]
    granted = VoteResponse(leader_epoch=Epoch(0), vote_granted=True)
    solo.respond(pre_vote, granted)

    solo.respond(pre_vote, granted)

    assert solo.role() is Role.CANDIDATE, "a pre-vote must not count as a vote"


def test_a_higher_epoch_in_an_answer_ends_a_candidacy() -> None:
    solo = Solo(1)
    solo.become_candidate()

    solo.respond(solo.sent[0], VoteResponse(leader_epoch=Epoch(7)))

    assert solo.role() is Role.UNATTACHED
    assert solo.core.epoch == 7
    assert solo.persisted == ElectionState(epoch=Epoch(7))


def test_a_candidate_follows_the_winner_of_its_epoch() -> None:
    solo = Solo(1)
    solo.become_candidate()

    solo.ask(begin_request(2, 1, 1))

    assert solo.role() is Role.FOLLOWER
    assert solo.core.leader_id == 2
    assert solo.persisted == ElectionState(epoch=Epoch(1), leader_id=NodeId(2), voted=voter(1).key)


class TestVoting:
    """Responses of a voter to vote requests."""

    def test_a_vote_is_on_disk_before_it_is_granted_and_only_one_an_epoch(self) -> None:
        solo = Solo(1)

        first = solo.ask(solo.vote_request(2, epoch=3))
        assert solo.persisted == ElectionState(epoch=Epoch(3), voted=voter(2).key)
        second = solo.ask(solo.vote_request(3, epoch=3))
        again = solo.ask(solo.vote_request(2, epoch=3))

        assert isinstance(first, VoteResponse)
        assert isinstance(second, VoteResponse)
        assert isinstance(again, VoteResponse)
        assert (first.vote_granted, second.vote_granted, again.vote_granted) == (True, False, True)

    def test_a_restart_does_not_forget_the_vote(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(3), voted=voter(2).key))

        answer = solo.ask(solo.vote_request(3, epoch=3))

        assert isinstance(answer, VoteResponse)
        assert not answer.vote_granted

    def test_a_lower_epoch_is_fenced_with_the_higher_one(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(5)))

        answer = solo.ask(solo.vote_request(2, epoch=4))

        assert answer == VoteResponse(error=ErrorCode.FENCED_LEADER_EPOCH, leader_epoch=Epoch(5))

    @pytest.mark.parametrize(
        ("end_offset", "last_epoch", "is_granted"),
        [(2, 2, True), (3, 2, True), (1, 2, False), (9, 1, False), (1, 3, True)],
    )
    def test_the_candidates_log_must_be_as_new_as_ours(
        self, end_offset: int, last_epoch: int, is_granted: bool
    ) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(2)), entry_epochs=(1, 2))

        answer = solo.ask(
            solo.vote_request(2, epoch=5, end_offset=end_offset, last_epoch=last_epoch)
        )

        assert isinstance(answer, VoteResponse)
        assert answer.vote_granted is is_granted

    def test_a_leader_never_grants_in_its_own_epoch(self) -> None:
        solo = Solo(1)
        solo.become_leader()

        for pre_vote in (True, False):
            request = solo.vote_request(
                2, epoch=1, end_offset=9, last_epoch=1 if pre_vote else 0, pre_vote=pre_vote
            )
            answer = solo.ask(request)

            assert isinstance(answer, VoteResponse)
            assert not answer.vote_granted
            assert answer.leader_id == 1

    def test_a_follower_grants_pre_votes_only_until_its_leader_has_answered(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(2), leader_id=NodeId(3)))
        solo.tick()
        (fetch,) = solo.sent
        before = solo.ask(solo.vote_request(2, epoch=2, pre_vote=True))
        solo.respond(fetch, FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(2)))

        after = solo.ask(solo.vote_request(2, epoch=2, pre_vote=True))

        assert isinstance(before, VoteResponse)
        assert isinstance(after, VoteResponse)
        assert (before.vote_granted, after.vote_granted) == (True, False)

    def test_a_follower_never_votes_in_the_epoch_of_its_leader(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(2), leader_id=NodeId(3)))

        answer = solo.ask(solo.vote_request(2, epoch=2))

        assert isinstance(answer, VoteResponse)
        assert not answer.vote_granted

    def test_a_wiped_voter_refuses_to_vote_and_never_stands(self) -> None:
        solo = Solo(1, is_wiped=True)

        answer = solo.ask(solo.vote_request(2, epoch=3))
        solo.tick(60_000)

        assert isinstance(answer, VoteResponse)
        assert answer.error is ErrorCode.INVALID_VOTER_KEY
        assert solo.role() is Role.UNATTACHED
        assert votes_sent(solo) == []

    def test_a_stranger_gets_no_vote(self) -> None:
        solo = Solo(1)

        answer = solo.ask(solo.vote_request(8, epoch=3))

        assert isinstance(answer, VoteResponse)
        assert answer.error is ErrorCode.INCONSISTENT_VOTER_SET
        assert solo.core.epoch == 0

    def test_another_cluster_learns_nothing_and_teaches_nothing(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(2), leader_id=NodeId(3)))
        request = begin_request(2, 9, 1)
        foreign = BeginQuorumEpochRequest(
            cluster_id="another",
            voter_id=request.voter_id,
            leader_id=request.leader_id,
            leader_epoch=request.leader_epoch,
        )

        answer = solo.ask(foreign)

        assert answer is not None
        assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert answer.leader_id is None
        assert answer.leader_epoch == -1
        assert solo.core.epoch == 2

    @pytest.mark.parametrize(("pre_vote", "last_epoch"), [(True, 4), (False, 3)])
    def test_a_log_newer_than_its_own_candidacy_is_nonsense(
        self, pre_vote: bool, last_epoch: int
    ) -> None:
        solo = Solo(1)

        answer = solo.ask(
            solo.vote_request(2, epoch=3, end_offset=5, last_epoch=last_epoch, pre_vote=pre_vote)
        )

        assert isinstance(answer, VoteResponse)
        assert answer.error is ErrorCode.INVALID_REQUEST


def test_a_log_ahead_of_quorum_state_decides_the_first_epoch() -> None:
    solo = Solo(1, election=ElectionState(epoch=Epoch(1)), entry_epochs=(1, 3))

    solo.tick()

    assert solo.core.epoch == 3
    assert solo.persisted.epoch == 3
