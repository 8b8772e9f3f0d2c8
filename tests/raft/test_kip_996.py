"""KIP-996, pre-vote: the claims of its sections, each on one replica or on a whole quorum."""

import pytest

from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import FaultRates, World
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import FetchResponse, VoteRequest, VoteResponse
from ottla.raft.transitions import LEGAL, Role

FOLLOWING_3 = ElectionState(epoch=Epoch(1), leader_id=NodeId(3))


def quorum(*voter_ids: int, seed: int = 3) -> World:
    world = World(
        SeededRng(seed), voter_ids=voter_ids or (1, 2, 3), fault_rates=FaultRates(latency_ms_max=2)
    )
    world.start()
    world.run_until_leader()
    world.run_until(world.now_ms + 50)
    return world


def prospective() -> Solo:
    """Return voter 1 of three, which has not heard from its leader 3 for too long."""
    solo = Solo(1, election=FOLLOWING_3, entry_epochs=(1,))
    solo.tick(2 * solo.config.fetch_timeout_ms)
    assert solo.role() is Role.PROSPECTIVE
    return solo


def votes_sent(solo: Solo) -> list[VoteRequest]:
    return [each.request for each in solo.sent if isinstance(each.request, VoteRequest)]


class TestProposedChanges:
    """Proposed Changes: the Prospective state and its transitions."""

    def test_a_candidate_has_been_a_prospective(self) -> None:
        """ "Candidate" is only reached from "Prospective"."""
        assert [role for role in Role if Role.CANDIDATE in LEGAL[role]] == [Role.PROSPECTIVE]

    def test_a_prospective_asks_in_its_present_epoch_and_writes_nothing(self) -> None:
        """The epoch is not increased for a pre-vote, and no vote is given."""
        solo = prospective()

        assert [request.pre_vote for request in votes_sent(solo)] == [True, True]
        assert {request.replica_epoch for request in votes_sent(solo)} == {1}
        assert solo.persisted == FOLLOWING_3
        assert solo.core.leader_id == 3, "other nodes still learn the leader"

    def test_a_majority_of_pre_votes_moves_on_to_a_real_election(self) -> None:
        solo = prospective()

        solo.respond(solo.sent[0], VoteResponse(leader_epoch=Epoch(1), vote_granted=True))

        assert solo.role() is Role.CANDIDATE
        assert solo.core.epoch == 2
        assert not votes_sent(solo)[0].pre_vote

    def test_a_prospective_that_loses_goes_back_to_its_leader(self) -> None:
        """To Follower when the leader is known, else to Unattached."""
        solo = prospective()

        for outgoing in list(solo.sent):
            solo.respond(outgoing, VoteResponse(leader_epoch=Epoch(1), leader_id=NodeId(3)))

        assert (solo.role(), solo.core.leader_id) == (Role.FOLLOWER, 3)

    def test_a_candidate_that_loses_becomes_prospective_and_keeps_its_epoch(self) -> None:
        solo = prospective()
        solo.respond(solo.sent[0], VoteResponse(leader_epoch=Epoch(1), vote_granted=True))
        for outgoing in list(solo.sent):
            solo.respond(outgoing, VoteResponse(leader_epoch=Epoch(2)))

        solo.tick(solo.config.election_backoff_ms_max)

        assert solo.role() is Role.PROSPECTIVE
        assert solo.core.epoch == 2


class TestWhoGrants:
    """Proposed Changes: how each state answers a pre-vote."""

    def ask(self, solo: Solo, *, end_offset: int = 9, last_epoch: int = 1) -> bool:
        answer = solo.ask(
            solo.vote_request(
                2,
                epoch=solo.core.epoch,
                end_offset=end_offset,
                last_epoch=last_epoch,
                pre_vote=True,
            )
        )
        assert isinstance(answer, VoteResponse)
        assert answer.error is ErrorCode.NONE
        return answer.vote_granted

    def test_a_follower_that_has_fetched_from_its_leader_refuses(self) -> None:
        solo = Solo(1, election=FOLLOWING_3, entry_epochs=(1,))
        solo.tick()
        fetch = solo.sent[0]
        assert self.ask(solo), "it has not heard from the leader itself"
        solo.respond(fetch, FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(1)))

        assert not self.ask(solo)

    def test_a_leader_refuses(self) -> None:
        solo = Solo(1)
        solo.become_leader()

        assert not self.ask(solo)

    def test_a_prospective_grants(self) -> None:
        assert self.ask(prospective())

    def test_a_resigned_leader_grants(self) -> None:
        own = ElectionState(epoch=Epoch(1), leader_id=NodeId(1))
        solo = Solo(1, election=own, entry_epochs=(1,))
        solo.tick()

        assert solo.role() is Role.RESIGNED
        assert self.ask(solo)

    @pytest.mark.parametrize(("end_offset", "last_epoch"), [(0, 0), (1, 0), (5, 0)])
    def test_no_voter_grants_to_a_log_that_is_behind(
        self, end_offset: int, last_epoch: int
    ) -> None:
        assert not self.ask(prospective(), end_offset=end_offset, last_epoch=last_epoch)

    def test_pre_votes_do_not_bind(self) -> None:
        """A voter may grant any number of pre-votes, and its vote after them."""
        solo = prospective()
        for candidate in (2, 3):
            answer = solo.ask(
                solo.vote_request(candidate, epoch=1, end_offset=9, last_epoch=1, pre_vote=True)
            )
            assert getattr(answer, "vote_granted", False)
        assert solo.persisted.voted is None


class TestDisruptiveServers:
    """Motivation: partitioned, restarted and far servers must not depose a working leader."""

    def test_a_partitioned_voter_comes_back_without_a_new_epoch(self) -> None:
        world = quorum()
        world.part((1, 2), (3,))
        world.run_until(world.now_ms + 120_000)

        world.heal()
        world.run_until(world.now_ms + 10_000)

        assert world.leader_id() == 1
        assert {member.running.epoch for member in world.members.values()} == {1}

    def test_a_voter_cut_off_from_the_leader_alone_disturbs_no_voter(self) -> None:
        """The others receive from their leader and refuse; it repeats its pre-votes in vain."""
        world = quorum(1, 2, 3, 4, 5)
        world.parted = {frozenset({NodeId(1), NodeId(5)})}

        world.run_until(world.now_ms + 60_000)

        assert world.leader_id() == 1
        assert world.members[NodeId(1)].running.epoch == 1
        assert world.members[NodeId(5)].running.epoch == 1

    @pytest.mark.parametrize("seed", range(8))
    def test_voters_that_restart_disturb_no_voter(self, seed: int) -> None:
        world = quorum(seed=seed)
        for node_id in (2, 3, 2, 3):
            world.crash(node_id)
            world.run_until(world.now_ms + 5_000)
            world.start(node_id)
            world.run_until(world.now_ms + 5_000)

        assert world.leader_id() == 1
        assert world.members[NodeId(1)].running.epoch == 1


class TestLiveness:
    """Rejected alternatives: why a follower may grant before it has fetched."""

    @pytest.mark.parametrize("seed", range(12))
    def test_a_leader_that_only_some_can_reach_is_replaced_in_bounded_time(self, seed: int) -> None:
        """The leader hears from no majority and resigns; a voter that reaches one takes over."""
        world = quorum(1, 2, 3, 4, 5, seed=seed)
        world.parted = {frozenset({NodeId(1), NodeId(other)}) for other in (3, 4, 5)}
        world.run_until(world.now_ms + 15_000)

        leader_id = world.run_until_leader()

        assert leader_id in (2, 3, 4, 5)

    @pytest.mark.parametrize("seed", range(12))
    def test_a_dead_leader_is_replaced_though_the_first_to_notice_is_turned_down(
        self, seed: int
    ) -> None:
        """The first prospective is refused by a voter that still follows the leader, and wins once
        that voter stands for election itself."""
        world = World(
            SeededRng(seed),
            voter_ids=(1, 2, 3),
            fault_rates=FaultRates(latency_ms_max=3, flush_ms_max=4),
        )
        world.start()
        world.run_until_leader()
        for at in range(seed + 3):
            world.propose(f"value {at}")
            world.run_until(world.now_ms + 1 + seed % 4)
        leader_id = world.leader_id()
        assert leader_id is not None
        world.crash(leader_id)
        before_ms = world.now_ms

        world.run_until_leader()

        assert world.now_ms - before_ms < 4_000
