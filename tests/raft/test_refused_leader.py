"""A leader whose process is gone: its voters elect another at once, and only then."""

import itertools

import pytest

from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import FaultRates, World
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Epoch, NodeId
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.election_state import ElectionState
from ottla.raft.events import LeaderRefused
from ottla.raft.follower import REFUSED_PAUSE_MS, REFUSED_STAGGER_MS
from ottla.raft.messages import FetchResponse, VoteResponse
from ottla.raft.transitions import Role

FOLLOWING_3 = ElectionState(epoch=Epoch(1), leader_id=NodeId(3))
GONE = LeaderRefused(leader_id=NodeId(3), epoch=Epoch(1))
FETCH_TIMEOUT_MS = QuorumConfig().fetch_timeout_ms

SOON_MS = REFUSED_PAUSE_MS + 2 * REFUSED_STAGGER_MS
"""Time until the first two voters have started elections."""


def following(node_id: int = 1, voter_ids: tuple[int, ...] = (1, 2, 3)) -> Solo:
    """Return a replica that has heard its leader 3, and fetches again."""
    solo = Solo(node_id, voter_ids, election=FOLLOWING_3, entry_epochs=(1,))
    solo.tick()
    solo.respond(solo.sent[0], FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(1)))
    return solo


def would_vote_for_2(solo: Solo) -> bool:
    request = solo.vote_request(2, epoch=1, end_offset=1, last_epoch=1, pre_vote=True)
    answer = solo.ask(request)
    assert isinstance(answer, VoteResponse)
    return answer.vote_granted


def test_a_voter_stands_for_election_soon_after_its_leader_is_refused() -> None:
    solo = following()
    solo.fail(solo.sent[0])

    solo.step(GONE)
    solo.tick(REFUSED_PAUSE_MS - 1)
    assert solo.role() is Role.FOLLOWER, "the others need a moment to notice, too"
    solo.tick(SOON_MS)

    assert solo.role() is Role.PROSPECTIVE


def test_a_failed_fetch_alone_ends_no_patience() -> None:
    """A reset, a closed stream or a deadline proves nothing about the process."""
    solo = following()
    solo.fail(solo.sent[0])

    solo.tick(FETCH_TIMEOUT_MS - 1)

    assert solo.role() is Role.FOLLOWER


@pytest.mark.parametrize(
    "other",
    [
        LeaderRefused(leader_id=NodeId(2), epoch=Epoch(1)),
        LeaderRefused(leader_id=NodeId(3), epoch=Epoch(0)),
        LeaderRefused(leader_id=NodeId(3), epoch=Epoch(2)),
    ],
)
def test_the_refusal_of_another_leadership_says_nothing(other: LeaderRefused) -> None:
    solo = following()

    solo.step(other)
    solo.tick(SOON_MS)

    assert solo.role() is Role.FOLLOWER
    assert not would_vote_for_2(solo)


def test_a_leader_that_was_never_heard_is_not_lost_by_a_refusal() -> None:
    solo = Solo(1, election=FOLLOWING_3, entry_epochs=(1,))
    solo.tick()

    solo.step(GONE)
    solo.tick(FETCH_TIMEOUT_MS - 1)

    assert solo.role() is Role.FOLLOWER


def test_an_observer_never_stands_for_election() -> None:
    solo = following(node_id=9)

    solo.step(GONE)
    solo.tick(SOON_MS)

    assert solo.role() is Role.FOLLOWER


def test_a_voter_that_knows_its_leader_gone_would_vote_for_another() -> None:
    solo = following()
    assert not would_vote_for_2(solo)

    solo.step(GONE)

    assert would_vote_for_2(solo)


def test_a_leader_that_answers_after_all_is_believed_again() -> None:
    solo = following()
    (fetch,) = solo.sent
    solo.step(GONE)

    solo.respond(fetch, FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(1)))
    solo.tick(SOON_MS)

    assert solo.role() is Role.FOLLOWER
    assert not would_vote_for_2(solo)


def test_a_voter_that_was_turned_down_waits_a_whole_fetch_timeout() -> None:
    solo = following()
    solo.step(GONE)
    solo.tick(SOON_MS)
    for outgoing in list(solo.sent):
        solo.respond(outgoing, VoteResponse(leader_epoch=Epoch(1), leader_id=NodeId(3)))
    assert solo.role() is Role.FOLLOWER

    solo.step(GONE)
    solo.tick(FETCH_TIMEOUT_MS - 1)

    assert solo.role() is Role.FOLLOWER


def test_voters_stand_one_after_the_other() -> None:
    moments = []
    for node_id in (1, 2, 4, 5):
        solo = following(node_id, (1, 2, 3, 4, 5))
        solo.step(GONE)
        while solo.role() is Role.FOLLOWER:
            solo.tick(1)
        moments.append(solo.now_ms)

    gaps = [after - before for before, after in itertools.pairwise(moments)]
    assert min(gaps) >= REFUSED_STAGGER_MS // 2


def quorum(seed: int, *voter_ids: int) -> World:
    world = World(
        SeededRng(seed),
        voter_ids=voter_ids,
        observer_ids=(9,),
        fault_rates=FaultRates(latency_ms_max=3, flush_ms_max=5),
    )
    world.start()
    world.run_until_leader()
    world.run_until(world.now_ms + 1_000)
    return world


@pytest.mark.parametrize("voter_ids", [(1, 2, 3), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("seed", range(10))
def test_a_killed_leader_has_a_successor_long_before_the_fetch_timeout(
    voter_ids: tuple[int, ...], seed: int
) -> None:
    world = quorum(seed, *voter_ids)
    killed, killed_ms = world.leader_id(), world.now_ms
    assert killed is not None

    world.kill(killed)

    assert world.run_until_leader() != killed
    assert world.now_ms - killed_ms < FETCH_TIMEOUT_MS // 4


@pytest.mark.parametrize("voter_ids", [(1, 2, 3), (1, 2, 3, 4, 5)])
@pytest.mark.parametrize("seed", range(10))
def test_a_voter_that_is_refused_by_a_living_leader_does_not_depose_it(
    voter_ids: tuple[int, ...], seed: int
) -> None:
    """A firewall in between refuses its connections; the others receive from the leader, and refuse
    their votes."""
    world = quorum(seed, *voter_ids)
    leader = world.leader_id()
    assert leader is not None
    epoch = world.members[leader].running.epoch
    cut_off = next(NodeId(each) for each in voter_ids if each != leader)

    world.refused = {(cut_off, leader)}
    world.run_until(world.now_ms + 20_000)

    assert world.leader_id() == leader
    assert world.members[leader].running.epoch == epoch


@pytest.mark.parametrize("seed", range(10))
def test_two_that_are_refused_by_everybody_else_do_not_depose_a_leader_of_five(seed: int) -> None:
    world = quorum(seed, 1, 2, 3, 4, 5)
    leader = world.leader_id()
    assert leader is not None
    epoch = world.members[leader].running.epoch
    others = [NodeId(each) for each in (1, 2, 3, 4, 5) if each != leader]
    cut_off, hearing = others[:2], [leader, *others[2:]]

    world.refused = {(one, other) for one in cut_off for other in hearing}
    world.run_until(world.now_ms + 20_000)

    assert world.leader_id() == leader
    assert world.members[leader].running.epoch == epoch
