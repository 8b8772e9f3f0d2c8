"""KIP-853, voters known by id and directory: invariants of a fixed voter set."""

import pytest

from ottla.jepsen.quorum.member import MemoryMember
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, FaultRates, World, identity, voter
from ottla.jepsen.world.rng import SeededRng
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, Epoch, NodeId
from ottla.raft import snapshot
from ottla.raft.control_records import (
    control_type,
    read_kraft_version,
    read_voters,
    voters_record,
)
from ottla.raft.election_state import ElectionState, decode, encode
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    VoteRequest,
    VoteResponse,
)
from ottla.raft.transitions import Role
from ottla.raft.voters import KRAFT_VERSION, ReplicaKey, Voter, VoterEndpoint, VoterSet
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import ControlType
from ottla.wire.codec import encode as encode_message
from ottla.wire.records import scan

VOTERS = identity(1, (1, 2, 3)).voters


class TestReplicaIdentity:
    """Key terms: a replica is its id and the id of its metadata directory."""

    def test_a_voter_is_not_its_namesake_with_another_disk(self) -> None:
        assert VOTERS.is_voter(ReplicaKey(NodeId(1), voter(1).directory_id))
        assert not VOTERS.is_voter(ReplicaKey(NodeId(1), voter(2).directory_id))

    def test_requests_and_votes_carry_the_directory_id(self) -> None:
        solo = Solo(1)
        solo.become_candidate()

        request = solo.sent[0].request

        assert isinstance(request, VoteRequest)
        assert request.replica_directory_id == voter(1).directory_id
        assert request.voter_directory_id == voter(request.voter_id).directory_id
        assert solo.persisted.voted == voter(1).key

    def test_a_goodbye_names_successors_with_their_directories(self) -> None:
        own = ElectionState(epoch=Epoch(3), leader_id=NodeId(1))
        solo = Solo(1, election=own, entry_epochs=(3,))
        solo.tick()

        goodbye = solo.sent[0].request

        assert isinstance(goodbye, EndQuorumEpochRequest)
        assert set(goodbye.preferred_candidates) == {voter(2).key, voter(3).key}


class TestQuorumState:
    """Quorum state: version 1 of the file adds votedDirectoryId."""

    def test_a_vote_is_remembered_with_its_directory(self) -> None:
        state = ElectionState(epoch=Epoch(3), voted=voter(2).key)

        assert decode(encode(state)) == state
        assert b'"data_version":1' in encode(state)

    def test_one_vote_is_for_one_disk(self) -> None:
        """The same id with another directory is another candidate, and no voter."""
        solo = Solo(1)
        assert getattr(solo.ask(solo.vote_request(2, epoch=5)), "vote_granted", False)
        namesake = solo.vote_request(2, epoch=5)

        answer = solo.ask(
            VoteRequest(
                cluster_id=CLUSTER_ID,
                voter_id=namesake.voter_id,
                voter_directory_id=namesake.voter_directory_id,
                replica_epoch=namesake.replica_epoch,
                replica_id=namesake.replica_id,
                replica_directory_id=voter(9).directory_id,
                last_epoch=namesake.last_epoch,
                end_offset=namesake.end_offset,
                pre_vote=False,
            )
        )

        assert isinstance(answer, VoteResponse)
        assert answer.error is ErrorCode.INCONSISTENT_VOTER_SET
        assert not answer.vote_granted


class TestWipedVoter:
    """Motivation: a disk that was lost must not cost a committed record."""

    def wiped_world(self, *wiped_ids: int, voter_ids: tuple[int, ...] = (1, 2, 3)) -> World:
        """Return a quorum with a commit, some of whose voters then lose their disks."""
        world = World(SeededRng(5), voter_ids=voter_ids, fault_rates=FaultRates(latency_ms_max=2))
        world.start()
        world.run_until_leader()
        world.propose("committed")
        world.run_until(world.now_ms + 200)
        assert world.invariants.committed[-1].value == "committed"
        for node_id in wiped_ids:
            world.crash(node_id)
            old = world.members[NodeId(node_id)]
            world.members[NodeId(node_id)] = MemoryMember(
                old.config,
                identity(node_id, voter_ids, is_wiped=True),
                world.chance,
                world.invariants,
            )
        return world

    def test_it_answers_neither_votes_nor_leaders_that_mean_the_old_one(self) -> None:
        """INVALID_VOTER_KEY: the request names the directory it is meant for."""
        solo = Solo(2, is_wiped=True)

        vote = solo.ask(solo.vote_request(1, epoch=4))
        begin = solo.ask(
            BeginQuorumEpochRequest(
                cluster_id=CLUSTER_ID,
                voter_id=NodeId(2),
                voter_directory_id=voter(2).directory_id,
                leader_id=NodeId(1),
                leader_epoch=Epoch(4),
            )
        )

        assert isinstance(vote, VoteResponse)
        assert (vote.error, vote.vote_granted) == (ErrorCode.INVALID_VOTER_KEY, False)
        assert isinstance(begin, BeginQuorumEpochResponse)
        assert begin.error is ErrorCode.INVALID_VOTER_KEY
        assert solo.member.election is None, "it promised nothing"

    def test_it_follows_as_an_observer_and_counts_for_nothing(self) -> None:
        world = self.wiped_world(3)
        world.start(3)
        world.run_until(world.now_ms + 3_000)
        description = world.members[NodeId(1)].running.describe()
        assert description is not None

        assert world.members[NodeId(3)].running.role is Role.FOLLOWER
        assert [status.key.id for status in description.observers] == [3]
        world.crash(2)
        world.propose("not with a wiped one")
        world.run_until(world.now_ms + 1_000)
        assert world.invariants.committed[-1].value == "committed"

    def test_two_wiped_of_three_form_no_quorum_without_the_third(self) -> None:
        """They have the numbers, and nothing that was committed."""
        world = self.wiped_world(1, 2)
        world.crash(3)
        world.start(1, 2)

        world.run_until(world.now_ms + 60_000)

        assert world.leader_id() is None
        assert all(world.members[NodeId(each)].running.epoch == 0 for each in (1, 2))

    def test_two_wiped_of_three_form_none_with_the_third_either(self) -> None:
        world = self.wiped_world(1, 2)
        world.start(1, 2)

        world.run_until(world.now_ms + 60_000)

        assert world.leader_id() is None
        assert world.members[NodeId(3)].log.entry(1) == world.invariants.committed[1]


class TestVotersWithoutDirectories:
    """Compatibility: kraft.version 0, where settings name voters by id alone."""

    def test_an_unknown_directory_matches_any(self) -> None:
        by_id = VoterSet((Voter(id=NodeId(1)), Voter(id=NodeId(2))))

        assert by_id.is_voter(ReplicaKey(NodeId(1), voter(1).directory_id))
        assert VOTERS.is_voter(ReplicaKey(NodeId(1), ZERO_UUID))
        assert not by_id.is_voter(ReplicaKey(NodeId(3), voter(3).directory_id))


class TestBootstrapSnapshot:
    """Bootstrapping: 00000000000000000000-0000000000.checkpoint holds version and voters."""

    def opening(self) -> bytes:
        return snapshot.opening_batch(VOTERS, last_contained_timestamp_ms=7, leader_epoch=Epoch(0))

    def test_it_is_the_snapshot_of_nothing(self) -> None:
        assert snapshot.BOOTSTRAP_ID == (0, 0)
        assert (
            snapshot.file_name(snapshot.BOOTSTRAP_ID)
            == "00000000000000000000-0000000000.checkpoint"
        )

    def test_it_holds_header_kraft_version_1_and_the_voters_in_this_order(self) -> None:
        data = self.opening()
        records = list(scan(data, 0, parse_header(data)))

        assert [control_type(record.key) for record in records] == [
            ControlType.SNAPSHOT_HEADER,
            ControlType.KRAFT_VERSION,
            ControlType.KRAFT_VOTERS,
        ]
        assert KRAFT_VERSION == read_kraft_version(records[1].value or b"") == 1
        assert read_voters(records[2].value or b"") == VOTERS

    def test_a_voter_is_written_with_its_directory_endpoints_and_version_range(self) -> None:
        record = voters_record(VOTERS)

        first = record.voters[0]
        assert (first.voter_id, first.voter_directory_id) == (1, voter(1).directory_id)
        assert [(each.name, each.host, each.port) for each in first.endpoints] == [
            VoterEndpoint("CONTROLLER", "host-1", 9093)
        ]
        assert first.kraft_version_feature.min_supported_version == 0
        assert first.kraft_version_feature.max_supported_version == 1
        assert read_voters(encode_message(record, 0)) == VOTERS

    def test_later_snapshots_name_the_voters_too(self) -> None:
        """A replica that fetches a snapshot needs no bootstrap snapshot."""
        assert snapshot.voters_of(self.opening()) == VOTERS


@pytest.mark.parametrize("pre_vote", [True, False])
def test_a_candidate_that_is_no_voter_is_refused(pre_vote: bool) -> None:
    """Vote: INCONSISTENT_VOTER_SET, where the voter set can not be behind, for it never changes."""
    solo = Solo(1)

    answer = solo.ask(solo.vote_request(9, epoch=1, pre_vote=pre_vote))

    assert isinstance(answer, VoteResponse)
    assert answer.error is ErrorCode.INCONSISTENT_VOTER_SET
    assert solo.core.epoch == 0, "a stranger raises no epoch"
