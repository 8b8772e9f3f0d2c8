"""Prospective and Candidate: the two halves of an election.

A prospective asks who *would* vote for it, in its present epoch and without a trace on any disk
(pre-vote, KIP-996): a replica that was only cut off cannot depose a working leader.  With a
majority's favour it becomes a candidate: a new epoch, its own vote, and binding votes.
"""

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft.effects import Outgoing
from ottla.raft.messages import Response, VoteRequest, VoteResponse
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey, VoterSet


class Ballot:
    """The votes of one election; each voter counts once."""

    __slots__ = ("_granted", "_rejected", "_voters")

    def __init__(self, voters: VoterSet, own_id: NodeId) -> None:
        assert own_id in voters
        self._voters = voters
        self._granted = {own_id}
        self._rejected: set[NodeId] = set()

    @property
    def is_won(self) -> bool:
        """Whether a majority granted its vote."""
        return len(self._granted) >= self._voters.majority_count

    @property
    def is_lost(self) -> bool:
        """Whether those left cannot make a majority any more."""
        return len(self._voters) - len(self._rejected) < self._voters.majority_count

    @property
    def granting_voters(self) -> tuple[ReplicaKey, ...]:
        """Return who voted for us, by id."""
        return tuple(voter.key for voter in self._voters if voter.id in self._granted)

    def has_answered(self, voter_id: NodeId) -> bool:
        """Return whether a voter's word is known."""
        return voter_id in self._granted or voter_id in self._rejected

    def record(self, voter_id: NodeId, is_granted: bool) -> None:
        """Note a voter's word."""
        assert voter_id in self._voters
        assert voter_id not in self._granted or is_granted, "a vote cannot be taken back"
        (self._granted if is_granted else self._rejected).add(voter_id)

    def forget_rejection(self, voter_id: NodeId) -> bool:
        """Let a voter be asked again if it said no; only where a vote does not bind."""
        is_rejected = voter_id in self._rejected
        self._rejected.discard(voter_id)
        return is_rejected


class _Election:
    """What both halves do: ask every voter that has not answered."""

    __slots__ = ("ballot", "election_deadline_ms")

    is_pre_vote: bool

    def __init__(self, replica: Replica, now_ms: int) -> None:
        self.ballot = Ballot(replica.identity.voters, replica.identity.node_id)
        self.election_deadline_ms = now_ms + replica.random_election_timeout_ms()

    def on_response(
        self, replica: Replica, outgoing: Outgoing, response: Response, now_ms: int
    ) -> None:
        """Count a vote; an error is no vote, and its voter is asked again."""
        assert isinstance(response, VoteResponse)
        if response.error is ErrorCode.NONE:
            self.ballot.record(outgoing.to, response.vote_granted)
        else:
            replica.requests.back_off(outgoing.to, now_ms)

    def ask_for_votes(self, replica: Replica, now_ms: int) -> None:
        """Send a vote request to every voter that owes its word and is free."""
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
    """A voter that asks who would vote for it.

    `leader_id` is the leader it has not heard from, to whom it returns if the others have.
    """

    __slots__ = ("_rivals", "leader_id")

    role = Role.PROSPECTIVE
    grants_pre_votes = True
    is_pre_vote = True

    def __init__(self, replica: Replica, now_ms: int, leader_id: NodeId | None) -> None:
        super().__init__(replica, now_ms)
        self.leader_id = leader_id
        self._rivals: set[NodeId] = set()
        """Voters whose log is behind ours, but which stand themselves."""

    def hear_of_rival(self, voter_id: NodeId) -> None:
        """Ask a voter again whose log is behind ours, but which stands itself.

        It has lost its leader since it turned us down, and nobody else may win.
        """
        self._rivals.add(voter_id)
        self.ballot.forget_rejection(voter_id)

    def on_response(
        self, replica: Replica, outgoing: Outgoing, response: Response, now_ms: int
    ) -> None:
        """Count a pre-vote; what a rival said before it stood is out of date."""
        super().on_response(replica, outgoing, response, now_ms)
        if outgoing.to in self._rivals and self.ballot.forget_rejection(outgoing.to):
            replica.requests.back_off(outgoing.to, now_ms)

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Go on to the election, or give up in favour of the leader others still hear."""
        if self.ballot.is_won and replica.may_campaign:
            return Role.CANDIDATE
        is_over = self.ballot.is_lost or now_ms >= self.election_deadline_ms
        if is_over or not replica.may_campaign:
            return Role.UNATTACHED if self.leader_id is None else Role.FOLLOWER
        replica.wake_at(self.election_deadline_ms)
        self.ask_for_votes(replica, now_ms)
        return None


class Candidate(_Election):
    """A voter that stands for election in an epoch of its own making."""

    __slots__ = ("backoff_end_ms",)

    role = Role.CANDIDATE
    leader_id: NodeId | None = None
    grants_pre_votes = True
    is_pre_vote = False

    def __init__(self, replica: Replica, now_ms: int) -> None:
        super().__init__(replica, now_ms)
        self.backoff_end_ms: int | None = None
        """After a lost election: when to try again.  Chance parts those who split the vote."""

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Win, or try again: after the timeout, or after a random pause when votes were split."""
        if self.ballot.is_won and replica.may_campaign:
            return Role.LEADER
        is_split = self.ballot.is_lost or self._has_heard_all(replica)
        if is_split and self.backoff_end_ms is None:
            pause_ms = 1 + replica.rng.below(replica.config.election_backoff_ms_max)
            self.backoff_end_ms = min(now_ms + pause_ms, self.election_deadline_ms)
        end_ms = self.election_deadline_ms if self.backoff_end_ms is None else self.backoff_end_ms
        if now_ms >= end_ms or not replica.may_campaign:
            return Role.PROSPECTIVE
        replica.wake_at(end_ms)
        self.ask_for_votes(replica, now_ms)
        return None

    def _has_heard_all(self, replica: Replica) -> bool:
        """Return whether every voter has answered or is out of reach: no vote is to come."""
        return all(
            self.ballot.has_answered(voter.id) or replica.requests.is_failing(voter.id)
            for voter in replica.peers
        )
