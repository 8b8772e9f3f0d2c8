"""Mutants (deliberate bugs that the simulation must find) in the quorum: elections, commitment,
truncation, identity."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ottla.jepsen.world.bugs.mutant import patched, walk_mutant
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft import answers
from ottla.raft.effects import Effects, OutgoingRequest
from ottla.raft.election_state import ElectionState
from ottla.raft.events import Event
from ottla.raft.follower import Follower
from ottla.raft.leader import Leader
from ottla.raft.messages import FetchRequest, FetchResponse, VoteRequest
from ottla.raft.progress import Progress, majority_value
from ottla.raft.quorum import QuorumCore
from ottla.raft.replica import Replica
from ottla.raft.requests import Requests
from ottla.raft.role_state import RoleState
from ottla.raft.voters import ReplicaKey, Voter, VoterSet

# --- durability -----------------------------------------------------------------------------------


def _acknowledge_unflushed() -> Any:
    return patched(Replica, acknowledged_offset=property(lambda replica: replica.log.end_offset))


def _count_own_unflushed() -> Any:
    def count(self: Leader, replica: Replica) -> None:
        ends = [progress.end_offset for progress in self._voters.values()]
        ends.append(replica.log.end_offset)
        committed = Offset(majority_value(ends, replica.identity.voters.majority_count))
        if committed > self.epoch_start_offset:
            replica.raise_high_watermark(committed)

    return patched(Leader, count_acknowledgements=count)


@contextmanager
def _persist_one_step_late() -> Iterator[None]:
    original = QuorumCore.step
    late: dict[QuorumCore, ElectionState] = {}

    def step(self: QuorumCore, event: Event, now_ms: int) -> Effects:
        effects = original(self, event, now_ms)
        is_vote_alone = effects.persist_election is not None and effects.replies
        due = late.pop(self, None)
        if is_vote_alone and effects.persist_election is not None:
            late[self] = effects.persist_election
            effects.persist_election = due
        elif effects.persist_election is None:
            effects.persist_election = due
        return effects

    with patched(QuorumCore, step=step):
        yield


def _forget_vote() -> Any:
    def state(replica: Replica) -> ElectionState:
        is_other = replica.voted is not None and replica.voted != replica.identity.key
        voted = None if is_other else replica.voted
        return ElectionState(epoch=replica.epoch, leader_id=replica.epoch_leader_id, voted=voted)

    return patched(Replica, election_state=property(state))


# --- elections ------------------------------------------------------------------------------------


def _vote_for_any_log() -> Any:
    return patched(Replica, is_log_up_to_date=lambda self, last_epoch, end_offset: True)


def _compare_ends_only() -> Any:
    def is_up_to_date(self: Replica, last_epoch: Epoch, end_offset: Offset) -> bool:
        return end_offset >= self.log.end_offset

    return patched(Replica, is_log_up_to_date=is_up_to_date)


@contextmanager
def _vote_twice() -> Iterator[None]:
    original = QuorumCore._on_vote

    def on_vote(self: QuorumCore, token: int, request: VoteRequest, now_ms: int) -> None:
        if not request.pre_vote and self._replica.voted != self._replica.identity.key:
            self._replica.voted = None
        original(self, token, request, now_ms)

    with patched(QuorumCore, _on_vote=on_vote):
        yield


def _majority_too_small() -> Any:
    return patched(VoterSet, majority_count=property(lambda self: max(1, len(self) // 2)))


def _count_answers_of_earlier_roles() -> Any:
    def reset(self: Requests) -> None:
        for node_id, connection in list(self._connections.items()):
            asked = connection.in_flight
            if asked is None or not isinstance(asked.request, VoteRequest):
                del self._connections[node_id]

    return patched(Requests, reset=reset)


@contextmanager
def _reuse_epoch_of_the_log() -> Iterator[None]:
    original = QuorumCore._first_role

    class _Forgetful:
        """A raft log that always reports epoch 0 as its last epoch. With it, a mutant uses an epoch
        twice."""

        def __init__(self, log: Any) -> None:
            self._log = log

        last_epoch = Epoch(0)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._log, name)

    def first_role(self: QuorumCore, now_ms: int) -> RoleState:
        replica = self._replica
        log = replica.log
        forgetful: Any = _Forgetful(log)
        replica.log = forgetful
        try:
            return original(self, now_ms)
        finally:
            replica.log = log

    with patched(QuorumCore, _first_role=first_role):
        yield


@contextmanager
def _stand_in_the_same_epoch() -> Iterator[None]:
    original = Replica.enter_epoch

    def enter(self: Replica, epoch: Epoch) -> None:
        # A candidate that enters the next epoch stays in an epoch without a leader.
        if epoch == self.epoch + 1 and self.epoch > 0 and self.epoch_leader_id is None:
            self.voted = None
            return
        original(self, epoch)

    with patched(Replica, enter_epoch=enter):
        yield


@contextmanager
def _wiped_voter_votes() -> Iterator[None]:
    def is_key(self: Voter, key: ReplicaKey) -> bool:
        return key.id == self.id

    def is_meant_for(replica: Replica, voter_id: NodeId, directory_id: object) -> bool:
        return voter_id == replica.identity.node_id and replica.identity.is_voter

    with ExitStack() as stack:
        stack.enter_context(patched(Voter, is_key=is_key))
        stack.enter_context(patched(answers, _is_meant_for=is_meant_for))
        yield


# --- commitment -----------------------------------------------------------------------------------


def _commit_earlier_epochs() -> Any:
    def count(self: Leader, replica: Replica) -> None:
        ends = [progress.end_offset for progress in self._voters.values()]
        ends.append(replica.log.flushed_offset)
        replica.raise_high_watermark(
            Offset(majority_value(ends, replica.identity.voters.majority_count))
        )

    return patched(Leader, count_acknowledgements=count)


def _commit_by_any_voter() -> Any:
    def count(self: Leader, replica: Replica) -> None:
        ends = [progress.end_offset for progress in self._voters.values()]
        ends.append(replica.log.flushed_offset)
        committed = Offset(max(ends))
        if committed > self.epoch_start_offset:
            replica.raise_high_watermark(min(committed, replica.log.end_offset))

    return patched(Leader, count_acknowledgements=count)


@contextmanager
def _believe_every_watermark() -> Iterator[None]:
    original = Follower._on_fetched

    def on_fetched(
        self: Follower,
        replica: Replica,
        outgoing: OutgoingRequest,
        response: FetchResponse,
        now_ms: int,
    ) -> None:
        self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
        original(self, replica, outgoing, response, now_ms)

    with patched(Follower, _on_fetched=on_fetched):
        yield


def _observers_count() -> Any:
    def progress_of(self: Leader, replica: Replica, key: ReplicaKey, now_ms: int) -> Any:
        return self._voters.get(key.id) or next(iter(self._voters.values()), Progress(key, now_ms))

    return patched(Leader, _progress_of=progress_of)


# --- truncation -----------------------------------------------------------------------------------


def _never_diverge() -> Any:
    def where(self: Leader, replica: Replica, request: FetchRequest) -> FetchResponse | None:
        log, latest = replica.log, replica.log.latest_snapshot_id
        if latest is not None and request.fetch_offset < log.start_offset:
            return self._response(replica, snapshot_id=latest)
        if request.fetch_offset > log.end_offset:
            end = OffsetAndEpoch(log.end_offset, log.last_epoch)
            return self._response(replica, diverging=end)
        return None

    return patched(Leader, _divergence_response=where)


def cut_at_own_end_of_epoch() -> Any:
    """Mutant: truncate a diverged raft log to the end of the epoch in the replica's own log,
    instead of the leader's. No invariant breaks at once, but the quorum makes no progress."""

    def shared_end(self: Follower, replica: Replica, diverging: OffsetAndEpoch) -> Offset:
        return replica.log.end_offset_for_epoch(diverging.epoch).offset

    return patched(Follower, _shared_end=shared_end)


@contextmanager
def _believe_old_answers() -> Iterator[None]:
    """Mutant: accept responses to earlier requests as responses to the current one."""
    sent: dict[Requests, dict[int, OutgoingRequest]] = {}
    original_start, original_take = Requests.start, Requests.take

    def start(self: Requests, outgoing: OutgoingRequest, now_ms: int) -> None:
        sent.setdefault(self, {})[outgoing.request_id] = outgoing
        original_start(self, outgoing, now_ms)

    def take(self: Requests, request_id: int) -> OutgoingRequest | None:
        found = original_take(self, request_id)
        if found is not None:
            return found
        old = sent.get(self, {}).get(request_id)
        connection = None if old is None else self._connections.get(old.to)
        if old is None or connection is None or connection.in_flight is None:
            return None
        if type(connection.in_flight.request) is not type(old.request):
            return None
        connection.in_flight = None
        connection.busy_until_ms = 0
        return old

    with patched(Requests, start=start, take=take):
        yield


_row = partial(walk_mutant, subject="raft")

MUTANTS = (
    _row(
        "raft-ack-unflushed",
        "a follower acknowledges entries that it has written but not flushed",
        _acknowledge_unflushed,
        2_000,
    ),
    _row(
        "raft-own-end-unflushed",
        "a leader counts its own log end towards the majority, flushed or not",
        _count_own_unflushed,
        2_000,
    ),
    _row(
        "raft-persist-late",
        "a voter answers before its vote is on disk",
        _persist_one_step_late,
        2_000,
    ),
    _row(
        "raft-vote-forgotten",
        "quorum-state does not contain the voted candidate",
        _forget_vote,
        20_000,
    ),
    _row(
        "raft-vote-any-log", "a vote is given without looking at the logs", _vote_for_any_log, 2_000
    ),
    _row(
        "raft-vote-by-length",
        "of two logs the longer one wins, whatever its last epoch",
        _compare_ends_only,
        20_000,
    ),
    _row("raft-vote-twice", "a voter votes for every candidate", _vote_twice, 20_000),
    _row("raft-majority", "half of the voters are a majority", _majority_too_small, 2_000),
    _row(
        "raft-earlier-roles",
        "responses to requests of an earlier role count in the current one: a pre-vote is a vote",
        _count_answers_of_earlier_roles,
        20_000,
    ),
    _row(
        "raft-epoch-of-log",
        "a replica whose log is ahead of quorum-state returns to the epoch in the file",
        _reuse_epoch_of_the_log,
        20_000,
    ),
    _row(
        "raft-epoch-reused",
        "a candidate starts another election in the epoch of a lost one",
        _stand_in_the_same_epoch,
        20_000,
    ),
    _row(
        "raft-wiped-voter",
        "a voter with a replaced disk continues to vote",
        _wiped_voter_votes,
        50_000,
    ),
    _row(
        "raft-figure-8",
        "a leader commits entries of earlier epochs by counting replicas (raft paper, figure 8)",
        _commit_earlier_epochs,
        100_000,
    ),
    _row("raft-any-ack", "one voter's acknowledgement commits", _commit_by_any_voter, 2_000),
    _row(
        "raft-watermark",
        "a follower adopts the leader's high watermark before its own log is known to match",
        _believe_every_watermark,
        50_000,
    ),
    _row(
        "raft-observer-counts", "an observer's fetch counts as a voter's", _observers_count, 20_000
    ),
    _row(
        "raft-never-diverge",
        "a leader compares only the offset of a fetch, not the epoch",
        _never_diverge,
        20_000,
    ),
    _row(
        "raft-old-answers",
        "a response to an outdated request is accepted",
        _believe_old_answers,
        20_000,
    ),
)
