"""The rules of the protocol, each cited, each on a whole quorum.

KIP-595 is the pull-based raft, KIP-996 its pre-vote, KIP-630 its snapshots, KIP-853 its voters'
directory ids; "raft" is Ongaro and Ousterhout's paper.
"""

from dataclasses import replace

import pytest

from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import FaultRates, World, voter
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft import answers
from ottla.raft.events import ShutdownRequested
from ottla.raft.messages import VoteResponse
from ottla.raft.transitions import Role


def quorum(*voter_ids: int, seed: int = 3, observers: tuple[int, ...] = ()) -> World:
    """Return a started quorum with a leader, on a calm network."""
    world = World(
        SeededRng(seed),
        voter_ids=voter_ids or (1, 2, 3),
        observer_ids=observers,
        fault_rates=FaultRates(latency_ms_max=2),
    )
    world.start()
    world.run_until_leader()
    world.run_until(world.now_ms + 50)
    return world


def values_of(world: World, node_id: int) -> list[str]:
    log = world.members[NodeId(node_id)].log
    entries = [log.entry(offset) for offset in range(log.end_offset)]
    return [entry.value for entry in entries if entry is not None]


def test_a_fresh_quorum_elects_its_lowest_id_within_a_few_round_trips() -> None:
    world = World(SeededRng(1), voter_ids=(4, 5, 6), fault_rates=FaultRates(latency_ms_max=2))
    world.start()

    leader_id = world.run_until_leader()

    assert leader_id == 4
    assert world.now_ms < 50


def test_election_safety_a_minority_elects_no_leader() -> None:
    """Raft 5.2: a leader needs votes from a majority."""
    world = quorum(1, 2, 3, 4, 5)
    world.part((1, 2), (3, 4, 5))
    world.run_until(world.now_ms + 20_000)

    leader_id = world.leader_id()

    assert leader_id in (3, 4, 5)
    assert not any(world.members[NodeId(each)].is_leader for each in (1, 2))


def test_a_leader_without_a_majority_steps_down_by_itself() -> None:
    """KIP-595 and KIP-836, check quorum: 1.5 fetch timeouts without a majority's fetches."""
    world = quorum()
    assert world.leader_id() == 1
    world.part((1,), (2, 3))

    world.run_until(world.now_ms + 3_600)

    assert not world.members[NodeId(1)].is_leader


def test_committed_entries_survive_every_change_of_leader() -> None:
    """Raft 5.4.1, leader completeness: only an up-to-date log wins votes."""
    world = quorum()
    world.part((1, 2), (3,))
    world.propose("committed without 3")
    world.run_until(world.now_ms + 100)
    world.heal()
    world.crash(1)

    # 2 alone has the entry: whatever 3 tries, only 2 can win.
    leader_id = world.run_until_leader()

    assert leader_id == 2
    assert "committed without 3" in values_of(world, 2)


def test_what_a_deposed_leader_never_committed_is_dropped() -> None:
    """KIP-595, log reconciliation: truncation by the diverging epoch of a Fetch."""
    world = quorum()
    world.part((1,), (2, 3))
    world.propose("lost", at=1)
    world.run_until(world.now_ms + 10_000)
    leader_id = world.leader_id()
    assert leader_id in (2, 3)
    world.propose("kept", at=leader_id)
    world.heal()

    world.run_until(world.now_ms + 8_000)

    assert values_of(world, 1) == values_of(world, 2) == values_of(world, 3)
    assert "lost" not in values_of(world, 1)
    assert "kept" in values_of(world, 1)


def test_a_vote_is_remembered_over_a_crash() -> None:
    """KIP-595, quorum-state: written before a Vote is answered."""
    world = quorum()
    voted_before = {
        node: member.election.voted for node, member in world.members.items() if member.election
    }
    for node_id in (1, 2, 3):
        world.crash(node_id)
        world.start(node_id)

    for node, member in world.members.items():
        state = member.election
        assert state is not None
        assert state.epoch > 1 or state.voted == voted_before[node]


def test_a_voter_that_was_cut_off_disturbs_no_voter_when_it_is_back() -> None:
    """KIP-996: followers that receive from their leader refuse pre-votes; no epoch is raised."""
    world = quorum()
    world.part((1, 2), (3,))
    world.run_until(world.now_ms + 30_000)
    assert world.members[NodeId(3)].running.epoch == 1

    world.heal()
    world.run_until(world.now_ms + 5_000)

    assert world.leader_id() == 1
    assert {member.running.epoch for member in world.members.values()} == {1}


def test_a_shutdown_hands_over_without_a_timeout() -> None:
    """KIP-595, EndQuorumEpoch: the preferred successor starts an election at once."""
    world = quorum()
    world.step(NodeId(1), ShutdownRequested())
    before_ms = world.now_ms

    leader_id = world.run_until_leader()

    assert leader_id in (2, 3)
    assert world.now_ms - before_ms < 100
    assert world.members[NodeId(1)].running.is_handed_over


def test_the_back_off_of_successors_grows_with_their_place_in_the_list() -> None:
    """KIP-595, EndQuorumEpoch: the first starts an election at once, each next one waits longer."""
    preferred = tuple(voter(node_id).key for node_id in (4, 2, 5, 3))
    pauses_ms = []
    for key in preferred:
        solo = Solo(key.id, (1, 2, 3, 4, 5))
        replica = solo.core._replica
        pauses_ms.append(answers.succession_pause_ms(replica, preferred))

    assert pauses_ms[0] == 0
    assert pauses_ms == sorted(set(pauses_ms)), "strictly growing"
    assert pauses_ms[-1] <= QuorumConfig().election_backoff_ms_max


def test_the_longest_log_is_preferred_and_wins() -> None:
    """KIP-595, EndQuorumEpoch: successors ordered by their log end."""
    world = quorum(1, 2, 3, 4, 5)
    world.parted = {frozenset({NodeId(1), NodeId(other)}) for other in (2, 3)}
    world.propose("what 4 and 5 have")
    world.run_until(world.now_ms + 100)
    world.heal()
    world.step(NodeId(1), ShutdownRequested())

    leader_id = world.run_until_leader()

    assert leader_id in (4, 5)
    assert world.invariants.committed[1].value == "what 4 and 5 have"


def test_a_voter_that_missed_the_start_of_an_epoch_is_notified_again() -> None:
    """KIP-595, BeginQuorumEpoch: repeated until the voter fetches."""
    world = quorum()
    world.crash(1)
    world.part((2,), (3,))
    world.heal()
    leader_id = world.run_until_leader()
    other = NodeId(5 - leader_id)
    world.part((leader_id,), (other,))
    world.run_until(world.now_ms + 1_500)
    world.heal()

    world.run_until(world.now_ms + 1_100)

    assert world.members[other].running.leader_id == leader_id
    assert world.members[leader_id].is_leader, "half a fetch timeout is soon enough"


def test_a_follower_learns_at_once_what_is_committed() -> None:
    """KIP-1166: a Fetch names the watermark its sender knows, and is not parked when it is old."""
    world = quorum()
    world.propose("news")

    world.run_until(world.now_ms + 20)

    for node_id in (1, 2, 3):
        assert world.members[NodeId(node_id)].running.high_watermark == 2


def test_requests_of_another_cluster_change_nothing() -> None:
    """KIP-595, INCONSISTENT_CLUSTER_ID: neither an epoch nor a leader is learnt from a stranger."""
    solo = Solo(1)
    request = replace(
        solo.vote_request(2, epoch=99, end_offset=9, last_epoch=9), cluster_id="other"
    )

    answer = solo.ask(request)

    assert isinstance(answer, VoteResponse)
    assert answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert (answer.leader_id, answer.leader_epoch) == (None, -1)
    assert solo.core.epoch == 0


def test_an_empty_log_is_begun_by_the_snapshot_though_the_whole_log_is_there() -> None:
    """KIP-630 lets a leader name a snapshot; days of log take longer to replay than to skip."""
    world = quorum(observers=(101,))
    world.crash(101)
    for at in range(10):
        world.propose(f"value {at}")
    world.run_until(world.now_ms + 100)
    world.members[NodeId(1)].log.snapshot_at(Offset(8), keeps_log=True)
    world.members[NodeId(101)].log.truncate_to(Offset(0))
    world.start(101)

    world.run_until(world.now_ms + 1_000)

    assert world.members[NodeId(1)].log.start_offset == 0
    assert world.members[NodeId(101)].log.start_offset == 8
    assert values_of(world, 101) == values_of(world, 1)


def test_a_snapshot_is_fetched_on_from_the_next_leader() -> None:
    """KIP-630: a leader lost in the middle of a snapshot costs a new start, not the follower."""
    config = QuorumConfig(fetch_snapshot_bytes_max=1)
    world = World(
        SeededRng(3),
        voter_ids=(1, 2, 3),
        observer_ids=(101,),
        config=config,
        fault_rates=FaultRates(latency_ms_max=2),
    )
    world.start()
    world.run_until_leader()
    world.crash(101)
    for at in range(30):
        world.propose(f"value {at}")
    world.run_until(world.now_ms + 100)
    for node_id in (1, 2, 3):
        world.members[NodeId(node_id)].log.snapshot_at(Offset(25), keeps_log=False)
    world.members[NodeId(101)].log.truncate_to(Offset(0))
    world.start(101)
    world.run_until(world.now_ms + 30)
    assert world.members[NodeId(101)].log.start_offset == 0, "it is in the middle"
    world.crash(1)
    world.run_until_leader()

    world.run_until(world.now_ms + 3_000)

    assert world.members[NodeId(101)].log.start_offset == 25
    assert values_of(world, 101) == values_of(world, 2)


def test_a_crashed_leader_is_replaced_within_its_timeouts() -> None:
    """Raft 5.2: fetch timeout, then an election."""
    delays_ms = []
    for seed in range(20):
        world = quorum(seed=seed)
        leader_id = world.leader_id()
        assert leader_id is not None
        world.crash(leader_id)
        before_ms = world.now_ms
        world.run_until_leader()
        delays_ms.append(world.now_ms - before_ms)

    assert sorted(delays_ms)[10] < 2_500, "the median must not suffer from split votes"
    assert max(delays_ms) < 4_500


def test_observers_find_each_new_leader() -> None:
    """KIP-595: an observer bootstraps by fetching from any voter and follows the hints."""
    world = quorum(observers=(101, 102))
    world.crash(1)
    leader_id = world.run_until_leader()
    world.run_until(world.now_ms + 5_000)
    world.propose("news", at=leader_id)

    world.run_until(world.now_ms + 600)

    for observer in (101, 102):
        core = world.members[NodeId(observer)].running
        assert core.leader_id == leader_id
        assert core.high_watermark == world.members[leader_id].running.high_watermark
        assert "news" in values_of(world, observer)


def test_an_observer_never_votes_nor_counts() -> None:
    """KIP-595: observers are no part of any majority."""
    world = quorum(observers=(101, 102, 103))
    world.crash(2)
    world.crash(3)
    world.propose("hangs")

    world.run_until(world.now_ms + 2_000)

    assert world.members[NodeId(1)].running.high_watermark == 1
    assert "hangs" in values_of(world, 101), "it is replicated all the same"


def test_a_newcomer_below_the_log_takes_the_snapshot() -> None:
    """KIP-630: a Fetch below the log start is answered with a snapshot's id."""
    world = quorum(observers=(101,))
    world.crash(101)
    for at in range(10):
        world.propose(f"value {at}")
    world.run_until(world.now_ms + 100)
    world.members[NodeId(1)].log.snapshot_at(Offset(8), keeps_log=False)
    world.members[NodeId(101)].log.truncate_to(Offset(0))
    world.start(101)

    world.run_until(world.now_ms + 1_000)

    log = world.members[NodeId(101)].log
    assert (log.start_offset, log.end_offset) == (8, 11)
    assert values_of(world, 101) == values_of(world, 1)


def test_a_quorum_of_one_commits_by_its_own_flush() -> None:
    world = quorum(1)

    world.propose("alone")
    world.run_until(world.now_ms + 5)

    assert world.members[NodeId(1)].running.high_watermark == 2


@pytest.mark.parametrize("voter_count", [2, 3, 4, 5, 7])
def test_a_quorum_of_any_size_works_with_a_bare_majority(voter_count: int) -> None:
    world = quorum(*range(1, voter_count + 1))
    majority_count = voter_count // 2 + 1
    for node_id in range(majority_count + 1, voter_count + 1):
        world.crash(node_id)

    world.propose("enough")
    world.run_until(world.now_ms + 200)

    assert world.invariants.committed[-1].value == "enough"
    assert world.members[NodeId(1)].running.role is Role.LEADER
