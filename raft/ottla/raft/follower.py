"""Follower: fetches from its leader, one request at a time, and believes in it while it answers.

The fetch offset is the acknowledgement, so a voter fetches only from a log that is flushed to its
end.  An observer does the same without flushing and without ever standing for election.
"""

from dataclasses import dataclass

from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft.effects import FollowerAppend, Outgoing, SnapshotChunk
from ottla.raft.messages import (
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Response,
)
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role, Standing

PATIENCE_JITTER_DIVISOR = 8
"""An eighth of the fetch timeout is added by chance.  Less, and the followers of a dead leader
stand in step and split the vote; more, and its failure is noticed later."""

REFUSED_PAUSE_MS = 20
"""How long a voter waits that knows its leader's process gone.  Less, and the others have not
noticed yet and turn it down."""

REFUSED_STAGGER_MS = 100
"""How much longer each voter waits than the one before it, by id.  Less than an election takes lets
them split the vote; more is waited where the first is gone too."""


@dataclass(slots=True)
class SnapshotFetch:
    """How much of which snapshot is here."""

    snapshot_id: OffsetAndEpoch
    position: int = 0


class Follower:
    """A replica with a leader."""

    __slots__ = (
        "_fetch_deadline_ms",
        "_has_fetched",
        "_has_seen_end",
        "_leader_high_watermark",
        "_snapshot",
        "leader_id",
    )

    role = Role.FOLLOWER

    def __init__(self, replica: Replica, leader_id: NodeId, now_ms: int) -> None:
        assert leader_id in replica.identity.voters
        assert leader_id != replica.identity.node_id
        assert leader_id == replica.epoch_leader_id
        self.leader_id = leader_id
        self._fetch_deadline_ms = now_ms + _patience_ms(replica)
        self._has_fetched = False
        self._leader_high_watermark = Offset(0)
        self._has_seen_end = False
        """True if our log once was the leader's whole log."""
        self._snapshot: SnapshotFetch | None = None

    @property
    def grants_pre_votes(self) -> bool:
        """Say no once the leader has answered: it lives (KIP-996), unless it is known gone."""
        return not self._has_fetched

    def on_leader_refused(self, replica: Replica, now_ms: int) -> None:
        """Stand for election soon: the process that this replica followed is gone.

        Only a leader that has answered this replica can be lost to it, and once: a voter whose
        candidacy the others turn down, since they hear the leader, waits a whole fetch timeout.
        """
        if not self._has_fetched or not replica.may_campaign:
            return
        self._has_fetched = False
        others = [each for each in replica.identity.voters.ids if each != self.leader_id]
        pause_ms = REFUSED_PAUSE_MS + REFUSED_STAGGER_MS * others.index(replica.identity.node_id)
        pause_ms += replica.rng.below(REFUSED_STAGGER_MS // 2)
        self._fetch_deadline_ms = min(self._fetch_deadline_ms, now_ms + pause_ms)

    def poll(self, replica: Replica, now_ms: int) -> Role | None:
        """Fetch on, or stand for election once the leader has been silent for too long."""
        if replica.may_campaign:
            if now_ms >= self._fetch_deadline_ms:
                return Role.PROSPECTIVE
            replica.wake_at(self._fetch_deadline_ms)
        if replica.is_log_in_motion:
            replica.wake_at(now_ms)
            return None
        if replica.unheard:
            replica.ask_epochs(now_ms)
            return None
        log = replica.log
        replica.raise_high_watermark(
            Offset(min(self._leader_high_watermark, replica.acknowledged_offset))
        )
        if replica.standing is Standing.CATCHING_UP and self._has_all_committed(replica):
            replica.rise_to(Standing.FULL)
        if replica.acknowledged_offset == log.end_offset:
            self._ask_leader(replica, now_ms)
        return None

    def _has_all_committed(self, replica: Replica) -> bool:
        """Return True if this log has all that was committed before this leader's latest answer.

        A leader's high watermark says that only once an entry of its own epoch is below it (raft
        paper, 5.4.2).  The leader has all that was committed before this log was damaged: it was
        elected before that, or by a majority without this replica's vote.

        A leader from before the damage may still count what this replica acknowledged to it, and
        commit that with its help later: only its whole log is enough then.
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
        leader = replica.identity.voters.get(self.leader_id)
        assert leader is not None
        if not replica.is_free(leader.id, now_ms):
            if not replica.votes and replica.requests.is_failing(leader.id):
                # A new leader is not made known to an observer: it must ask around.
                replica.seek_leader(now_ms)
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
        self, replica: Replica, outgoing: Outgoing, response: Response, now_ms: int
    ) -> None:
        """Take in what the leader sent; what others sent says nothing but who leads.

        Neither does an answer of an epoch that is over: its leader may be another by now.
        """
        is_current = outgoing.to == self.leader_id and response.leader_epoch == replica.epoch
        if response.error is not ErrorCode.NONE or not is_current:
            if outgoing.to == self.leader_id:
                # It may no longer have the snapshot; the next fetch tells which it has.
                self._snapshot = None
            replica.requests.back_off(outgoing.to, now_ms)
            return
        if isinstance(response, FetchResponse):
            self._on_fetched(replica, outgoing, response, now_ms)
        else:
            assert isinstance(response, FetchSnapshotResponse)
            self._on_snapshot_fetched(replica, outgoing, response, now_ms)

    def _on_fetched(
        self, replica: Replica, outgoing: Outgoing, response: FetchResponse, now_ms: int
    ) -> None:
        fault = self._fault_of(replica, response)
        if fault is not None:
            replica.disbelieve(outgoing, fault, now_ms)
            return
        self._believe_in_leader(replica, now_ms)
        if response.diverging is not None:
            replica.truncate_to(self._shared_end(replica, response.diverging))
        elif response.snapshot_id is not None:
            self._snapshot = SnapshotFetch(response.snapshot_id)
        else:
            # Only here is our whole log a prefix of the leader's: elsewhere its watermark says
            # nothing of our entries below it.
            self._leader_high_watermark = max(self._leader_high_watermark, response.high_watermark)
            is_at_end = response.high_watermark <= replica.acknowledged_offset
            self._has_seen_end |= is_at_end and len(response.records) == 0
            if len(response.records) > 0:
                replica.out.append.append(
                    FollowerAppend(records=response.records, epoch_max=response.leader_epoch)
                )
                replica.out.flush = replica.is_voter

    def _believe_in_leader(self, replica: Replica, now_ms: int) -> None:
        self._has_fetched = True
        self._fetch_deadline_ms = now_ms + _patience_ms(replica)

    def _fault_of(self, replica: Replica, response: FetchResponse) -> str | None:
        """Return why an answer cannot be that of a leader; None where it may be."""
        committed = replica.high_watermark
        diverging, snapshot_id = response.diverging, response.snapshot_id
        if diverging is not None:
            if diverging.offset < 0 or not 0 <= diverging.epoch <= replica.epoch:
                return f"it parts from this log at {diverging}"
            shared_end = self._shared_end(replica, diverging)
            if shared_end < max(committed, replica.log.start_offset):
                return (
                    f"ConsistentCommittedData: it parts from this log at {shared_end}, and all"
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
        """Return the highest offset up to which our log may equal the leader's.

        Beyond the one end we have entries of a later epoch, beyond the other the leader has.
        """
        own = replica.log.end_offset_for_epoch(diverging.epoch)
        return min(own.offset, diverging.offset)

    def _on_snapshot_fetched(
        self,
        replica: Replica,
        outgoing: Outgoing,
        response: FetchSnapshotResponse,
        now_ms: int,
    ) -> None:
        self._believe_in_leader(replica, now_ms)
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


def _patience_ms(replica: Replica) -> int:
    """Return how long the leader may be silent from now on."""
    timeout_ms = replica.config.fetch_timeout_ms
    return timeout_ms + replica.rng.below(max(1, timeout_ms // PATIENCE_JITTER_DIVISOR))
