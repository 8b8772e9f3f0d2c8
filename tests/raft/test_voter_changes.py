"""Changes of the voter set (KIP-853), in a quorum on virtual time."""

from uuid import UUID

import pytest

from ottla.jepsen.quorum.memory_log import MemoryEntry, MemoryLog
from ottla.jepsen.quorum.world import CLUSTER_ID, FaultRates, World, controller, voter
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset, uuid_text
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.election_state import ElectionState
from ottla.raft.events import RequestReceived
from ottla.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    UpdateVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voter_changes import wanted_request
from ottla.raft.voters import KRAFT_VERSION, ReplicaKey, Voter, VoterEndpoint, VoterSet

HOUR_MS = 3_600_000


def quorum(*voter_ids: int, seed: int = 1) -> World:
    """Return a started quorum of controllers with a committed entry."""
    world = World(SeededRng(seed), voter_ids=(), fault_rates=FaultRates(latency_ms_max=2))
    for node_id in voter_ids:
        world.add(controller(node_id, voter_ids))
    world.start(*voter_ids)
    world.run_until_leader()
    world.propose("first")
    settle(world)
    return world


def settle(world: World, duration_ms: int = 1_000) -> None:
    """Advance the time."""
    world.run_until(world.now_ms + duration_ms)


def join(world: World, node_id: int, voter_ids: tuple[int, ...], **options: object) -> None:
    """Start a new controller, which observes, and let it catch up."""
    world.add(controller(node_id, voter_ids, **options))  # type: ignore[arg-type]  # the test's own keywords
    world.start(node_id)
    settle(world, 3_000)


def change(world: World, request: VoterChangeRequest) -> VoterChangeResponse:
    """Send a request to the leader and return its response."""
    leader_id = world.leader_id()
    assert leader_id is not None
    response = world.ask(leader_id, request)
    assert isinstance(response, VoterChangeResponse)
    return response


def adding(node_id: int, *, disk: int = 1, **options: bool) -> AddVoterRequest:
    """Return a request to add a controller."""
    return AddVoterRequest(cluster_id=CLUSTER_ID, voter=entry(node_id, disk=disk), **options)


def removing(node_id: int, *, disk: int = 1) -> RemoveVoterRequest:
    """Return a request to remove a controller."""
    return RemoveVoterRequest(cluster_id=CLUSTER_ID, voter_key=entry(node_id, disk=disk).key)


def entry(node_id: int, *, disk: int = 1) -> Voter:
    """Return a controller's entry in a voter set."""
    whoami = controller(node_id, (), disk=disk)
    return Voter(id=whoami.node_id, directory_id=whoami.directory_id, endpoints=whoami.endpoints)


def voter_ids(world: World) -> dict[int, tuple[int, ...]]:
    """Return the voters that each running node knows."""
    return {
        int(node): tuple(map(int, member.running.identity.voters.ids))
        for node, member in world.members.items()
        if member.core is not None
    }


class TestAdd:
    """AddRaftVoter."""

    def test_a_controller_that_has_caught_up_becomes_a_voter_everywhere(self) -> None:
        world = quorum(1, 2, 3)
        join(world, 4, (1, 2, 3))
        assert world.members[NodeId(4)].running.role is Role.FOLLOWER

        assert change(world, adding(4)).error is ErrorCode.NONE
        settle(world)

        assert set(voter_ids(world).values()) == {(1, 2, 3, 4)}

    def test_a_majority_of_the_new_set_commits(self) -> None:
        world = quorum(1)
        join(world, 2, (1,))
        assert change(world, adding(2)).error is ErrorCode.NONE
        settle(world)
        leader = world.members[NodeId(1)].running
        committed = leader.high_watermark

        world.crash(2)
        world.propose("alone")
        settle(world, 200)

        assert leader.high_watermark == committed

    def test_one_that_was_never_seen_has_to_wait(self) -> None:
        response = change(quorum(1, 2, 3), adding(4))

        assert response.error is ErrorCode.REQUEST_TIMED_OUT
        assert response.message is not None
        assert "not caught up" in response.message
        assert uuid_text(entry(4).directory_id) in response.message, "as commands take it"

    def test_an_endpoint_that_does_not_answer_is_refused_before_the_append(self) -> None:
        world = quorum(1, 2, 3)
        join(world, 4, (1, 2, 3))
        world.crash(4)

        response = change(world, adding(4))

        assert response.error is ErrorCode.REQUEST_TIMED_OUT
        assert voter_ids(world)[1] == (1, 2, 3)

    def test_an_id_with_another_directory_is_a_duplicate_until_it_is_removed(self) -> None:
        world = quorum(1, 2, 3)
        world.crash(3)
        join(world, 3, (1, 2, 3), disk=2)

        assert change(world, adding(3, disk=2)).error is ErrorCode.DUPLICATE_VOTER
        assert change(world, removing(3)).error is ErrorCode.NONE
        assert change(world, adding(3, disk=2)).error is ErrorCode.NONE
        settle(world)

        voters = world.members[NodeId(1)].running.identity.voters
        assert voters.is_voter(entry(3, disk=2).key)
        assert world.members[NodeId(3)].running.identity.is_voter

    @pytest.mark.parametrize(
        "voter_",
        [
            Voter(id=NodeId(-1), directory_id=UUID(int=1), endpoints=voter(4).endpoints),
            Voter(id=NodeId(4), endpoints=voter(4).endpoints),
            Voter(id=NodeId(4), directory_id=UUID(int=1)),
            Voter(id=NodeId(4), directory_id=UUID(int=1), endpoints=(VoterEndpoint("C", "h", 0),)),
        ],
    )
    def test_an_incomplete_entry_is_an_invalid_request(self, voter_: Voter) -> None:
        request = AddVoterRequest(cluster_id=CLUSTER_ID, voter=voter_)

        assert change(quorum(1), request).error is ErrorCode.INVALID_REQUEST

    def test_a_second_change_waits_for_the_first(self) -> None:
        world = quorum(1, 2, 3)
        join(world, 4, (1, 2, 3))
        leader_id = world.leader_id()
        assert leader_id is not None
        for node in (1, 2, 3, 4):
            if node != leader_id:
                world.part((int(leader_id),), tuple(i for i in (1, 2, 3, 4) if i != leader_id))
        world.ask(leader_id, adding(4), patience_ms=5_000)
        second = world.ask(leader_id, removing(2 if leader_id != 2 else 3))

        assert second.error is not ErrorCode.NONE

    def test_another_cluster_and_another_node_are_refused(self) -> None:
        world = quorum(1, 2, 3)
        stranger = AddVoterRequest(cluster_id="another", voter=entry(4))
        follower = next(id_ for id_ in (1, 2, 3) if id_ != world.leader_id())

        assert change(world, stranger).error is ErrorCode.INCONSISTENT_CLUSTER_ID
        refusal = world.ask(follower, adding(4))
        assert refusal.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert refusal.leader_id == world.leader_id()


class TestRemove:
    """RemoveRaftVoter."""

    def test_a_removed_follower_observes(self) -> None:
        world = quorum(1, 2, 3)
        gone = next(id_ for id_ in (1, 2, 3) if id_ != world.leader_id())

        assert change(world, removing(gone)).error is ErrorCode.NONE
        settle(world, 5_000)

        assert gone not in voter_ids(world)[gone]
        assert world.members[NodeId(gone)].running.role is Role.FOLLOWER
        assert world.members[NodeId(gone)].election is not None

    def test_a_removed_leader_leads_until_the_commit_and_resigns(self) -> None:
        world = quorum(1, 2, 3)
        old = world.leader_id()
        assert old is not None

        assert change(world, removing(old)).error is ErrorCode.NONE
        settle(world, 5_000)

        new = world.leader_id()
        assert new not in (None, old)
        assert world.members[old].running.role is Role.FOLLOWER
        world.propose("after")
        settle(world)
        assert world.invariants.committed[-1].value == "after"

    def test_a_removed_leader_that_crashes_before_it_resigns_starts_as_an_observer(self) -> None:
        world = quorum(1, 2, 3)
        old = world.leader_id()
        assert old is not None
        world.ask(old, removing(old))
        world.crash(old)
        world.start(old)
        settle(world, 5_000)

        assert world.members[old].running.role in (Role.FOLLOWER, Role.UNATTACHED)
        assert world.leader_id() not in (None, old)

    def test_the_last_voter_stays(self) -> None:
        assert change(quorum(1), removing(1)).error is ErrorCode.VOTER_NOT_FOUND

    def test_the_directory_must_match(self) -> None:
        response = change(quorum(1, 2, 3), removing(2, disk=2))

        assert response.error is ErrorCode.VOTER_NOT_FOUND


class TestUpdate:
    """UpdateRaftVoter."""

    def test_a_voter_with_other_endpoints_corrects_its_entry(self) -> None:
        world = quorum(1, 2, 3)
        moved = next(id_ for id_ in (1, 2, 3) if id_ != world.leader_id())
        elsewhere = (VoterEndpoint("CONTROLLER", "moved", 9193),)
        old = world.members[NodeId(moved)]
        world.crash(moved)
        member = world.members[NodeId(moved)]
        member.identity = controller(moved, (1, 2, 3), endpoints=elsewhere)
        world.start(moved)
        settle(world, 5_000)

        assert old is member
        for each in world.members.values():
            assert each.running.identity.voters.endpoints_of(NodeId(moved)) == elsewhere

    def test_a_leader_with_other_endpoints_corrects_its_entry(self) -> None:
        world = quorum(1)
        world.crash(1)
        elsewhere = (VoterEndpoint("CONTROLLER", "moved", 9193),)
        world.members[NodeId(1)].identity = controller(1, (1,), endpoints=elsewhere)
        world.start(1)
        settle(world, 5_000)

        assert world.members[NodeId(1)].running.identity.voters.endpoints_of(NodeId(1)) == elsewhere

    def test_an_update_is_for_voters_of_this_epoch(self) -> None:
        world = quorum(1, 2, 3)
        epoch = world.members[NodeId(1)].running.epoch
        for voter_, at, error in (
            (entry(4), epoch, ErrorCode.VOTER_NOT_FOUND),
            (entry(2), Epoch(epoch - 1), ErrorCode.FENCED_LEADER_EPOCH),
            (entry(2), Epoch(epoch + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
            (entry(2), epoch, ErrorCode.NONE),
        ):
            request = UpdateVoterRequest(cluster_id=CLUSTER_ID, leader_epoch=at, voter=voter_)
            assert change(world, request).error is error


class TestAutomaticJoining:
    """`controller.quorum.auto.join.enable` (KIP-1186)."""

    def test_a_new_controller_joins_by_itself(self) -> None:
        world = quorum(1)
        join(world, 2, (1,), joins_automatically=True)
        settle(world, 10_000)

        assert set(voter_ids(world).values()) == {(1, 2)}

    def test_a_lost_disk_is_replaced(self) -> None:
        world = quorum(1, 2, 3)
        world.crash(3)
        join(world, 3, (1, 2, 3), disk=2, joins_automatically=True)
        settle(world, 20_000)

        voters = world.members[NodeId(1)].running.identity.voters
        assert voters.is_voter(ReplicaKey(NodeId(3), UUID(int=2003)))

    def test_a_voter_that_was_removed_stays_removed(self) -> None:
        world = quorum(1, 2, 3)
        join(world, 4, (1, 2, 3), joins_automatically=True)
        settle(world, 10_000)
        assert 4 in voter_ids(world)[1]

        assert change(world, removing(4)).error is ErrorCode.NONE
        settle(world, 20_000)
        world.crash(4)
        world.start(4)
        settle(world, 20_000)

        assert 4 not in voter_ids(world)[1]

    def test_one_whose_log_adds_and_removes_it_does_not_ask_again(self) -> None:
        """It may read both records before it knows that its addition is committed."""
        whoami = controller(4, (1, 2, 3), joins_automatically=True)
        added, removed = (VoterSet(tuple(map(entry, ids))) for ids in ((1, 2, 3, 4), (1, 2, 3)))
        log = MemoryLog()
        log.append((MemoryEntry(Epoch(1), "added", voters=added),))
        log.append((MemoryEntry(Epoch(1), "removed", voters=removed),))
        config, rng = QuorumConfig(), SeededRng(1)
        replica = Replica(config, whoami, log, ElectionState(), rng, 0)
        assert (replica.is_voter, replica.was_voter, replica.high_watermark) == (False, False, 0)
        assert wanted_request(replica) is None

        log.truncate_to(Offset(0))
        replica.adopt_voters()
        assert isinstance(wanted_request(replica), AddVoterRequest)


class TestFixedVoters:
    """A cluster that may return to a release whose voters are fixed by the format."""

    def fixed_quorum(self) -> World:
        world = World(SeededRng(1), voter_ids=(), fault_rates=FaultRates(latency_ms_max=2))
        for node_id in (1, 2, 3):
            world.add(controller(node_id, (1, 2, 3), are_voters_fixed=True))
        world.start(1, 2, 3)
        world.run_until_leader()
        world.propose("first")
        settle(world)
        return world

    def test_no_voter_set_is_appended_and_every_change_is_refused(self) -> None:
        world = self.fixed_quorum()
        join(world, 4, (1, 2, 3), joins_automatically=True, are_voters_fixed=True)
        settle(world, 10_000)
        epoch = world.members[NodeId(1)].running.epoch
        moved = Voter(
            id=NodeId(2),
            directory_id=entry(2).directory_id,
            endpoints=(VoterEndpoint("CONTROLLER", "moved", 1),),
        )
        update = UpdateVoterRequest(cluster_id=CLUSTER_ID, leader_epoch=epoch, voter=moved)

        for request in (adding(4), removing(2), update):
            response = change(world, request)
            assert response.error is ErrorCode.UNSUPPORTED_VERSION
            assert "upgrade ottla.version first" in (response.message or "")
        offsets = {member.log.voters_offset for member in world.members.values()}
        assert offsets == {NO_OFFSET}
        assert 4 not in voter_ids(world)[1]

    def test_the_log_gets_the_set_once_changes_are_allowed(self) -> None:
        world = self.fixed_quorum()
        for member in world.members.values():
            member.running.allow_voter_changes()
        settle(world)

        assert {member.log.voters for member in world.members.values()} == {
            controller(1, (1, 2, 3)).voters
        }
        assert min(member.log.voters_offset for member in world.members.values()) > 0
        assert change(world, removing(2)).error is ErrorCode.NONE

    def test_a_controller_joins_by_itself_once_changes_are_allowed(self) -> None:
        world = self.fixed_quorum()
        join(world, 4, (1, 2, 3), joins_automatically=True, are_voters_fixed=True)
        for member in world.members.values():
            member.running.allow_voter_changes()
        settle(world, 10_000)

        assert set(voter_ids(world).values()) == {(1, 2, 3, 4)}


class TestStaleVoterSets:
    """Votes and fetches between replicas with different voter sets."""

    def test_a_candidate_that_the_voter_does_not_know_gets_its_vote(self) -> None:
        """Voter 1 lacks the record that makes 3 a voter, and 2 is dead: 3 needs the vote of 1."""
        world = quorum(1, 2)
        join(world, 3, (1, 2))
        leader_id = world.leader_id()
        assert leader_id is not None
        stale = 1 if leader_id == 2 else 2
        world.part((int(leader_id), 3))
        world.ask(int(leader_id), adding(3), patience_ms=5_000)
        settle(world, 500)
        assert 3 in voter_ids(world)[3]
        world.crash(int(leader_id))
        world.part((stale, 3))
        settle(world, 20_000)

        assert world.leader_id() == 3
        assert 3 in voter_ids(world)[stale]

    def test_the_range_of_versions_is_part_of_the_entry(self) -> None:
        world = quorum(1)
        join(world, 2, (1,))
        change(world, adding(2))

        added = world.members[NodeId(1)].running.identity.voters.get(NodeId(2))
        settle(world)
        assert added is None or added.kraft_versions == (0, KRAFT_VERSION)

    def test_a_leader_that_crashes_with_its_own_removal_completes_it(self) -> None:
        """The other voter needs its vote, which it cannot grant: its log is longer."""
        world = quorum(1, 2)
        leader_id = int(world.leader_id() or 0)
        other = 3 - leader_id
        world.part((leader_id,), (other,))
        world.ask(leader_id, removing(leader_id))
        assert voter_ids(world) == {leader_id: (other,), other: (1, 2)}
        world.crash(leader_id)
        world.start(leader_id)
        world.heal()
        settle(world, 20_000)

        assert world.leader_id() == other
        assert set(voter_ids(world).values()) == {(other,)}
        assert world.members[NodeId(leader_id)].running.role is Role.FOLLOWER

    def test_a_controller_that_was_removed_long_ago_does_not_stand_for_election(self) -> None:
        world = quorum(1, 2, 3)
        removed = next(id_ for id_ in (1, 2, 3) if id_ != world.leader_id())
        assert change(world, removing(removed)).error is ErrorCode.NONE
        settle(world)
        epoch = world.members[NodeId(removed)].running.epoch
        world.part(tuple(id_ for id_ in (1, 2, 3) if id_ != removed))
        settle(world, 20_000)

        assert not world.members[NodeId(removed)].running._replica.may_campaign
        assert world.members[NodeId(removed)].running.epoch == epoch

    def test_an_observer_that_lost_its_leader_grants_the_vote_that_a_new_set_needs(self) -> None:
        """The leader crashes when only it knows that the observer is a voter."""
        world = quorum(1)
        join(world, 2, (1,))
        leader = world.members[NodeId(1)]
        request = RequestReceived(token=1 << 40, request=adding(2))
        world.step(NodeId(1), request)
        while 2 not in (leader.log.voters or controller(1, (1,)).voters):
            settle(world, 1)
        world.crash(1)
        world.part((1,), (2,))
        world.start(1)
        settle(world, 5_000)
        assert voter_ids(world) == {1: (1, 2), 2: (1,)}
        world.heal()
        settle(world, 20_000)

        assert set(voter_ids(world).values()) == {(1, 2)}
        assert world.leader_id() is not None

    def test_an_observer_that_restarts_follows_a_leader_that_its_voters_lack(self) -> None:
        world = quorum(1, 2, 3)
        leader_id = int(world.leader_id() or 0)
        known = next(id_ for id_ in (1, 2, 3) if id_ != leader_id)
        world.add(controller(4, (known,)))
        world.cut = {(NodeId(4), NodeId(leader_id)), (NodeId(leader_id), NodeId(4))}
        world.start(4)
        settle(world, 3_000)
        assert voter_ids(world)[4] == (known,)
        world.crash(4)
        world.heal()
        world.start(4)
        settle(world, 3_000)

        assert world.members[NodeId(4)].running.role is Role.FOLLOWER
        assert voter_ids(world)[4] == (1, 2, 3)
