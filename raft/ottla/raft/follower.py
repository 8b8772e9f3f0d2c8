"""Role of a follower: it fetches from its leader, one request at a time, while the leader responds.

The fetch offset acknowledges all entries below it, so a voter fetches only once its whole log is
flushed. An observer fetches without flushing, and never stands for election.
"""

from dataclasses import dataclass

from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft.effects import FollowerAppend, OutgoingRequest, SnapshotChunk
from ottla.raft.messages import (
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
    VoterChangeResponse,
)
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role, Standing
from ottla.raft.voter_changes import VoterEntryUpkeep

PATIENCE_JITTER_DIVISOR = 8
"""Divisor of the fetch timeout. The quotient is the maximum random extension of this timeout. With
less randomness, the followers of a dead leader stand for election simultaneously and split the
vote. With more randomness, the leader's failure is noticed later."""

REFUSED_PAUSE_MS = 20
"""Delay in ms before a voter stands for election after its leader's process ended. With a shorter
delay, the other voters have not noticed the failure yet and reject the voter."""

REFUSED_STAGGER_MS = 100
"""Additional delay in ms before each further voter, in the order of ids, stands for election after
the leader's process ended. If the delay is shorter than an election, voters split the vote. If it
is longer, an election takes longer when the first voter has failed too."""


@dataclass(slots=True)
class SnapshotFetch:
    """Progress of a follower's download of a snapshot from the leader."""

    snapshot_id: OffsetAndEpoch
    position: int = 0


class Follower:
    """The role of a replica that has a leader and fetches from it."""

    __slots__ = (
        "_fetch_deadline_ms",
        "_has_fetched",
        "_has_reported",
        "_has_seen_end",
        "_leader_high_watermark",
        "_snapshot",
        "_voter_entry",
        "leader_id",
    )

    role = Role.FOLLOWER

    def __init__(self, replica: Replica, leader_id: NodeId, now_ms: int) -> None:
        assert leader_id != replica.identity.node_id
        assert leader_id == replica.epoch_leader_id
        assert replica.leader is not None
        self.leader_id = leader_id
        self._fetch_deadline_ms = now_ms + _fetch_timeout_ms(replica)
        self._has_fetched = False
        self._has_reported = False
        """True if this leader has responded, and so knows the standing of this replica."""
        self._leader_high_watermark = Offset(0)
        self._voter_entry = VoterEntryUpkeep(now_ms)
        self._has_seen_end = False
        """True if this replica's log has been identical to the leader's whole log at some time in
        the leader's epoch."""
        self._snapshot: SnapshotFetch | None = None

    @property
    def grants_pre_votes(self) -> bool:
        """True if this follower grants pre-votes. False once the leader has responded, because the
        leader is then alive (KIP-996).

        True again if the leader's process is known to have ended, or if the leader has not
        responded to an observer for a fetch timeout.
        """
        return not self._has_fetched

    def on_leader_refused(self, replica: Replica, now_ms: int) -> None:
        """Stand for election soon, because the leader's process has ended.

        A replica does this at most once per leader, and only if the leader has responded to this
        replica before. The other voters reject its candidacy if they still receive the leader's
        responses. This replica then waits for a whole fetch timeout.
        """
        if not self._has_fetched or not replica.may_campaign:
            return
        self._has_fetched = False
        # A replica whose removal is not committed yet is no voter of this set, and waits as if it
        # were the last one.
        earlier = [
            each
            for each in replica.identity.voters.ids
            if each not in (self.leader_id, replica.identity.node_id)
            and (each < replica.identity.node_id or not replica.is_voter)
        ]
        pause_ms = REFUSED_PAUSE_MS + REFUSED_STAGGER_MS * len(earlier)
        pause_ms += replica.rng.below(REFUSED_STAGGER_MS // 2)
        self._fetch_deadline_ms = min(self._fetch_deadline_ms, now_ms + pause_ms)

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Send the next fetch, and return None. Returns the role Prospective instead if the leader
        has not responded for too long and this replica may stand for election."""
        if replica.may_campaign:
            if now_ms >= self._fetch_deadline_ms:
                return Role.PROSPECTIVE
            replica.wake_at(self._fetch_deadline_ms)
        elif self._has_fetched and replica.grants_votes:
            # A candidate of a later voter set may need the vote of this controller, which does not
            # stand for election itself.
            self._has_fetched = now_ms < self._fetch_deadline_ms
            if self._has_fetched:
                replica.wake_at(self._fetch_deadline_ms)
        if replica.is_log_changing:
            replica.wake_at(now_ms)
            return None
        if replica.unheard:
            replica.ask_epochs(now_ms)
            self._report_standing(replica, now_ms)
            return None
        log = replica.log
        replica.raise_high_watermark(
            Offset(min(self._leader_high_watermark, replica.acknowledged_offset))
        )
        if replica.standing is Standing.CATCHING_UP and self._has_all_committed(replica):
            replica.raise_standing(Standing.FULL)
        if replica.acknowledged_offset == log.end_offset:
            self._ask_leader(replica, now_ms)
        return None

    def _report_standing(self, replica: Replica, now_ms: int) -> None:
        """Request the leader's epoch once, even if the leader has reported it before it was
        elected. The request reports this replica's standing, which `ottla status` shows."""
        leader = replica.leader
        if leader is not None and not self._has_reported and leader.id not in replica.unheard:
            replica.ask_epoch(leader, now_ms)

    def _has_all_committed(self, replica: Replica) -> bool:
        """Return whether this replica's log contains all entries that were committed before this
        leader's latest response.

        A leader's high watermark proves this only if an entry of the leader's own epoch is below it
        (raft paper, 5.4.2). The leader has all entries that were committed before this log was
        damaged: it was elected before the damage, or by a majority without this replica's vote.

        A leader elected before the damage may still count entries that this replica acknowledged
        and then lost, and may commit them later. In that case this log must contain the leader's
        whole log.
        """
        if replica.epoch <= replica.damage_epoch and not self._has_seen_end:
            return False
        log, committed = replica.log, self._leader_high_watermark
        older = log.end_offset_for_epoch(Epoch(replica.epoch - 1))
        is_of_epoch = older.offset < committed or log.latest_snapshot_id == OffsetAndEpoch(
            committed, replica.epoch
        )
        return is_of_epoch and committed <= replica.acknowledged_offset

    def _ask_leader(self, replica: Replica, now_ms: int) -> None:
        leader = replica.leader
        if leader is None:
            # The set that named this leader was truncated. No message has named its address since.
            replica.seek_leader(now_ms)
            return
        if not replica.is_free(leader.id, now_ms):
            if not replica.votes and replica.requests.is_failing(leader.id):
                # No BeginQuorumEpoch reaches an observer: it must search for a new leader.
                replica.seek_leader(now_ms)
            return
        change = self._voter_entry.due_request(replica, now_ms) if self._has_fetched else None
        if change is not None:
            replica.send(leader, change, now_ms)
            return
        if self._snapshot is None:
            replica.send_fetch(leader, now_ms, replica.config.fetch_wait_ms_max)
            return
        request = FetchSnapshotRequest(
            cluster_id=replica.identity.cluster_id,
            replica_id=replica.identity.node_id,
            replica_directory_id=replica.identity.directory_id,
            current_leader_epoch=replica.epoch,
            snapshot_id=self._snapshot.snapshot_id,
            position=self._snapshot.position,
            bytes_max=replica.config.fetch_snapshot_bytes_max,
        )
        replica.send(leader, request, now_ms)

    def on_response(
        self, replica: Replica, outgoing: OutgoingRequest, response: Response, now_ms: int
    ) -> None:
        """Process a response of the leader. If another node responds, only its information about
        the leader is used.

        The same applies to a response of an earlier epoch, because the leader may have changed
        since then.
        """
        if isinstance(response, VoterChangeResponse):
            return  # The voter set in the log shows whether the change was made.
        self._has_reported |= outgoing.to == self.leader_id
        is_current = outgoing.to == self.leader_id and response.leader_epoch == replica.epoch
        if response.error is not ErrorCode.NONE or not is_current:
            if outgoing.to == self.leader_id:
                # The leader may have deleted the snapshot; its next fetch response names one that
                # it has.
                self._snapshot = None
            replica.requests.back_off(outgoing.to, now_ms)
            return
        if isinstance(response, FetchResponse):
            self._on_fetched(replica, outgoing, response, now_ms)
        else:
            assert isinstance(response, FetchSnapshotResponse)
            self._on_snapshot_fetched(replica, outgoing, response, now_ms)

    def _on_fetched(
        self, replica: Replica, outgoing: OutgoingRequest, response: FetchResponse, now_ms: int
    ) -> None:
        fault = self._fault_of(replica, response)
        if fault is not None:
            replica.reject_response(outgoing, fault, now_ms)
            return
        self._restart_fetch_timeout(replica, now_ms)
        if response.diverging is not None:
            replica.truncate_to(self._shared_end(replica, response.diverging))
        elif response.snapshot_id is not None:
            self._snapshot = SnapshotFetch(response.snapshot_id)
        else:
            # Only here is our whole log a prefix of the leader's. Elsewhere its high watermark
            # proves nothing about our entries below it.
            self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
            is_at_end = response.high_watermark <= replica.acknowledged_offset
            self._has_seen_end |= is_at_end and len(response.records) == 0
            if len(response.records) > 0:
                replica.out.append.append(
                    FollowerAppend(records=response.records, epoch_max=response.leader_epoch)
                )
                replica.out.flush = replica.identity.keeps_votes

    def _restart_fetch_timeout(self, replica: Replica, now_ms: int) -> None:
        self._has_fetched = True
        self._fetch_deadline_ms = now_ms + _fetch_timeout_ms(replica)

    def _fault_of(self, replica: Replica, response: FetchResponse) -> str | None:
        """Return the reason why a leader cannot have sent this response to a fetch, or None if the
        response is plausible."""
        committed = replica.high_watermark
        diverging, snapshot_id = response.diverging, response.snapshot_id
        if diverging is not None:
            if diverging.offset < 0 or not 0 <= diverging.epoch <= replica.epoch:
                return f"it diverges from this log at {diverging}"
            shared_end = self._shared_end(replica, diverging)
            if shared_end < max(committed, replica.log.start_offset):
                return (
                    f"ConsistentCommittedData: it diverges from this log at {shared_end}, and all"
                    f" below {committed} is committed"
                )
        elif snapshot_id is not None and not (
            committed <= snapshot_id.offset and 0 <= snapshot_id.epoch <= replica.epoch
        ):
            return (
                f"ConsistentCommittedData: it offers a snapshot up to {snapshot_id}, and all below"
                f" {committed} is committed"
            )
        return None

    def _shared_end(self, replica: Replica, diverging: OffsetAndEpoch) -> Offset:
        """Return the highest offset up to which this log may equal the leader's log. `diverging` is
        an epoch and its end offset in the leader's log.

        Above its own end offset for the epoch of `diverging`, this log has only entries of later
        epochs. Above the offset of `diverging`, the same is true for the leader's log.
        """
        own = replica.log.end_offset_for_epoch(diverging.epoch)
        return min(own.offset, diverging.offset)

    def _on_snapshot_fetched(
        self,
        replica: Replica,
        outgoing: OutgoingRequest,
        response: FetchSnapshotResponse,
        now_ms: int,
    ) -> None:
        self._restart_fetch_timeout(replica, now_ms)
        fetch = self._snapshot
        request = outgoing.request
        assert fetch is not None
        assert isinstance(request, FetchSnapshotRequest)
        end_position = fetch.position + len(response.data)
        is_whole = end_position == response.size_bytes
        is_sound = (
            response.snapshot_id == fetch.snapshot_id
            and response.position == fetch.position
            and end_position <= response.size_bytes
            and (is_whole or len(response.data) > 0)
        )
        if not is_sound:
            self._snapshot = None
            replica.requests.back_off(outgoing.to, now_ms)
            return
        replica.out.snapshot_chunk = SnapshotChunk(
            snapshot_id=fetch.snapshot_id,
            position=fetch.position,
            data=response.data,
            is_last=is_whole,
        )
        fetch.position = end_position
        if is_whole:
            self._snapshot = None
            replica.raise_high_watermark(fetch.snapshot_id.offset)


def _fetch_timeout_ms(replica: Replica) -> int:
    """Return the time in ms after which a leader that has not responded is considered lost. A
    random part prevents followers from standing for election simultaneously."""
    timeout_ms = replica.config.fetch_timeout_ms
    return timeout_ms + replica.rng.below(max(1, timeout_ms // PATIENCE_JITTER_DIVISOR))
