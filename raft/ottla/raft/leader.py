"""Role of the leader: it appends entries, answers fetches, and commits entries that a majority has
acknowledged by fetching.

Invariant ConsistentCommittedData: the high watermark is the offset up to which a majority of voters
has *flushed*. The leader itself counts with its own flushed offset. The high watermark increases
only once an entry of the leader's own epoch is below that offset (raft paper, 5.4.2).
"""

from ottla.model.buggify import buggify
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.raft.answers import endpoints_of_leader
from ottla.raft.effects import (
    LeaderChangeAppend,
    OutgoingRequest,
    ReadLog,
    Reply,
    VotersAppend,
)
from ottla.raft.messages import (
    AddVoterRequest,
    BeginQuorumEpochRequest,
    DescribeReplicaResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    Response,
    VoterChangeRequest,
)
from ottla.raft.progress import Progress, QuorumProgress, ReplicaProgress, majority_value
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role
from ottla.raft.voter_changes import VoterChanges, is_first_set_missing
from ottla.raft.voters import ReplicaKey

OBSERVER_SESSION_MS = 300_000
"""Time in ms after which an observer that does not fetch is left out of the reply to
DescribeQuorum."""

PARKED_FETCHES_MAX = 1_000
"""Maximum number of fetches that wait at the leader for new entries. Above this number, a fetch is
answered immediately, and its sender retries."""


@frozen
class _ParkedFetch:
    token: int
    request: FetchRequest
    deadline_ms: int


class Leader:
    """The role of the replica that leads an epoch. An epoch has only one leader."""

    __slots__ = ("_changes", "_observers", "_parked", "_voters", "epoch_start_offset", "leader_id")

    role = Role.LEADER
    grants_pre_votes = False

    def __init__(
        self, replica: Replica, granting_voters: tuple[ReplicaKey, ...], now_ms: int
    ) -> None:
        identity = replica.identity
        assert replica.voted is not None
        assert replica.voted.id == identity.node_id
        assert not replica.is_log_changing
        self.leader_id: NodeId | None = identity.node_id
        self.epoch_start_offset = replica.log.end_offset
        """Offset of the LeaderChange record, which the leader appends first in its epoch."""
        self._voters = {voter.id: Progress(voter.key, now_ms) for voter in replica.peers}
        self._observers: dict[ReplicaKey, Progress] = {}
        self._parked: dict[ReplicaKey, _ParkedFetch] = {}
        self._changes = VoterChanges(self.epoch_start_offset)
        replica.out.append.append(
            LeaderChangeAppend(
                leader_epoch=replica.epoch,
                leader_id=identity.node_id,
                voters=tuple(voter.key for voter in identity.voters),
                granting_voters=granting_voters,
            )
        )
        if is_first_set_missing(replica):
            voters = VotersAppend(leader_epoch=replica.epoch, voters=identity.voters)
            replica.out.append.append(voters)
        replica.out.flush = True

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Return the role Resigned if a majority of the voters has stopped fetching, or if this
        leader's removal from the voters is committed.

        Otherwise count acknowledgements, announce the leadership, answer fetches that have waited
        long enough, and return None.
        """
        if self.has_lost_majority(replica, now_ms):
            return Role.RESIGNED
        self.count_acknowledgements(replica)
        self._changes.poll(replica, now_ms)
        if not replica.is_voter and replica.log.voters_offset < replica.high_watermark:
            return Role.RESIGNED
        for progress in self._voters.values():
            self._announce_leadership(replica, progress, now_ms)
        for parked in list(self._parked.values()):
            if now_ms >= parked.deadline_ms:
                self._answer(replica, parked)
            else:
                replica.wake_at(parked.deadline_ms)
        return None

    def has_lost_majority(self, replica: Replica, now_ms: int) -> bool:
        """Return whether fewer than a majority of the voters fetched recently (check-quorum).

        The voters that do not fetch may then have another leader.
        """
        needed_count = replica.identity.voters.majority_count - replica.is_voter
        if needed_count == 0:
            return False
        contacts_ms = (progress.last_contact_ms for progress in self._voters.values())
        patience_ms = replica.config.fetch_timeout_ms * 3 // 2
        deadline_ms = majority_value(contacts_ms, needed_count) + patience_ms
        replica.wake_at(deadline_ms)
        return now_ms >= deadline_ms

    def _announce_leadership(self, replica: Replica, progress: Progress, now_ms: int) -> None:
        """Send BeginQuorumEpoch to a voter that has not fetched for half a timeout."""
        voter = replica.identity.voters.get(progress.key.id)
        assert voter is not None
        if now_ms < progress.begin_due_ms:
            replica.wake_at(progress.begin_due_ms)
        elif replica.is_free(voter.id, now_ms):
            identity = replica.identity
            request = BeginQuorumEpochRequest(
                cluster_id=identity.cluster_id,
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                leader_id=identity.node_id,
                leader_epoch=replica.epoch,
                leader_endpoints=endpoints_of_leader(replica, self.leader_id),
            )
            replica.send(voter, request, now_ms)

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Process a voter's response, which shows whether the voter has acknowledged this leader. A
        voter that refused the leader gets another BeginQuorumEpoch soon. A response to
        DescribeReplica continues a change of the voter set."""
        if isinstance(response, DescribeReplicaResponse):
            progress = self._observer_named(outgoing.to, response.replica_key)
            self._changes.on_described(replica, outgoing, response, progress, now_ms)
        elif response.error is not ErrorCode.NONE:
            replica.requests.back_off(outgoing.to, now_ms)
        elif outgoing.to in self._voters:
            self._postpone_begin(replica, self._voters[outgoing.to], now_ms)

    def on_no_response(self, replica: Replica, outgoing: OutgoingRequest) -> None:
        """End a change of the voter set if the new voter's endpoint does not answer."""
        self._changes.on_probe_failed(replica, outgoing)

    def on_change_request(
        self, replica: Replica, token: int, request: VoterChangeRequest, now_ms: int
    ) -> None:
        """Decide about a request to change the voter set: start the change, or refuse it."""
        progress = None
        if isinstance(request, AddVoterRequest):
            progress = self._observer_named(request.voter.id, request.voter.key)
        self._changes.on_request(replica, token, request, progress, now_ms)

    def on_voters_changed(self, replica: Replica, now_ms: int) -> None:
        """Track the progress of the voters in the new voter set.

        A new voter keeps its progress as an observer; a removed voter continues as an observer.
        """
        before, self._voters = self._voters, {}
        for voter in replica.peers:
            known = before.pop(voter.id, None)
            if known is not None and known.key == voter.key:
                self._voters[voter.id] = known
                continue
            progress = self._observers.pop(voter.key, None) or Progress(voter.key, now_ms)
            progress.last_contact_ms = max(progress.last_contact_ms, now_ms)
            self._voters[voter.id] = progress
        for removed in before.values():
            self._observers[removed.key] = removed

    def _observer_named(self, node_id: NodeId, key: ReplicaKey) -> Progress | None:
        return self._observers.get(key) if key.id == node_id else None

    def on_appended(self, replica: Replica) -> None:
        """Answer the voters' fetches that wait at this leader, because new entries are being
        appended.

        The fetch of an observer waits until the entries are committed, which needs no observer.
        Otherwise each observer would fetch twice for each change of the metadata.
        """
        for parked in list(self._parked.values()):
            if replica.identity.voters.is_voter(parked.request.replica_key):
                self._answer(replica, parked)

    def count_acknowledgements(self, replica: Replica) -> None:
        """Raise the high watermark to the highest offset that a majority of the voters has flushed,
        and answer fetches that wait for it."""
        voters = replica.identity.voters
        ends = [progress.end_offset for progress in self._voters.values()]
        if replica.is_voter:
            ends.append(replica.log.flushed_offset)
        committed = Offset(majority_value(ends, voters.majority_count))
        if committed <= self.epoch_start_offset:
            return
        if replica.raise_high_watermark(committed):
            for parked in list(self._parked.values()):
                if parked.request.high_watermark < committed:
                    self._answer(replica, parked)

    def on_fetch(self, replica: Replica, token: int, request: FetchRequest, now_ms: int) -> None:
        """Record the progress of a replica that fetches from this leader. Answers the fetch, or
        delays the response until there are new entries."""
        overtaken = self._parked.pop(request.replica_key, None)
        if overtaken is not None:
            replica.reply(overtaken.token, self._response(replica))
        self.note_standing(replica, request)
        answer = self._divergence_response(replica, request)
        if answer is not None:
            self._note_contact(replica, request.replica_key, now_ms)
            replica.reply(token, answer)
            return
        progress = self._progress_of(replica, request.replica_key, now_ms)
        progress.on_fetch(request.fetch_offset, replica.log.end_offset, now_ms)
        self._postpone_begin(replica, progress, now_ms)
        self.count_acknowledgements(replica)
        wait_ms = min(request.wait_ms_max, replica.config.fetch_wait_ms_max)
        if buggify("raft-no-parking"):
            wait_ms = 0
        parked = _ParkedFetch(token, request, now_ms + wait_ms)
        self._parked[request.replica_key] = parked
        if (
            self._has_news(replica, request)
            or wait_ms <= 0
            or len(self._parked) > PARKED_FETCHES_MAX
        ):
            self._answer(replica, parked)

    def _has_news(self, replica: Replica, request: FetchRequest) -> bool:
        """Return whether the response to a fetch would contain entries or a higher high watermark
        that the sender lacks. For an observer, only committed entries count."""
        is_voter = replica.identity.voters.is_voter(request.replica_key)
        end_offset = replica.log.end_offset if is_voter else replica.high_watermark
        return request.fetch_offset < end_offset or request.high_watermark < replica.high_watermark

    def note_standing(self, replica: Replica, request: FetchRequest) -> None:
        """Record a voter's standing for the reply to DescribeQuorum.

        The standing is recorded even if the fetch is refused, because all fetches of a voter
        without a vote are refused.
        """
        key = request.replica_key
        if replica.identity.voters.is_voter(key) and key.id in self._voters:
            self._voters[key.id].standing = request.standing

    def on_fetch_snapshot(
        self, replica: Replica, request: FetchSnapshotRequest, now_ms: int
    ) -> None:
        """Record a fetch of a snapshot as contact with its sender. The quorum core answers the
        fetch itself."""
        self._note_contact(replica, request.replica_key, now_ms)

    def release(self, replica: Replica, response: FetchResponse) -> None:
        """Send `response` to every fetch that waits at this replica, because it no longer leads."""
        for parked in self._parked.values():
            replica.reply(parked.token, response)
        self._parked.clear()
        self._changes.release(replica)

    def preferred_successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters as preferred successors of this leader: sorted by the length of
        their logs, the longest first."""
        ordered = sorted(self._voters.values(), key=lambda p: (-p.end_offset, p.key.id))
        return tuple(progress.key for progress in ordered)

    def describe(self, replica: Replica, now_ms: int) -> QuorumProgress:
        """Return the reply to DescribeQuorum: the fetch progress of each voter and observer."""
        own = ReplicaProgress(
            key=replica.key,
            end_offset=replica.log.end_offset,
            last_fetch_ms=now_ms,
            last_caught_up_ms=now_ms,
        )
        voters = [_status(progress) for progress in self._voters.values()]
        if replica.is_voter:
            voters.append(own)
        observers = [
            _status(progress)
            for progress in self._observers.values()
            if now_ms - progress.last_contact_ms <= OBSERVER_SESSION_MS
        ]
        if not replica.is_voter:
            observers.append(own)
        return QuorumProgress(
            leader_id=replica.identity.node_id,
            leader_epoch=replica.epoch,
            high_watermark=replica.high_watermark,
            voters=tuple(sorted(voters, key=lambda status: status.key.id)),
            observers=tuple(sorted(observers, key=lambda status: status.key)),
        )

    def _divergence_response(self, replica: Replica, request: FetchRequest) -> FetchResponse | None:
        """Return a response with a snapshot id or a truncation point if the log of the fetch's
        sender is not a prefix of the leader's log. Returns None if it is a prefix."""
        log = replica.log
        earliest, latest = log.earliest_snapshot_id, log.latest_snapshot_id
        if request.fetch_offset == 0 and latest is not None and latest.offset > 0:
            # An empty log starts with the snapshot even if the leader still has all entries below
            # it: replaying days of log takes minutes.
            return self._response(replica, snapshot_id=latest)
        if log.start_offset == 0 and request.fetch_offset == 0:
            return None
        assert log.start_offset == 0 or earliest is not None
        assert earliest is None or log.start_offset <= earliest.offset
        if earliest is not None and (
            request.fetch_offset < log.start_offset
            or (
                request.fetch_offset == log.start_offset
                and request.last_fetched_epoch != earliest.epoch
            )
            or request.last_fetched_epoch < earliest.epoch
        ):
            assert latest is not None
            return self._response(replica, snapshot_id=latest)
        end = log.end_offset_for_epoch(request.last_fetched_epoch)
        if end.epoch != request.last_fetched_epoch or end.offset < request.fetch_offset:
            return self._response(replica, diverging=end)
        return None

    def _response(
        self,
        replica: Replica,
        *,
        diverging: OffsetAndEpoch | None = None,
        snapshot_id: OffsetAndEpoch | None = None,
    ) -> FetchResponse:
        return FetchResponse(
            leader_id=self.leader_id,
            leader_epoch=replica.epoch,
            leader_endpoints=endpoints_of_leader(replica, self.leader_id),
            high_watermark=replica.high_watermark,
            log_start_offset=replica.log.start_offset,
            diverging=diverging,
            snapshot_id=snapshot_id,
        )

    def _answer(self, replica: Replica, parked: _ParkedFetch) -> None:
        """Answer a fetch that has waited at this leader. The answer contains the entries that the
        log has when the driver reads it."""
        del self._parked[parked.request.replica_key]
        bytes_max = min(parked.request.bytes_max, replica.config.fetch_bytes_max)
        read = ReadLog(offset=parked.request.fetch_offset, bytes_max=bytes_max)
        replica.out.replies.append(
            Reply(token=parked.token, response=self._response(replica), read=read)
        )

    def _progress_of(self, replica: Replica, key: ReplicaKey, now_ms: int) -> Progress:
        """Return the fetch progress of a voter or an observer. A voter whose directory was wiped is
        an observer."""
        if replica.identity.voters.is_voter(key) and key.id in self._voters:
            return self._voters[key.id]
        if len(self._observers) >= PARKED_FETCHES_MAX:
            self._drop_silent_observers(now_ms)
        return self._observers.setdefault(key, Progress(key, now_ms))

    def _drop_silent_observers(self, now_ms: int) -> None:
        oldest_ms = now_ms - OBSERVER_SESSION_MS
        silent = [key for key, p in self._observers.items() if p.last_contact_ms < oldest_ms]
        for key in silent or [min(self._observers, key=self._last_contact_ms)]:
            del self._observers[key]

    def _last_contact_ms(self, key: ReplicaKey) -> int:
        return self._observers[key].last_contact_ms

    def _note_contact(self, replica: Replica, key: ReplicaKey, now_ms: int) -> None:
        progress = self._progress_of(replica, key, now_ms)
        progress.last_contact_ms = now_ms
        self._postpone_begin(replica, progress, now_ms)

    def _postpone_begin(self, replica: Replica, progress: Progress, now_ms: int) -> None:
        progress.begin_due_ms = now_ms + replica.config.fetch_timeout_ms // 2


def _status(progress: Progress) -> ReplicaProgress:
    return ReplicaProgress(
        key=progress.key,
        end_offset=progress.end_offset,
        last_fetch_ms=progress.last_contact_ms,
        last_caught_up_ms=progress.last_caught_up_ms,
        standing=progress.standing,
    )
