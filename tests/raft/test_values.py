"""The values beneath the core: voters, quorum-state, progress, requests, transitions."""

import itertools
import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.quorum.world import identity, voter
from ottla.model.errors import CorruptDataError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset
from ottla.raft.candidate import Ballot
from ottla.raft.effects import OutgoingRequest
from ottla.raft.election_state import ElectionState, decode, encode
from ottla.raft.messages import EndQuorumEpochRequest
from ottla.raft.progress import Progress, majority_value
from ottla.raft.requests import BACKOFF_DOUBLINGS_MAX, Requests
from ottla.raft.transitions import LEGAL, OBSERVER_ROLES, Role
from ottla.raft.voters import QuorumIdentity, ReplicaKey, Voter, VoterEndpoint, VoterSet

DIRECTORY = UUID("8d3ea0a4-6c2f-4bd4-9c0c-0f9c8c6d1a55")


class TestQuorumState:
    """The `quorum-state` file."""

    def test_it_is_kafkas_json_of_version_1(self) -> None:
        state = ElectionState(
            epoch=Epoch(7), leader_id=NodeId(2), voted=ReplicaKey(NodeId(3), DIRECTORY)
        )

        assert json.loads(encode(state)) == {
            "leaderId": 2,
            "leaderEpoch": 7,
            "votedId": 3,
            "votedDirectoryId": "jT6gpGwvS9ScDA-cjG0aVQ",
            "data_version": 1,
        }

    @given(
        st.integers(0, 2**31 - 1),
        st.none() | st.integers(0, 2**31 - 1),
        st.none() | st.tuples(st.integers(0, 2**31 - 1), st.uuids()),
    )
    def test_what_is_written_is_read(
        self, epoch: int, leader_id: int | None, voted: tuple[int, UUID] | None
    ) -> None:
        state = ElectionState(
            epoch=Epoch(epoch),
            leader_id=None if leader_id is None else NodeId(leader_id),
            voted=None if voted is None else ReplicaKey(NodeId(voted[0]), voted[1]),
        )

        assert decode(encode(state)) == state

    def test_a_file_of_version_0_is_read(self) -> None:
        data = (
            b'{"clusterId":"x","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
            b'"currentVoters":[{"voterId":1}],"data_version":0}'
        )

        assert decode(data) == ElectionState(epoch=Epoch(2), leader_id=NodeId(1))

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[]",
            b"[" * 100_000,
            b"\xff",
            b'{"data_version":2}',
            b'{"data_version":1,"leaderEpoch":2147483648}',
            b'{"data_version":1,"leaderEpoch":"1"}',
            b'{"data_version":1,"leaderEpoch":1,"leaderId":true}',
            b'{"data_version":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":"AA"}',
            b'{"data_version":1,"leaderEpoch":1,"votedId":1,"votedDirectoryId":7}',
        ],
    )
    def test_a_file_that_lies_is_corrupt(self, data: bytes) -> None:
        with pytest.raises(CorruptDataError):
            decode(data)


class TestVoters:
    """Identity of voters."""

    def test_a_voter_is_its_id_and_its_directory(self) -> None:
        voters = identity(1, (1, 2, 3)).voters

        assert voters.is_voter(voter(2).key)
        assert not voters.is_voter(ReplicaKey(NodeId(2), DIRECTORY))
        assert not voters.is_voter(ReplicaKey(NodeId(4), voter(2).directory_id))

    def test_a_directory_id_that_is_not_known_matches_any(self) -> None:
        voters = VoterSet((Voter(id=NodeId(1), directory_id=ZERO_UUID),))

        assert voters.is_voter(ReplicaKey(NodeId(1), DIRECTORY))

    @pytest.mark.parametrize(
        ("voter_count", "majority_count"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)]
    )
    def test_more_than_half_decide(self, voter_count: int, majority_count: int) -> None:
        voters = VoterSet(tuple(voter(each) for each in range(voter_count)))

        assert voters.majority_count == majority_count

    def test_a_set_needs_distinct_voters(self) -> None:
        with pytest.raises(AssertionError):
            VoterSet((voter(1), voter(1)))

    def test_a_set_changes_by_one_voter(self) -> None:
        voters = VoterSet((voter(1), voter(2)))

        assert voters.with_voter(voter(3)).ids == (1, 2, 3)
        assert voters.with_voter(voter(2)) == voters
        assert voters.without(NodeId(2)).ids == (1,)
        assert voters.without(NodeId(3)) == voters


class TestMajorities:
    """The arithmetic of commitment and of ballots."""

    @given(st.lists(st.integers(-1, 20), min_size=1, max_size=9))
    def test_the_majority_value_is_the_highest_that_enough_reach(self, ends: list[int]) -> None:
        needed_count = len(ends) // 2 + 1

        fast = majority_value(ends, needed_count)

        obvious = max(each for each in ends if sum(other >= each for other in ends) >= needed_count)
        assert fast == obvious

    @given(st.integers(1, 7), st.lists(st.booleans(), max_size=6))
    def test_a_ballot_is_decided_exactly_when_it_must_be(
        self, voter_count: int, words: list[bool]
    ) -> None:
        voters = VoterSet(tuple(voter(each) for each in range(voter_count)))
        words = words[: voter_count - 1]
        ballot = Ballot(voters, NodeId(0))

        for at, word in enumerate(words):
            ballot.record(NodeId(at + 1), word)

        yes_count = 1 + sum(words)
        silent_count = voter_count - 1 - len(words)
        assert ballot.is_won == (2 * yes_count > voter_count)
        assert ballot.is_lost == (2 * (yes_count + silent_count) <= voter_count)


class TestProgress:
    """Conditions for a caught-up replica."""

    def test_a_fetch_at_the_end_is_caught_up_now(self) -> None:
        progress = Progress(voter(2).key, 0)

        progress.on_fetch(Offset(5), Offset(5), 100)

        assert progress.last_caught_up_ms == 100

    def test_reaching_the_end_of_the_last_contact_counts_as_caught_up_then(self) -> None:
        progress = Progress(voter(2).key, 0)
        progress.on_fetch(Offset(3), Offset(5), 100)

        progress.on_fetch(Offset(5), Offset(9), 200)

        assert progress.last_caught_up_ms == 100


class TestRequests:
    """One request in flight per voter."""

    def outgoing(self, requests: Requests, to: int = 2) -> OutgoingRequest:
        return OutgoingRequest(
            request_id=requests.next_request_id(),
            to=NodeId(to),
            endpoints=(),
            request=EndQuorumEpochRequest(
                cluster_id="c", leader_id=NodeId(1), leader_epoch=Epoch(1)
            ),
            timeout_ms=1_000,
        )

    def test_a_voter_is_busy_until_the_answer_or_the_deadline(self) -> None:
        requests = Requests(20)
        outgoing = self.outgoing(requests)

        requests.start(outgoing, 0)

        assert requests.busy_until_ms(NodeId(2), 0) == 1_000
        assert requests.busy_until_ms(NodeId(3), 0) is None
        assert requests.busy_until_ms(NodeId(2), 1_000) == 1_020
        assert requests.take(outgoing.request_id) is None, "its deadline has passed"

    def test_the_back_off_doubles_up_to_a_bound_and_success_forgets_it(self) -> None:
        requests = Requests(20)
        now_ms = 0
        pauses = []
        for _ in range(BACKOFF_DOUBLINGS_MAX + 3):
            requests.back_off(NodeId(2), now_ms)
            until_ms = requests.busy_until_ms(NodeId(2), now_ms)
            assert until_ms is not None
            pauses.append(until_ms - now_ms)
            now_ms = until_ms

        assert pauses == [20, 40, 80, 160, 160, 160]
        requests.succeeded(NodeId(2))
        requests.back_off(NodeId(2), now_ms)
        assert requests.busy_until_ms(NodeId(2), now_ms) == now_ms + 20

    def test_an_answer_is_taken_once(self) -> None:
        requests = Requests(20)
        outgoing = self.outgoing(requests)
        requests.start(outgoing, 0)

        assert requests.take(outgoing.request_id) is outgoing
        assert requests.take(outgoing.request_id) is None
        assert requests.busy_until_ms(NodeId(2), 0) is None


class TestTransitions:
    """The table of roles."""

    def test_no_replica_leads_without_being_a_candidate(self) -> None:
        assert {role for role in Role if Role.LEADER in LEGAL[role]} == {Role.CANDIDATE}

    def test_no_replica_is_a_candidate_without_a_pre_vote(self) -> None:
        assert {role for role in Role if Role.CANDIDATE in LEGAL[role]} == {Role.PROSPECTIVE}

    def test_every_role_can_be_reached_and_left(self) -> None:
        reached = set(itertools.chain.from_iterable(LEGAL.values()))

        assert reached == set(Role)
        assert all(LEGAL[role] - {role} for role in Role)

    def test_observers_have_a_table_of_their_own(self) -> None:
        assert frozenset({Role.UNATTACHED, Role.FOLLOWER}) == OBSERVER_ROLES


class TestAddresses:
    """The order in which the endpoints of a voter are tried."""

    old = VoterEndpoint("CONTROLLER", "voters", 1)
    safe = VoterEndpoint("SAFE", "voters", 2)
    settings = VoterEndpoint("SAFE", "settings", 2)

    def addresses(self, listener: str, *endpoints: VoterEndpoint) -> tuple[VoterEndpoint, ...]:
        known = QuorumIdentity(
            node_id=NodeId(5),
            directory_id=ZERO_UUID,
            cluster_id="cluster",
            voters=VoterSet(()),
            configured=(
                Voter(id=NodeId(1), endpoints=(self.settings,)),
                Voter(id=NodeId(2), endpoints=(VoterEndpoint("SAFE", "another voter", 2),)),
            ),
            listener=listener,
        )
        return known.addresses_of(Voter(id=NodeId(1), endpoints=endpoints))

    def test_the_voter_sets_endpoint_of_the_dialled_listener_is_first(self) -> None:
        found = self.addresses("SAFE", self.old, self.safe)
        assert found == (self.safe, self.settings, self.old)

    def test_the_settings_are_first_while_the_voter_set_lacks_the_listener(self) -> None:
        assert self.addresses("SAFE", self.old) == (self.settings, self.old)

    def test_an_address_is_tried_once_whatever_its_names(self) -> None:
        again = VoterEndpoint("CONTROLLER", *self.settings[1:])
        assert self.addresses("SAFE", again, self.safe) == (self.safe, self.settings)
