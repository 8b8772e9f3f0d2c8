"""Mutants (deliberate bugs that the simulation must find) in changes of the voter set (KIP-853).
Each makes a quorum lose progress or elect a wrong leader.

The sources are the anomalies in the literature on KIP-853: its model in TLA+ (kraft_kip_853), the
raft dissertation, and issues of Kafka and Redpanda.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ottla.jepsen.world.bugs.mutant import patched, walk_mutant
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.raft import answers
from ottla.raft.leader import Leader
from ottla.raft.messages import FetchRequest, FetchSnapshotRequest, VoterChangeRequest
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voter_changes import VoterChanges, VoterEntryUpkeep, wanted_request
from ottla.raft.voters import QuorumIdentity, Voter, VoterEndpoint

LEADER, VALUES, CHANGES = (
    "EventuallyLeaderElected",
    "ValuesEventuallyAcked",
    "ReconfigurationNotStuck",
)


@contextmanager
def _refuses_removed_voters() -> Iterator[None]:
    """Mutant: refuse the fetches of removed voters, so that they never read the record of their
    removal."""
    original = answers.fetch_error

    def fetch_error(
        replica: Replica, is_leader: bool, request: FetchRequest | FetchSnapshotRequest
    ) -> ErrorCode:
        history: Any = replica.log
        sets = [replica._initial_voters, *(one for _, one in history._history._sets)]
        was_voter = any(one.is_voter(request.replica_key) for one in sets)
        if is_leader and was_voter and not replica.identity.voters.is_voter(request.replica_key):
            return ErrorCode.INCONSISTENT_VOTER_SET
        return original(replica, is_leader, request)

    with patched(answers, fetch_error=fetch_error):
        yield


def _only_voters_vote() -> Any:
    """Mutant: a replica refuses to vote if it is not in its own voter set."""
    return patched(Replica, grants_votes=property(lambda replica: replica.votes))


def _joins_before_it_fetches() -> Any:
    """Mutant: a controller that is not yet a voter sends AddVoter requests in place of all its
    fetches."""

    def due_request(
        self: VoterEntryUpkeep, replica: Replica, now_ms: int
    ) -> VoterChangeRequest | None:
        return wanted_request(replica)

    return patched(VoterEntryUpkeep, due_request=due_request)


def _dials_the_log_only() -> Any:
    def addresses(self: QuorumIdentity, voter: Voter) -> tuple[VoterEndpoint, ...]:
        return voter.endpoints

    return patched(QuorumIdentity, addresses_of=addresses)


def _leads_without_followers() -> Any:
    return patched(Leader, has_lost_majority=lambda self, replica, now_ms: False)


@contextmanager
def _leaves_before_the_commit() -> Iterator[None]:
    """Mutant: a leader resigns when the record of its own removal is appended, instead of when it
    is committed."""
    original = Leader.poll

    def poll(self: Leader, replica: Replica, now_ms: int) -> Role | None:
        return original(self, replica, now_ms) if replica.is_voter else Role.RESIGNED

    with patched(Leader, poll=poll), _removal_is_orphaned():
        yield


def _removal_is_orphaned() -> Any:
    """Mutant: a replica never stands for election to complete its own removal from the voters."""
    return patched(Replica, may_complete_removal=property(lambda replica: False))


def _directory_is_not_compared() -> Any:
    def is_meant_for(replica: Replica, voter_id: NodeId, directory_id: Any) -> bool:
        return voter_id == replica.identity.node_id and replica.identity.keeps_votes

    return patched(answers, _is_meant_for=is_meant_for)


def _endpoint_is_not_probed() -> Any:
    """Mutant: add a voter without checking which replica listens at its endpoint."""

    def probe(self: VoterChanges, replica: Replica, change: Any, now_ms: int) -> None:
        if change.probed is None or replica.is_log_changing:
            return
        voters = replica.identity.voters.with_voter(change.probed)
        self._append(replica, change.token, voters, now_ms)

    return patched(VoterChanges, _probe=probe)


_row = partial(walk_mutant, subject="raft-recovery")

MUTANTS = (
    _row(
        "members-removed-refused",
        "a leader refuses the fetches of a voter that has not read its removal",
        _refuses_removed_voters,
        1_000,
        killed_by=(LEADER, VALUES, CHANGES),
    ),
    _row(
        "members-outsider-no-vote",
        "a controller outside its own voter set refuses a vote that is needed",
        _only_voters_vote,
        5_000,
        killed_by=(LEADER,),
    ),
    _row(
        "members-join-before-fetch",
        "a controller that joins by itself asks to be added in the place of its fetches",
        _joins_before_it_fetches,
        1_000,
        killed_by=(LEADER, VALUES, CHANGES),
    ),
    _row(
        "members-unreachable",
        "a voter is added whose endpoint reaches no replica",
        _endpoint_is_not_probed,
        2_000,
        killed_by=(LEADER, VALUES, CHANGES),
    ),
    _row(
        "members-renamed",
        "addresses in the voter set are dialled in the place of those in the settings",
        _dials_the_log_only,
        1_000,
        killed_by=(LEADER, VALUES, CHANGES),
    ),
    _row(
        "members-leader-alone",
        "a leader from which no majority fetches leads on",
        _leads_without_followers,
        1_000,
        killed_by=("LeaderResignsAlone",),
    ),
    _row(
        "members-leaves-early",
        "a leader that removes itself resigns before its removal is committed",
        _leaves_before_the_commit,
        1_000,
        killed_by=(LEADER,),
    ),
    _row(
        "members-two-formatted",
        "a voter whose directory was formatted again votes, in two of three voters",
        _directory_is_not_compared,
        20_000,
    ),
    _row(
        "members-removal-orphaned",
        "a leader that crashes with its own removal never stands for election again",
        _removal_is_orphaned,
        1_000,
        killed_by=(LEADER,),
    ),
)
