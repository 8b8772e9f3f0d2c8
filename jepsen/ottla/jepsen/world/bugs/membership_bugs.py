"""Mutants (deliberate bugs that the simulation must find) in changes of the voter set: anomalies of
KIP-853 and of the literature on reconfiguration.

Each mutant's source is the reference of Kafka's TLA+ model (kraft_kip_853) or an issue of Kafka.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ottla.jepsen.world.bugs.mutant import patched, walk_mutant
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from ottla.raft.leader import Leader
from ottla.raft.messages import AddVoterRequest
from ottla.raft.progress import Progress, majority_value
from ottla.raft.quorum import QuorumCore
from ottla.raft.replica import Replica
from ottla.raft.voter_changes import VoterChanges, is_caught_up
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voters import QuorumIdentity, ReplicaKey, VoterSet

BUSY = (ErrorCode.REQUEST_TIMED_OUT, "busy")


def _change_before_own_commit() -> Any:
    """Mutant: change the voters before an entry of the leader's own epoch is committed. This is the
    bug of the single-server changes in the raft dissertation."""

    def refusal(self: VoterChanges, replica: Replica) -> tuple[ErrorCode, str] | None:
        if self._change is not None or replica.is_log_changing:
            return BUSY
        known = replica.log.voters_offset
        is_own = known > self._epoch_start_offset
        return BUSY if is_own and known >= replica.high_watermark else None

    return patched(VoterChanges, _refusal_of_now=refusal)


def _two_changes_at_once() -> Any:
    def refusal(self: VoterChanges, replica: Replica) -> tuple[ErrorCode, str] | None:
        if replica.high_watermark <= self._epoch_start_offset or replica.is_log_changing:
            return BUSY
        return None

    return patched(VoterChanges, _refusal_of_now=refusal)


def _truncation_keeps_the_set() -> Any:
    return patched(VoterHistory, truncate_to=lambda self, end_offset: None)


def _snapshot_forgets_the_set() -> Any:
    def start_with(self: VoterHistory, voters: VoterSet | None) -> None:
        self._sets.clear()

    return patched(VoterHistory, start_with=start_with)


def _removed_leader_counts_itself() -> Any:
    def count(self: Leader, replica: Replica) -> None:
        ends = [progress.end_offset for progress in self._voters.values()]
        ends.append(replica.log.flushed_offset)
        committed = Offset(majority_value(ends, replica.identity.voters.majority_count))
        if committed > self.epoch_start_offset:
            replica.raise_high_watermark(committed)

    return patched(Leader, count_acknowledgements=count)


@contextmanager
def _observer_stands_for_election() -> Iterator[None]:
    original = QuorumCore._on_voters_changed

    def unchanged(self: QuorumCore, now_ms: int) -> None:
        was_voter = self._replica.was_voter
        original(self, now_ms)
        self._replica.is_voter = self._replica.is_voter or was_voter

    with ExitStack() as stack:
        stack.enter_context(patched(QuorumCore, _on_voters_changed=unchanged))
        yield


def _removed_joins_again() -> Any:
    return patched(Replica, note_membership=lambda self: None)


@contextmanager
def _id_is_enough() -> Iterator[None]:
    """Mutant: treat a controller with a new directory id as the voter with the same node id,
    although that voter's disk is lost."""

    def is_voter(self: VoterSet, key: ReplicaKey) -> bool:
        return key.id in self

    with patched(VoterSet, is_voter=is_voter):
        yield


def _unflushed_observer() -> Any:
    """Mutant: an observer that may become a voter acknowledges entries that it has not flushed."""
    return patched(QuorumIdentity, keeps_votes=property(lambda identity: identity.is_voter))


def _wrong_state_at_its_record() -> Any:
    """Mutant: keep the voter set of a voters record although the record was removed by a truncation
    of the log to its offset.

    Kafka's controllers had no state to return to at the offset of a control record (KAFKA-17146).
    """

    def truncate_to(self: VoterHistory, end_offset: Offset) -> None:
        while self._sets and self._sets[-1][0] > end_offset:
            self._sets.pop()

    return patched(VoterHistory, truncate_to=truncate_to)


def _same_change_twice() -> Any:
    """Mutant: add a voter although the voter set already contains its id. An operator who repeats a
    request triggers this bug."""

    def add(
        self: VoterChanges,
        replica: Replica,
        token: int,
        request: AddVoterRequest,
        progress: Progress | None,
        now_ms: int,
    ) -> tuple[ErrorCode, str] | None:
        refusal = self._refusal_of_now(replica)
        if refusal is None and is_caught_up(progress, now_ms):
            voters = replica.identity.voters.with_voter(request.voter)
            self._append(replica, token, voters, now_ms)
        return refusal

    return patched(VoterChanges, _add=add)


@contextmanager
def _in_force_at_the_commit() -> Iterator[None]:
    """Mutant: a new voter set takes effect when its record is committed, instead of when it is
    appended. The two sides of a network partition then count majorities of different sets
    (RethinkDB 2.2.3)."""
    original, adopt = Replica.__init__, Replica.adopt_voters

    def is_uncommitted(self: Replica) -> bool:
        return self.log.voters is not None and self.log.voters_offset >= self.high_watermark

    def init(self: Replica, config: Any, identity: QuorumIdentity, *others: Any) -> None:
        original(self, config, identity, *others)
        if is_uncommitted(self):
            self.identity, self.peers = identity, identity.peers
            self.is_voter = identity.is_voter

    def adopt_voters(self: Replica) -> bool:
        return not is_uncommitted(self) and adopt(self)

    with patched(Replica, __init__=init, adopt_voters=adopt_voters):
        yield


_row = partial(walk_mutant, subject="raft-membership")

MUTANTS = (
    _row(
        "members-before-own-commit",
        "a new leader changes the voters before an entry of its epoch is committed",
        _change_before_own_commit,
        20_000,
    ),
    _row(
        "members-two-at-once",
        "a leader changes the voters while the previous set is uncommitted",
        _two_changes_at_once,
        5_000,
    ),
    _row(
        "members-not-reverted",
        "a truncated voter set remains in force",
        _truncation_keeps_the_set,
        20_000,
    ),
    _row(
        "members-snapshot-old",
        "a snapshot from the leader does not replace the voter set",
        _snapshot_forgets_the_set,
        20_000,
    ),
    _row(
        "members-leader-counts-itself",
        "a leader that was removed counts its own log towards the majority",
        _removed_leader_counts_itself,
        20_000,
    ),
    _row(
        "members-observer-campaigns",
        "a voter that was removed stands for election",
        _observer_stands_for_election,
        20_000,
    ),
    _row(
        "members-removed-joins",
        "a controller that was removed joins by itself again",
        _removed_joins_again,
        20_000,
    ),
    _row(
        "members-id-is-enough",
        "a voter is known by its id alone, whatever its directory",
        _id_is_enough,
        20_000,
    ),
    _row(
        "members-unflushed-observer",
        "a controller that is no voter yet acknowledges unflushed entries, and becomes one",
        _unflushed_observer,
        20_000,
    ),
    _row(
        "members-kept-at-record",
        "a log that is truncated at a voters record keeps the set of that record in force",
        _wrong_state_at_its_record,
        20_000,
    ),
    _row(
        "members-added-twice",
        "a voter is added although the set has its id with another directory",
        _same_change_twice,
        20_000,
    ),
    _row(
        "members-in-force-late",
        "a voter set takes effect when it is committed",
        _in_force_at_the_commit,
        5_000,
    ),
)
