"""The claims of Ongaro and Ousterhout's paper ("In Search of an Understandable Consensus
Algorithm", extended version), each on a whole quorum, with its section.

Where KRaft pulls (KIP-595) the paper pushes: what AppendEntries does there, Fetch does here.
"""

import pytest

from ottla.jepsen.quorum.memory_log import MemoryEntry
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import FaultRates, World
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import VoteResponse
from ottla.raft.transitions import Role

PATIENCE_MS = 20_000
"""Virtual time for everything to come together: several elections."""


def quorum(*voter_ids: int, seed: int = 3) -> World:
    """Return a started quorum with a leader, on a calm network."""
    world = World(
        SeededRng(seed), voter_ids=voter_ids or (1, 2, 3), fault_rates=FaultRates(latency_ms_max=2)
    )
    world.start()
    world.run_until_leader()
    world.run_until(world.now_ms + 50)
    return world


def entries_of(world: World, node_id: int) -> list[MemoryEntry]:
    log = world.members[NodeId(node_id)].log
    found = [log.entry(offset) for offset in range(log.end_offset)]
    return [entry for entry in found if entry is not None]


def values_of(world: World, node_id: int) -> list[str]:
    return [entry.value for entry in entries_of(world, node_id)]


def stepped_down(world: World, node_id: int) -> bool:
    return not world.members[NodeId(node_id)].is_leader


class TestElectionSafety:
    """5.2, figure 3: at most one leader in a given term."""

    def test_half_the_voters_elect_no_leader_and_a_majority_one(self) -> None:
        """5.2: a candidate wins with the votes of a majority, of which there is one at most."""
        world = quorum(1, 2, 3, 4)
        before = world.members[NodeId(2)].running.epoch
        world.crash(1)
        world.part((2, 3), (4,))
        world.run_until(world.now_ms + PATIENCE_MS)
        assert world.leader_id() is None, "2 of 4 are no majority"

        world.heal()
        leader_id = world.run_until_leader(PATIENCE_MS)

        assert world.members[leader_id].running.epoch > before
        assert [world.leader_id()] == [
            node_id for node_id, member in world.members.items() if member.is_leader
        ]

    def test_a_voter_gives_one_vote_in_a_term_first_come_first_served(self) -> None:
        """5.2: each server votes for at most one candidate in a given term."""
        solo = Solo(1)

        first = solo.ask(solo.vote_request(3, epoch=5))
        second = solo.ask(solo.vote_request(2, epoch=5))
        again = solo.ask(solo.vote_request(3, epoch=5))

        assert [getattr(answer, "vote_granted", None) for answer in (first, second, again)] == [
            True,
            False,
            True,
        ]

    def test_a_leader_of_an_old_term_steps_down_when_it_meets_a_new_one(self) -> None:
        """5.1: a stale leader or candidate becomes a follower at once."""
        world = quorum()
        world.part((1,), (2, 3))
        world.run_until(world.now_ms + 2_900)
        new_leader = world.leader_id()
        assert new_leader in (2, 3)
        assert not stepped_down(world, 1), "check quorum has not run out yet"
        world.heal()

        world.run_until(world.now_ms + 300)

        assert stepped_down(world, 1)
        assert world.members[NodeId(1)].running.leader_id == new_leader


class TestLeaderAppendOnly:
    """5.3, figure 3: a leader never overwrites or deletes entries in its log."""

    @pytest.mark.parametrize("seed", range(6))
    def test_what_a_leader_has_stays_while_it_leads(self, seed: int) -> None:
        chance = SeededRng(seed)
        world = World(
            chance,
            voter_ids=(1, 2, 3),
            fault_rates=FaultRates(drop=0.1, repeat=0.1, latency_ms_max=40, flush_ms_max=20),
        )
        world.start()
        seen: dict[tuple[NodeId, Epoch], list[MemoryEntry]] = {}
        for at in range(400):
            world.run_until(world.now_ms + 1 + chance.below(200))
            world.propose(f"value {at}")
            if chance.below(40) == 0:
                world.part((world.leader_id() or 1,), tuple({1, 2, 3} - {world.leader_id() or 1}))
            elif chance.below(40) == 0:
                world.heal()
            for node_id, member in world.members.items():
                if member.is_leader:
                    now = entries_of(world, node_id)
                    key = (node_id, member.running.epoch)
                    before = seen.get(key, [])
                    assert now[: len(before)] == before
                    seen[key] = now
        assert len(seen) >= 2, "several leaders were watched"


class TestLogMatching:
    """5.3, figure 3: logs that share an entry's index and term are identical up to it."""

    @pytest.mark.parametrize("seed", range(6))
    def test_logs_that_share_an_entry_share_all_before_it(self, seed: int) -> None:
        chance = SeededRng(100 + seed)
        world = World(
            chance,
            voter_ids=(1, 2, 3, 4, 5),
            fault_rates=FaultRates(drop=0.1, latency_ms_max=30, flush_ms_max=10),
        )
        world.start()
        compared_count = 0
        for at in range(200):
            world.run_until(world.now_ms + 1 + chance.below(100))
            world.propose(f"value {at}")
            if chance.below(25) == 0:
                sides = sorted((1, 2, 3, 4, 5), key=lambda _: chance.random())
                world.part(tuple(sides[:2]), tuple(sides[2:]))
            elif chance.below(25) == 0:
                world.heal()
            logs = [entries_of(world, node_id) for node_id in (1, 2, 3, 4, 5)]
            for one in logs:
                for other in logs:
                    shared = [
                        offset
                        for offset in range(min(len(one), len(other)))
                        if one[offset].epoch == other[offset].epoch
                    ]
                    if shared:
                        end = shared[-1] + 1
                        assert one[:end] == other[:end]
                        compared_count += 1
        assert compared_count > 1_000


class TestLeaderCompleteness:
    """5.4, figure 3: a committed entry is in the logs of the leaders of all higher terms."""

    @pytest.mark.parametrize(
        ("last_epoch", "end_offset", "is_granted"),
        [(2, 3, True), (2, 4, True), (3, 1, True), (2, 2, False), (1, 9, False)],
    )
    def test_only_a_log_at_least_as_up_to_date_wins_a_vote(
        self, last_epoch: int, end_offset: int, is_granted: bool
    ) -> None:
        """5.4.1: the later term of the last entry wins, then the longer log."""
        solo = Solo(1, entry_epochs=(1, 2, 2))

        answer = solo.ask(
            solo.vote_request(2, epoch=9, last_epoch=last_epoch, end_offset=end_offset)
        )

        assert isinstance(answer, VoteResponse)
        assert answer.vote_granted is is_granted

    def test_a_voter_without_a_committed_entry_is_never_elected(self) -> None:
        """5.4.1: the majorities of commit and election share a voter."""
        world = quorum(1, 2, 3, 4, 5)
        world.part((1, 2, 3), (4, 5))
        world.propose("committed by 1, 2 and 3")
        world.run_until(world.now_ms + 100)
        assert world.invariants.committed[-1].value == "committed by 1, 2 and 3"
        world.heal()
        world.crash(1)

        leader_id = world.run_until_leader(PATIENCE_MS)

        assert leader_id in (2, 3)

    def test_an_entry_of_an_earlier_term_is_not_committed_by_counting_replicas(self) -> None:
        """5.4.2 and figure 8 (c): a majority has the old entry, yet it is not committed.

        The new leader of term 3 has an entry of term 2 at offset 1, which a majority holds before
        any server holds an entry of term 3.
        """
        solo = Solo(
            1, election=ElectionState(epoch=Epoch(2), leader_id=NodeId(2)), entry_epochs=(1, 2)
        )
        solo.tick(2 * 2_250)
        for epoch in (2, 3):
            message = next(each for each in solo.sent if each.to == 3)
            solo.respond(message, VoteResponse(leader_epoch=Epoch(epoch), vote_granted=True))
        assert solo.role() is Role.LEADER
        solo.flushed()

        solo.ask(solo.fetch_request(3, offset=2, last_epoch=2))
        assert solo.core.high_watermark == 0, "a majority has both old entries; that is not enough"

        solo.ask(solo.fetch_request(3, offset=3, last_epoch=3))
        assert solo.core.high_watermark == 3, "with one of its own term, all before it count"


class TestFigure8:
    """5.4.2, figure 8: why a leader must not commit by counting replicas of earlier terms."""

    def test_an_entry_on_a_majority_may_still_be_overwritten_and_is_not_committed(
        self,
    ) -> None:
        """(a) to (d): S1 leads and writes, S5 leads and writes, S1 spreads its entry, S5 wins."""
        world = quorum(1, 2, 3, 4, 5)
        assert world.leader_id() == 1
        # (a) 1 replicates its entry to 2 only, and crashes.
        world.part((1, 2), (3, 4, 5))
        world.propose("of term 2", at=1)
        world.run_until(world.now_ms + 100)
        assert "of term 2" in values_of(world, 2)
        world.crash(1, survivor_count=9)
        world.crash(2, survivor_count=9)
        # (b) one of 3, 4, 5 wins the next term with their votes and writes something else.
        other = world.run_until_leader(PATIENCE_MS)
        assert other in (3, 4, 5)
        world.part((other,), (1, 2, *({3, 4, 5} - {other})))
        world.propose("of term 3", at=other)
        world.run_until(world.now_ms + 10)
        world.crash(other, survivor_count=9)
        # (c) 1 and 2 are back: the winner now commits only with an entry of its own term.
        world.start(1, 2)
        leader_id = world.run_until_leader(PATIENCE_MS)
        committed = list(world.invariants.committed)
        # (d), (e) the other one is back: what was committed stays under any leader.
        world.start(other)
        world.heal()
        world.crash(leader_id, survivor_count=9)
        world.run_until_leader(PATIENCE_MS)
        world.start(leader_id)
        world.run_until(world.now_ms + PATIENCE_MS)

        assert world.invariants.committed[: len(committed)] == committed
        logs = [entries_of(world, node_id) for node_id in (1, 2, 3, 4, 5)]
        assert all(log == logs[0] for log in logs)
        assert not {"of term 2", "of term 3"} <= {entry.value for entry in logs[0]}


class TestStateMachineSafety:
    """5.4.3, figure 3: no two servers apply different entries at one index."""

    @pytest.mark.parametrize("seed", range(4))
    def test_every_replica_applies_the_same_at_every_index(self, seed: int) -> None:
        chance = SeededRng(210 + seed)
        world = World(
            chance,
            voter_ids=(1, 2, 3),
            observer_ids=(101,),
            fault_rates=FaultRates(drop=0.15, repeat=0.15, latency_ms_max=50, flush_ms_max=60),
        )
        world.start()
        for at in range(150):
            world.run_until(world.now_ms + 1 + chance.below(150))
            world.propose(f"value {at}")
            node_id = 1 + chance.below(3)
            if world.members[NodeId(node_id)].core is None:
                world.start(node_id)
            elif chance.below(12) == 0:
                world.crash(node_id, survivor_count=chance.below(3))

        committed = world.invariants.committed
        assert len(committed) > 20
        for member in world.members.values():
            if member.core is not None:
                for offset in range(member.core.high_watermark):
                    assert member.log.entry(offset) == committed[offset]


class TestPersistence:
    """5, figure 2: currentTerm, votedFor and the log are on disk before an answer leaves."""

    def test_term_and_vote_are_on_disk_when_the_vote_is_granted(self) -> None:
        solo = Solo(1)

        answer = solo.ask(solo.vote_request(2, epoch=4))

        assert getattr(answer, "vote_granted", False)
        assert (solo.persisted.epoch, solo.persisted.voted) == (
            4,
            solo.vote_request(2, epoch=4).replica_key,
        )

    def test_terms_never_go_back_over_crashes(self) -> None:
        """5.1: terms act as a logical clock and increase monotonically."""
        world = quorum()
        epochs = []
        for _ in range(5):
            leader_id = world.run_until_leader(PATIENCE_MS)
            epochs.append(world.members[leader_id].running.epoch)
            world.crash(leader_id)
            world.run_until_leader(PATIENCE_MS)
            world.start(leader_id)
        assert epochs == sorted(set(epochs))
        for member in world.members.values():
            assert member.election is not None
            assert member.election.epoch >= epochs[-1]


class TestTiming:
    """5.6 and 9.3: broadcastTime << electionTimeout << MTBF gives a steady leader."""

    def test_a_steady_network_keeps_one_leader(self) -> None:
        world = quorum()
        leader_id, epoch = world.leader_id(), world.members[NodeId(1)].running.epoch

        world.run_until(world.now_ms + 600_000)

        assert world.leader_id() == leader_id
        assert {member.running.epoch for member in world.members.values()} == {epoch}

    @pytest.mark.parametrize("voter_ids", [(1, 2, 3), (1, 2, 3, 4, 5)])
    @pytest.mark.parametrize("seed", range(10))
    def test_after_a_healed_partition_there_is_a_leader_in_bounded_time(
        self, seed: int, voter_ids: tuple[int, ...]
    ) -> None:
        """5.2: randomised timeouts resolve split votes quickly."""
        world = quorum(*voter_ids, seed=seed)
        world.part(*((node_id,) for node_id in voter_ids))
        world.run_until(world.now_ms + 20_000 + 700 * seed)
        assert world.leader_id() is None
        world.heal()
        before_ms = world.now_ms

        world.run_until_leader(PATIENCE_MS)

        assert world.now_ms - before_ms < 6_000


class TestDisruptiveServers:
    """6: servers that do not hear the leader must not depose it while others do."""

    def test_a_voter_that_hears_nothing_inflates_no_term(self) -> None:
        """6 and KIP-996: the pre-vote, where the paper has a minimum election timeout."""
        world = quorum(1, 2, 3, 4, 5)
        world.part((1, 2, 3, 4), (5,))

        world.run_until(world.now_ms + 60_000)

        assert {member.running.epoch for member in world.members.values()} == {1}

    def test_a_follower_that_hears_its_leader_turns_candidates_down(self) -> None:
        """6: a vote request within the minimum election timeout of hearing from a leader."""
        world = quorum()
        solo = Solo(2, election=ElectionState(epoch=Epoch(1), leader_id=NodeId(1)))
        assert world.members[NodeId(2)].running.leader_id == 1

        answer = solo.ask(solo.vote_request(3, epoch=1, end_offset=9, pre_vote=False))

        assert not getattr(answer, "vote_granted", True), "its term has a leader already"


class TestLogCompaction:
    """7: a snapshot replaces the log it covers, also for a follower that lags behind it."""

    def test_a_follower_below_the_log_gets_the_snapshot_and_then_the_rest(self) -> None:
        world = quorum()
        world.crash(3)
        for at in range(10):
            world.propose(f"value {at}")
        world.run_until(world.now_ms + 100)
        for node_id in (1, 2):
            world.members[NodeId(node_id)].log.snapshot_at(Offset(9), keeps_log=False)
        world.propose("after the snapshot")
        world.start(3)

        world.run_until(world.now_ms + 2_000)

        assert world.members[NodeId(3)].log.start_offset == 9
        assert entries_of(world, 3) == entries_of(world, 1)
        assert values_of(world, 3)[-1] == "after the snapshot"


class TestClientInteraction:
    """8: a leader answers for the log only once it knows what is committed."""

    def test_a_new_leader_commits_a_blank_entry_of_its_own_term_first(self) -> None:
        world = quorum()
        world.crash(1)

        leader_id = world.run_until_leader(PATIENCE_MS)

        core = world.members[leader_id].running
        start = core.epoch_start_offset
        assert start is not None
        opening = MemoryEntry(core.epoch, f"leader {leader_id}", is_leader_change=True)
        assert world.members[leader_id].log.entry(start) == opening
        assert core.high_watermark > start
