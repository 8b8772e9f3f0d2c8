"""The roles Prospective and Candidate: the two phases of an election.

A prospective requests pre-votes (KIP-996) in its current epoch and writes nothing: a replica that
was only partitioned cannot depose a working leader. With a majority of pre-votes it becomes a
candidate: It enters a new epoch, votes for itself and requests binding votes.
"""

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft.effects import OutgoingRequest
from ottla.raft.messages import Response, VoteRequest, VoteResponse
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey, VoterSet


class Ballot:
    """Votes of one election of a leader. Each voter counts once. A candidate that is not a voter
    itself does not count its own vote."""

    __slots__ = ("_granted", "_rejected", "_voters")

    def __init__(self, voters: VoterSet, own_id: NodeId) -> None:
        self._voters = voters
        self._granted = {own_id} if own_id in voters else set()
        self._rejected: set[NodeId] = set()

    @property
    def is_won(self) -> bool:
        """True if a majority of the voters has granted its votes in this election."""
        return len(self._granted) >= self._voters.majority_count

    @property
    def is_lost(self) -> bool:
        """True if a majority of votes is no longer possible, even if all undecided voters grant
        their votes."""
        return len(self._voters) - len(self._rejected) < self._voters.majority_count

    @property
    def granting_voters(self) -> tuple[ReplicaKey, ...]:
        """The voters that granted their vote in this election, sorted by id."""
        return tuple(voter.key for voter in self._voters if voter.id in self._granted)

    def has_answered(self, voter_id: NodeId) -> bool:
        """Return whether a voter has granted or rejected its vote in this election."""
        return voter_id in self._granted or voter_id in self._rejected

    def record(self, voter_id: NodeId, is_granted: bool) -> None:
        """Record whether a voter has granted its vote in this election."""
        assert voter_id in self._voters
        assert voter_id not in self._granted or is_granted, "a vote cannot be taken back"
        (self._granted if is_granted else self._rejected).add(voter_id)

    def forget_rejection(self, voter_id: NodeId) -> bool:
        """Discard a voter's rejection of a pre-vote, so that the vote is requested again.

        Returns True if there was a rejection.
        """
        is_rejected = voter_id in self._rejected
        self._rejected.discard(voter_id)
        return is_rejected


class _Election:
    """Base class of the roles Prospective and Candidate, which requests votes from every voter that
    has not responded."""

    __slots__ = ("ballot", "election_deadline_ms")

    is_pre_vote: bool

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self.ballot = Ballot(replica.identity.voters, replica.identity.node_id)
        self.election_deadline_ms = now_ms + replica.random_election_timeout_ms()

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Count the vote in a voter's response. An error response is not counted, and the vote is
        requested again."""
        assert isinstance(response, VoteResponse)
        if response.error is ErrorCode.NONE:
            self.ballot.record(outgoing.to, response.vote_granted)
        else:
            replica.requests.back_off(outgoing.to, now_ms)

    def ask_for_votes(self, replica: Replica, now_ms: int) -> None:
        """Send a vote request to every voter that has neither responded nor a request in flight."""
        identity = replica.identity
        for voter in replica.peers:
            if self.ballot.has_answered(voter.id) or not replica.is_free(voter.id, now_ms):
                continue
            request = VoteRequest(
                cluster_id=identity.cluster_id,
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                replica_epoch=replica.epoch,
                replica_id=identity.node_id,
                replica_directory_id=identity.directory_id,
                last_epoch=replica.log.last_epoch,
                end_offset=replica.log.end_offset,
                pre_vote=self.is_pre_vote,
            )
            replica.send(voter, request, now_ms)


class Prospective(_Election):
    """A voter that requests pre-votes before it enters a new epoch.

    `leader_id` is the leader that stopped responding to this voter. The voter follows it again if
    other voters still receive its responses.
    """

    __slots__ = ("_rivals", "leader_id")

    role = Role.PROSPECTIVE
    grants_pre_votes = True
    is_pre_vote = True

    def __init__(self, replica: Replica, now_ms: int, leader_id: NodeId | None) -> None:
        super().__init__(replica, now_ms)
        self.leader_id = leader_id
        self._rivals: set[NodeId] = set()
        """Ids of voters with a shorter log that also stand for election."""

    def on_rival_candidate(self, voter_id: NodeId) -> None:
        """Record a rival, and request its pre-vote again. A rival is a voter with a shorter log
        that also stands for election.

        The rival rejected the earlier request because it still had a leader, and has lost contact
        with that leader. Without its pre-vote, this replica might not get a majority.
        """
        self._rivals.add(voter_id)
        self.ballot.forget_rejection(voter_id)

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Count the pre-vote in a voter's response. A response is out of date and not counted if
        the voter sent it before it stood for election itself."""
        super().on_response(replica, outgoing, response, now_ms)
        if outgoing.to in self._rivals and self.ballot.forget_rejection(outgoing.to):
            replica.requests.back_off(outgoing.to, now_ms)

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Return the next role, or None to continue requesting pre-votes.

        A majority of pre-votes makes this voter a candidate. If a majority is impossible or the
        election times out, the voter follows the known leader again. It becomes unattached if no
        leader is known.
        """
        if self.ballot.is_won and replica.may_campaign:
            return Role.CANDIDATE
        is_over = self.ballot.is_lost or now_ms >= self.election_deadline_ms
        if is_over or not replica.may_campaign:
            return Role.UNATTACHED if self.leader_id is None else Role.FOLLOWER
        replica.wake_at(self.election_deadline_ms)
        self.ask_for_votes(replica, now_ms)
        return None


class Candidate(_Election):
    """The role of a voter that stands for election in a new epoch."""

    __slots__ = ("backoff_end_ms",)

    role = Role.CANDIDATE
    leader_id: NodeId | None = None
    grants_pre_votes = True
    is_pre_vote = False

    def __init__(self, replica: Replica, now_ms: int) -> None:
        super().__init__(replica, now_ms)
        self.backoff_end_ms: int | None = None
        """Monotonic time in ms of the next attempt after a lost election. None while the election
        is not lost. The time includes a random delay, so that candidates do not split the votes
        again."""

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Return the next role, or None to continue requesting votes.

        A majority of votes makes this voter the leader. Otherwise it becomes prospective again, in
        order to stand for election once more: after the timeout, or after a random delay if votes
        were split.
        """
        if self.ballot.is_won and replica.may_campaign:
            return Role.LEADER
        is_split = self.ballot.is_lost or self._has_all_responses(replica)
        if is_split and self.backoff_end_ms is None:
            pause_ms = 1 + replica.rng.below(replica.config.election_backoff_ms_max)
            self.backoff_end_ms = min(now_ms + pause_ms, self.election_deadline_ms)
        end_ms = self.election_deadline_ms if self.backoff_end_ms is None else self.backoff_end_ms
        if now_ms >= end_ms or not replica.may_campaign:
            return Role.PROSPECTIVE
        replica.wake_at(end_ms)
        self.ask_for_votes(replica, now_ms)
        return None

    def _has_all_responses(self, replica: Replica) -> bool:
        """Return whether every voter has responded to the vote request or is unreachable, so that
        no further vote is expected."""
        return all(
            self.ballot.has_answered(voter.id) or replica.requests.is_failing(voter.id)
            for voter in replica.peers
        )
