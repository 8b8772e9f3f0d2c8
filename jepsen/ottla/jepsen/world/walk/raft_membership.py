"""Random walk on raft with a voter set that changes (KIP-853).

In addition to the faults of the raft walk, this walk adds and removes voters at any present or
former leader, replaces disks, and includes controllers that join on their own. Each anomaly that
the literature on reconfiguration describes (KIP-853, its TLA+ model, the raft dissertation) is
planted as a bug in `membership_bugs` or `stuck_quorum_bugs`.
"""

from collections.abc import Callable
from functools import cache

from ottla.jepsen.quorum.world import CLUSTER_ID, controller
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.raft_walk import (
    CONVERSATION_MAX,
    STRETCH_MS,
    RaftWalk,
    WalkedQuorum,
)
from ottla.model.errors import ErrorCode
from ottla.raft.effects import Effects, VotersAppend
from ottla.raft.events import RequestReceived
from ottla.raft.messages import AddVoterRequest, RemoveVoterRequest, Response, VoterChangeRequest
from ottla.raft.voters import QuorumIdentity, ReplicaKey, Voter, VoterSet

VOTER_COUNTS = (1, 2, 3, 3)
"""Possible numbers of initial quorum voters. Each run chooses one at random."""

SPARE_COUNT = 2
"""Number of simulated controllers that are not initial voters."""


class MembershipRaftWalk(RaftWalk):
    """Search engine that tests raft by random walks with changes of the voter set."""

    subject = "raft-membership"
    budget = 200
    required: tuple[str, ...] = (
        "a log is cut after divergence",
        "a snapshot is installed",
        "power goes between two effects",
        "two believe to lead at once",
        "a voter is added",
        "a voter is removed",
        "a leader removes itself",
        "a change is refused because of another one",
        "a voter set is truncated",
        "a voter joins by itself",
        "a replaced disk becomes a voter",
    )

    def make_walk(self, chance: Chance) -> WalkedQuorum:
        """Return a simulated quorum with a changing voter set, and its adversary."""
        return ChangingQuorum(chance)


@cache
def _controller(node_id: int, voter_count: int, disk: int, joins: bool) -> QuorumIdentity:
    voters = tuple(range(1, voter_count + 1))
    return controller(node_id, voters, disk=disk, joins_automatically=joins)


class ChangingQuorum(WalkedQuorum):
    """One simulated quorum of controllers, and the adversary that also changes its voters."""

    voter_counts = VOTER_COUNTS

    def __init__(self, chance: Chance) -> None:
        self._joining = chance.below(2) == 0
        """True if the controllers that are not initial voters join the voters automatically."""
        self._changes: dict[int, VoterChangeRequest] = {}
        """Pending requests to change the voters, by the token that identifies the request."""
        self._requested: set[ReplicaKey] = set()
        """Replicas that the adversary has asked some leader to add to the voters."""
        self._were_voters: set[ReplicaKey] = set()
        """Replicas that were in a committed voter set at some time."""
        self._committed_voters: VoterSet | None = None
        self._checked_end = 0
        super().__init__(chance)

    def observer_count(self) -> int:
        """Return the number of replicas that are not voters of the quorum at the start."""
        return SPARE_COUNT

    def identity_of(self, at: int, *, is_wiped: bool = False) -> QuorumIdentity:
        """Return the quorum identity of the controller with index `at`. If `is_wiped`, the
        controller has a new disk, otherwise its first disk."""
        joins = self._joining and (is_wiped or at >= self.voter_count)
        return _controller(at + 1, self.voter_count, 2 if is_wiped else 1, joins)

    def more_actions(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return the adversary's actions that change the voters, in the form that `drawn_actions`
        expects."""
        return (
            (self._add, 5, True),
            (self._remove, 4, True),
            (self._replace_disk, 2, False),
            (self._join_by_snapshot, 2, False),
            (self._converse_with_all, 4, True),
        )

    def _converse_with_all(self) -> None:
        """Deliver messages between a leader and all other replicas, so that the leader's entries
        are committed."""
        leader = self._some_leader()
        if leader is None:
            self._campaign()
            return
        for at in range(len(self.members)):
            if at != leader and self.members[leader].is_leader:
                self._let_talk(leader, at, CONVERSATION_MAX)

    def _replace_disk(self) -> None:
        """Replace the disk of a voter. Then remove the voter with the old directory id, and add the
        same controller with the new directory id."""
        if self._some_leader() is None:
            self._converse_with_all()
            return
        if not self._wiped:
            for at, member in enumerate(self.members[: self.voter_count]):
                if member.core is not None and not member.is_leader:
                    self._stop(at)
                    break
            self._wipe()
        self._remove()
        self._converse_with_all()
        self._add()
        self._converse_with_all()

    def _join_by_snapshot(self) -> None:
        """Replace the head of a leader's log by a snapshot. Then deliver fetches of another
        controller to this leader, so that the controller loads the snapshot."""
        leader = self._some_leader()
        if leader is None:
            return
        self._snapshot_of(leader)
        at = (leader + 1 + self.chance.below(len(self.members) - 1)) % len(self.members)
        if self.members[at].core is None:
            self._start(at)
        self._let_talk(leader, at, 2 * CONVERSATION_MAX)

    def _add(self) -> None:
        """Ask a leader to add a controller to the quorum's voters. The controller may be a voter
        already."""
        at = self.chance.below(len(self.members))
        if self._wiped and self.chance.below(2):
            at = next(iter(self._wiped))
        whoami = self.members[at].identity
        entry = Voter(
            id=whoami.node_id, directory_id=whoami.directory_id, endpoints=whoami.endpoints
        )
        is_patient = self.chance.below(2) == 0
        request = AddVoterRequest(cluster_id=CLUSTER_ID, voter=entry, ack_when_committed=is_patient)
        leader = self._some_leader()
        if whoami.joins_automatically:
            for _ in range(3):
                self._converse_with_all()
            return
        if leader not in (None, at) and self.chance.below(2):
            assert leader is not None
            if self.members[at].core is None:
                self._start(at)
            self._let_talk(leader, at, CONVERSATION_MAX)
            if self.members[at].core is not None:
                self._sleep(at, STRETCH_MS)
            self._let_talk(leader, at, CONVERSATION_MAX)
        self._requested.add(entry.key)
        self._ask(request)
        if leader not in (None, at) and self.chance.below(2):
            assert leader is not None
            self._let_talk(leader, at, CONVERSATION_MAX)

    def _remove(self) -> None:
        """Ask a leader to remove one of the quorum's voters."""
        leader = self._some_leader()
        if leader is None:
            return
        voters = self.members[leader].running.identity.voters
        lost = [voter for voter in voters if voter.id - 1 in self._wiped]
        named = lost if lost and self.chance.below(2) else voters.voters
        key = named[self.chance.below(len(named))].key
        self._ask(RemoveVoterRequest(cluster_id=CLUSTER_ID, voter_key=key), leader)

    def _some_leader(self) -> int | None:
        leading = [at for at, member in enumerate(self.members) if member.is_leader]
        return leading[self.chance.below(len(leading))] if leading else None

    def _ask(self, request: VoterChangeRequest, leader: int | None = None) -> None:
        at = self._some_leader() if leader is None else leader
        if at is None:
            self._deliver()
            return
        self._token += 1
        self._changes[self._token] = request
        self._step(at, RequestReceived(token=self._token, request=request))

    def note_answer(self, token: int, response: Response) -> None:
        """Record the response to a request to change the voters. `token` identifies the request."""
        request = self._changes.pop(token)
        if response.error is ErrorCode.NONE:
            kind = "added" if isinstance(request, AddVoterRequest) else "removed"
            self.rare.sometimes(f"a voter is {kind}")
        elif response.error is ErrorCode.REQUEST_TIMED_OUT:
            self.rare.sometimes("a change is refused because of another one")

    def _after(self, at: int, answers: list[tuple[int, Response]], effects: Effects) -> None:
        core = self.members[at].core
        assert core is not None
        for append in effects.append:
            if isinstance(append, VotersAppend) and core.identity.key.id not in append.voters:
                self.rare.sometimes("a leader removes itself")
        if effects.truncate_to is not None and core.identity.voters != (
            self.members[at].log.voters or self.identity_of(at).voters
        ):
            self.rare.sometimes("a voter set is truncated")
        super()._after(at, answers, effects)
        self._check_committed_voters()

    def _check_committed_voters(self) -> None:
        """Check RemovedStaysRemoved: a removed voter returns to a committed voter set only if the
        adversary has requested to add it again. Raises Violation otherwise."""
        committed = self.invariants.committed
        for entry in committed[self._checked_end :]:
            if entry.voters is None:
                continue
            before = self._committed_voters or self.identity_of(0).voters
            self._were_voters |= {voter.key for voter in before}
            for voter in entry.voters:
                if before.is_voter(voter.key):
                    continue
                if voter.key not in self._requested:
                    self.rare.sometimes("a voter joins by itself")
                    if voter.key in self._were_voters:
                        raise Violation("RemovedStaysRemoved", f"{voter.key} is a voter again")
                if voter.directory_id.int >= 2000:
                    self.rare.sometimes("a replaced disk becomes a voter")
            self._committed_voters = entry.voters
        self._checked_end = len(committed)
