"""One partition as this broker sees it: its leader, its in-sync replicas and its high watermark.

Pure: no clock, no await; the log below it appends synchronously. The metadata image decides who
leads (`apply`). The followers' fetches decide what is committed (`on_follower_fetch`). While an ISR
change is pending, the high watermark waits for every replica in the *maximal* ISR, which contains
the old and the new members. Therefore no committed record is lost, whether or not the controller
applies the change. A replica that the controller's response removed from the ISR remains in the
maximal ISR until the metadata has removed it too. Until then it may still be eligible as a leader,
because this broker may not yet have the latest min.insync.replicas.

Invariants: WatermarkNeverRecedes, WatermarkHeldByEveryInSyncReplica, NothingCommittedBelowMinIsr
(the high watermark does not advance with fewer in-sync replicas than `min.insync.replicas`,
KIP-966), MaximalIsrCoversController (the high watermark waits for each replica that the controller
may elect in this epoch).

After a change, the partition itself calls its `PartitionPort`. The port's callbacks wake waiting
requests, and request flushes of the log and checks of the ISR.
"""

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final
from uuid import UUID

from ottla.broker.replicas.follower import FollowerProgress
from ottla.broker.replicas.isr_changes import UNKNOWN_BROKER_EPOCH, IsrChange
from ottla.broker.replicas.partition_port import PartitionPort, WakeKey
from ottla.broker.replicas.topic_traffic import TopicTraffic
from ottla.metadata.image import FIRST_EPOCH, PartitionState, RecoveryState
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_EPOCH, NO_NODE, Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.internal_topics import INTERNAL_TOPICS
from ottla.model.limits import DECOMPRESSED_RECORD_BYTES_MAX, INT64_MAX
from ottla.model.settings.storage.topic import TOPIC_DEFAULTS, TopicConfig
from ottla.storage.log.log import Log
from ottla.storage.log.validate import Accepted
from ottla.storage.producers.verification import VerificationGuard
from ottla.storage.segments.append_info import AppendInfo, AppendOrigin

ACKS_ALL: Final = -1
_CLIENT: Final = AppendOrigin.CLIENT
_NO_ERROR: Final = ErrorCode.NONE

NO_REPLICAS: Final[frozenset[NodeId]] = frozenset()

_NO_FOLLOWERS: Final[dict[NodeId, FollowerProgress]] = {}
"""Dict that partitions without followers share. It always stays empty: a partition's dict is
replaced, never changed."""

SHARED_SETS_MAX: Final = 10_000
"""Maximum number of distinct in-sync replica sets that partitions share. With a smaller value, more
partitions of a large cluster have a separate set of at least 216 bytes."""


@lru_cache(SHARED_SETS_MAX)
def _shared_set(replicas: tuple[NodeId, ...]) -> frozenset[NodeId]:
    """Return the set of the replicas. Equal tuples of replicas share one set object."""
    return frozenset(replicas)


class Partition:
    """Replica of a partition on this broker, as a leader or a follower.

    A partition whose log is still being opened, or has been removed, does not lead. Requests that
    wait for a commit watch `high_watermark_key`, and requests that wait for records watch
    `end_offset_key`. Both keys are woken when the partition begins to lead, begins to follow or
    fails.
    """

    __slots__ = (
        "_leaving", "_other_maximal_isr", "_port", "_watched", "config", "consumer_read_ms",
        "damage", "end_offset_key", "followers", "high_watermark_key", "index",
        "inspects_records", "is_eligible", "is_flush_awaited", "is_internal", "is_leader",
        "is_reassigning", "is_recovering", "is_removed", "isr", "lag_ms_max",
        "leader_epoch", "leader_epoch_start_offset", "leader_id", "local_id", "log",
        "min_isr_count", "partition_epoch", "pending_change", "replicas", "storage_failure",
        "topic", "topic_id", "traffic", "unclean_leader_epoch",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        *,
        local_id: NodeId,
        is_eligible: Callable[[NodeId, int], bool],
        port: PartitionPort["Partition"],
        lag_ms_max: int = 30_000,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """Create the replica, without a log at first. `is_eligible(replica, broker_epoch)` returns
        whether a replica may be in sync, which means that its broker is neither fenced nor shutting
        down.

        `lag_ms_max` (`replica.lag.time.max.ms`) is the maximum lag of an in-sync follower in
        milliseconds. `traffic` counts the topic's bytes.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.is_internal = topic in INTERNAL_TOPICS
        """True for an internal topic, to which clients cannot produce."""
        self.local_id = local_id
        self.is_eligible = is_eligible
        self._port = port
        self._watched = port.watched
        self.lag_ms_max = lag_ms_max
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.log: Log | None = None
        self.storage_failure: str | None = None
        """Reason why the log cannot be opened (corrupt data or a failed disk), or None if the log
        is usable."""
        self.damage: str | None = None
        """Description of the last corruption that a fetch found in stored records, or None if no
        corruption was found. Corrupt records cannot be served."""
        self.config = TOPIC_DEFAULTS
        self.inspects_records = False
        """True if the records of a produced batch must be read one by one, or recompressed with
        another codec."""
        self.is_leader = False
        self.is_removed = False
        self.leader_id = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = Offset(0)
        self.partition_epoch = -1
        self.replicas: tuple[NodeId, ...] = ()
        self.is_reassigning = False
        self.isr: frozenset[NodeId] = NO_REPLICAS
        self.pending_change: IsrChange | None = None
        """ISR change that this broker has requested from the controller, or None if the outcome of
        the last change is known."""
        self.is_recovering = False
        """True after an unclean election of this leader, until the controller has confirmed the
        recovery."""
        self.unclean_leader_epoch = FIRST_EPOCH
        self.min_isr_count = 1
        self.is_flush_awaited = False
        self.followers = _NO_FOLLOWERS
        self._leaving: frozenset[NodeId] = NO_REPLICAS
        """Ids of replicas that the controller's responses have removed from the ISR, but the
        metadata has not yet removed."""
        self._other_maximal_isr: tuple[FollowerProgress, ...] = ()
        self.consumer_read_ms: int | None = None
        """Monotonic time in milliseconds of the last consumer read from this replica as a follower,
        or None before the first read."""
        self.high_watermark_key = WakeKey()
        self.end_offset_key = WakeKey()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.topic}-{self.index}, {role} in epoch {self.leader_epoch})"

    @property
    def key(self) -> TopicIdPartition:
        """Topic id and index of the partition. The object is created at each use: it is rarely
        needed, and would take 64 bytes of each partition."""
        return TopicIdPartition(self.topic_id, self.index)

    # ---- produce, fetch and lookups ----

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """Return the partition's log if this broker leads in the client's leader epoch. Otherwise
        raises RefusedError with Kafka's code.

        `current_leader_epoch` is the client's leader epoch, or -1 if the request has no epoch
        (KIP-320).
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            check_epoch(current_leader_epoch, self.leader_epoch)
        log = self.log
        if not self.is_leader or log is None:
            if self.storage_failure is not None and self.leader_id == self.local_id:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.storage_failure)
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def readable_log(self, current_leader_epoch: int, now_ms: int) -> Log:
        """Return the log for a consumer that may also read from a follower (KIP-392).

        Raises the same errors as `leader_log` if this broker has no following replica, or if the
        log of the replica has a hole.
        """
        log = self.log
        is_following = log is not None and self.leader_id not in (self.local_id, NO_NODE)
        if log is None or not is_following or log.hole_offset is not None:
            return self.leader_log(current_leader_epoch)
        check_epoch(current_leader_epoch, self.leader_epoch)
        self.consumer_read_ms = now_ms
        return log

    def append(
        self,
        records: memoryview,
        acks: int,
        now_ms: int,
        mono_ms: int,
        accepted: Accepted | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append a client's batch as the leader, and advance the high watermark if possible.
        Returns the offsets of the appended records.

        `now_ms` is wall time, for the records. `mono_ms` is monotonic time, for the followers' lag.
        `accepted` is the validated batch if `records` were validated before, or None. `guard` is
        the verification guard of a transactional batch.
        """
        if self.is_internal:
            raise RefusedError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}"
            )
        log = self.log
        if log is None or not self.is_leader:
            log = self.leader_log()  # Raises RefusedError.
        if acks == ACKS_ALL and len(self.isr) < self.min_isr_count:
            raise RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in sync, min.insync.replicas is {self.min_isr_count}",
            )
        if self.followers:
            for follower in self.followers.values():
                # A fetch skips partitions without news, so this follower had every record until
                # now.
                if follower.end_offset >= log.end_offset:
                    follower.caught_up_ms = mono_ms
        # As `log.append_as_leader` does, without the call.
        info = log.appender.append_as_leader(
            records, self.leader_epoch, now_ms, _CLIENT, accepted, guard, 0
        )
        self._on_appended(log, mono_ms)
        return info

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return a verification guard for the first batch of a transaction. The append presents the
        guard after the transaction coordinator has verified the transaction.

        Returns None if the transaction is already open in this partition. Raises RefusedError if
        the producer epoch is old.
        """
        return self.leader_log().begin_verification(
            producer_id, epoch=epoch, sequence=sequence, is_bumping=is_bumping, now_ms=now_ms
        )

    def append_of_coordinator(
        self,
        batches: bytes,
        *,
        now_ms: int,
        mono_ms: int,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> Offset:
        """Append batches from a coordinator on this broker in one write. Returns their end offset.

        If there are too few in-sync replicas, the batches are still written. They are committed
        when there are enough. `guard` is the verification guard of transactional batches, and
        `transaction_version` the version of transaction markers.
        """
        log = self.leader_log()
        info = log.append_as_leader(
            memoryview(batches),
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
            guard=guard,
            transaction_version=transaction_version,
        )
        self._on_appended(log, mono_ms)
        return info.end_offset

    def _on_appended(self, log: Log, mono_ms: int) -> None:
        if self.end_offset_key in self._watched:
            self._port.wake(self.end_offset_key)
        self.advance_high_watermark(mono_ms)
        if self.is_flush_awaited and log.is_flush_due:
            self._port.on_flush_due(self)

    def on_flushed(self, log: Log, now_ms: int) -> None:
        """Advance the high watermark after a flush of `log`, and wake the produce requests that
        wait for the flush.

        After a failed flush, the produce requests are also woken, and are answered with the error
        of the flush.
        """
        if self.log is log and self.is_leader:
            self.advance_high_watermark(now_ms)
        self._port.wake(self.high_watermark_key)

    def on_start_raised(self) -> None:
        """Wake the waiting fetches of followers after the log start offset was raised. Their
        responses report the new offset."""
        self._port.wake(self.end_offset_key)

    def acknowledgement(self, end_offset: Offset, acks: int) -> ErrorCode | None:
        """Return the error code for a produced batch that ends at `end_offset` (NONE if it is
        acknowledged), or None while the outcome is unknown."""
        log = self.log
        if log is None or not self.is_leader:
            if self.storage_failure is not None:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == ACKS_ALL:
            if log.state.high_watermark < end_offset:
                return None if log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
            # The maximal ISR includes the ISR, and is looked at only if that is too small.
            if len(self.isr) < self.min_isr_count and len(self.maximal_isr) < self.min_isr_count:
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return _NO_ERROR
        if self.is_flush_awaited and self.durable_end < end_offset:
            return None if log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    @property
    def high_watermark(self) -> Offset:
        """High watermark of the partition: the end offset of the committed records. It is 0 if the
        partition has no log."""
        return Offset(0) if self.log is None else self.log.high_watermark

    @property
    def durable_end(self) -> Offset:
        """End offset of the records in the log that count as written. If flush.messages is set, it
        is the flushed end offset plus the allowed number of unflushed records."""
        log = self.log
        assert log is not None
        if not self.is_flush_awaited:
            return log.end_offset
        return min(log.end_offset, Offset(log.recovery_point + self.config.flush_messages - 1))

    @property
    def is_flush_due(self) -> bool:
        """True if the log has unflushed records that count as written only after a flush."""
        return self.log is not None and self.durable_end < self.log.end_offset

    @property
    def low_watermark(self) -> Offset:
        """Lowest log start offset of the live replicas of this partition. Records below it are
        deleted on all live replicas."""
        assert self.log is not None
        starts = [
            follower.log_start_offset
            for replica, follower in self.followers.items()
            if self.is_eligible(replica, UNKNOWN_BROKER_EPOCH)
        ]
        return min([self.log.log_start_offset, *starts])

    # ---- metadata ----

    def attach(self, log: Log, now_ms: int) -> None:
        """Set the log of the partition after it was opened. If the metadata names this broker as
        leader, the partition begins to lead."""
        assert self.log is None
        assert not self.is_removed
        self.log = log
        if self.leader_id == self.local_id:
            self._begin_leading(now_ms)
        self._on_changed()

    def change_log(self, log: Log) -> None:
        """Replace the partition's log by a copy with all of its records, after a move between log
        directories."""
        assert self.log is not None
        self.log = log
        self._wake()
        self._flush_if_awaited()

    def fail(self, reason: str) -> None:
        """Stop leading and following until the next start of the broker, because the disk of the
        log failed with `reason`."""
        self.log = None
        self.storage_failure = reason
        self.is_leader = False
        self.pending_change = None
        self.followers = _NO_FOLLOWERS
        self._wake()

    def detach_log(self) -> Log:
        """Detach and return the partition's log while another task is still changing it. The
        partition does not lead until a log is attached again."""
        log, self.log = self.log, None
        assert log is not None
        self.is_leader = False
        self.followers = _NO_FOLLOWERS
        self._wake()
        return log

    def apply(self, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
        """Apply the state of the partition from the metadata image.

        The state may be old or already applied, because the response to this broker's own ISR
        change may have arrived first.
        """
        if state.partition_epoch < self.partition_epoch:
            return
        if state.partition_epoch > self.partition_epoch:
            # A change requested in an older state is part of this one, or will never be made.
            self.pending_change = None
        self._leaving = NO_REPLICAS
        is_new_epoch = state.leader_epoch > self.leader_epoch
        assert state.leader_epoch >= self.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.leader_epoch = Epoch(state.leader_epoch)
        self.leader_id = NodeId(state.leader)
        self.replicas = tuple(state.replicas)
        self.isr = _shared_set(state.isr)
        self.is_reassigning = bool(state.adding or state.removing)
        self.is_recovering = state.recovery_state is RecoveryState.RECOVERING
        self.unclean_leader_epoch = state.unclean_leader_epoch
        self._apply_config(config)
        if self.leader_id != self.local_id or self.log is None:
            self.is_leader = False
            self.followers = _NO_FOLLOWERS
        elif is_new_epoch or not self.is_leader:
            self._begin_leading(now_ms)
        else:
            self._note_replicas(now_ms)
            self.advance_high_watermark(now_ms)
        self._on_changed()

    def apply_config(self, config: TopicConfig, now_ms: int) -> None:
        """Apply changed settings of the topic to this partition."""
        self._apply_config(config)
        if self.is_leader:
            self.advance_high_watermark(now_ms)
        self._flush_if_awaited()

    def on_brokers_changed(self, now_ms: int) -> None:
        """Update the partition's replicas after a change of brokers, which may have fenced or
        unfenced some of them.

        An unfenced replica may join the ISR. The high watermark and deletions no longer wait for a
        fenced replica.
        """
        if self.is_leader and len(self.isr) < len(self.replicas):
            self.advance_high_watermark(now_ms)
            self._port.wake(self.high_watermark_key)
            self._port.on_isr_due(self)

    def remove(self) -> Log | None:
        """Stop leading and following, because the topic was deleted or the replica moved to another
        broker. Returns the partition's log, or None if the partition has no log."""
        log, self.log = self.log, None
        self.is_leader = False
        self.is_removed = True
        self.pending_change = None
        self._wake()
        return log

    def _on_changed(self) -> None:
        self._wake()
        self._flush_if_awaited()
        if self.is_leader:
            self._port.on_isr_due(self)

    def _wake(self) -> None:
        self._port.wake(self.high_watermark_key)
        self._port.wake(self.end_offset_key)

    def _flush_if_awaited(self) -> None:
        """Request a flush if the log has records that count as written only when durable.
        Without this call, such records might never be flushed, because no further append
        requests a flush."""
        if self.is_flush_due:
            self._port.on_flush_due(self)

    def _apply_config(self, config: TopicConfig) -> None:
        self.config = config
        # At most the number of replicas; otherwise such a topic could not be written at all
        # (KIP-966).
        self.min_isr_count = min(config.min_insync_replicas, max(1, len(self.replicas)))
        self.is_flush_awaited = config.flush_messages < INT64_MAX
        self.inspects_records = (
            config.is_compacted
            or config.record_validation == "full"
            or config.compression_type != "producer"
            or config.max_decompressed_message_bytes < DECOMPRESSED_RECORD_BYTES_MAX
        )

    def _begin_leading(self, now_ms: int) -> None:
        assert self.log is not None
        self.is_leader = True
        self.leader_epoch_start_offset = self.log.end_offset
        self.log.assign_epoch(self.leader_epoch, self.leader_epoch_start_offset)
        # A follower may have truncated records since it reported them in an earlier epoch.
        self.followers = _NO_FOLLOWERS
        self._note_replicas(now_ms)
        self.advance_high_watermark(now_ms)

    def _note_replicas(self, now_ms: int) -> None:
        others = [replica for replica in self.replicas if replica != self.local_id]
        before = self.followers
        self.followers = _NO_FOLLOWERS
        if others:
            self.followers = {each: before.get(each) or FollowerProgress(now_ms) for each in others}
        self._note_maximal_isr()

    # ---- high watermark and in-sync replicas ----

    @property
    def maximal_isr(self) -> Collection[NodeId]:
        """Ids of the replicas that the controller may consider in sync, under the current ISR or a
        pending change."""
        change, isr = self.pending_change, self.isr
        if change is None and not self._leaving:
            return isr
        return isr.union(self._leaving, () if change is None else change.isr)

    def _note_maximal_isr(self) -> None:
        members = self.maximal_isr
        self._other_maximal_isr = tuple(
            follower for replica, follower in self.followers.items() if replica in members
        )

    def on_follower_fetch(
        self,
        replica: NodeId,
        *,
        end_offset: Offset,
        log_start_offset: Offset,
        broker_epoch: int,
        now_ms: int,
    ) -> None:
        """Store the log start and end offsets that a follower's fetch reports.

        `broker_epoch` is an epoch that the metadata has registered. Raises RefusedError for a fetch
        from an earlier incarnation of the follower, which may have lost records since (KIP-903).

        A delayed fetch may replace the offsets of a newer fetch. In this case, the follower's fetch
        session, which reads only changed partitions, is woken. The follower then reports its
        offsets again, even if no record is appended.
        """
        log = self.leader_log()
        follower = self.followers.get(replica)
        if follower is None or broker_epoch < follower.broker_epoch:
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if log_start_offset > end_offset:
            raise RefusedError(ErrorCode.OFFSET_OUT_OF_RANGE)
        follower.broker_epoch = broker_epoch
        has_deleted = log_start_offset > follower.log_start_offset
        is_set_back = end_offset < follower.end_offset
        follower.on_fetch(
            end_offset=end_offset,
            log_start_offset=log_start_offset,
            leader_end=log.end_offset,
            now_ms=now_ms,
        )
        self.advance_high_watermark(now_ms)
        if has_deleted or is_set_back:
            self._port.wake(self.high_watermark_key)
        if self.may_join(replica):
            self._port.on_isr_due(self)

    def advance_high_watermark(self, now_ms: int) -> None:
        """Commit the records that every replica in the maximal ISR has, and wake the requests that
        wait for them.

        The high watermark also waits for a caught-up replica that is about to join the ISR.
        Otherwise, that replica could permanently be behind the high watermark, and the strict rule
        of KIP-966 would prevent it from joining.
        """
        log = self.log
        if log is None or len(self.isr) < self.min_isr_count:
            return
        state = log.state
        committed = self.durable_end if self.is_flush_awaited else state.end_offset
        for follower in self._other_maximal_isr:
            committed = min(committed, follower.end_offset)
        if self.followers and len(self._other_maximal_isr) < len(self.followers):
            for replica, follower in self.followers.items():
                if (
                    now_ms - follower.caught_up_ms <= self.lag_ms_max
                    and follower.end_offset >= state.high_watermark
                    and self.is_eligible(replica, follower.broker_epoch)
                ):
                    committed = min(committed, follower.end_offset)
        if committed > state.high_watermark:
            state.update_high_watermark(committed)
            if self.high_watermark_key in self._watched:
                self._port.wake(self.high_watermark_key)

    def follow_high_watermark(self, offset: Offset) -> bool:
        """Raise the high watermark of a follower to its leader's, and wake the fetches of consumers
        that wait on this broker. Returns True if the high watermark changed."""
        log = self.log
        if log is None or not log.update_high_watermark(offset):
            return False
        if self.high_watermark_key in self._watched:
            self._port.wake(self.high_watermark_key)
        return True

    def may_join(self, replica: NodeId) -> bool:
        """Return whether a replica outside the ISR should join it now.

        The replica must have all committed records and reach the start offset of this leader epoch.
        Records that an earlier leader committed are below that offset, even if this leader's high
        watermark is still lower. A replica that was just removed must wait until the metadata shows
        its removal; otherwise it would join again at once. If a follower's log ends at this
        leader's log start offset, it must also begin there, because its earlier records may belong
        to another log.
        """
        if replica in self.isr or replica in self._leaving or self.pending_change is not None:
            return False
        log = self.log
        follower = self.followers.get(replica)
        return (
            self.is_leader
            and log is not None
            and follower is not None
            and follower.end_offset >= max(log.high_watermark, self.leader_epoch_start_offset)
            and max(follower.end_offset - 1, follower.log_start_offset) >= log.log_start_offset
            and self.is_eligible(replica, follower.broker_epoch)
        )

    def wanted_isr(self, now_ms: int, *, may_shrink: bool) -> frozenset[NodeId] | None:
        """Return the ISR to request from the controller, or None if no change is due or a change is
        pending.

        Lagging replicas are removed only if `may_shrink` is True. The caller then guarantees that
        this process was not paused.
        """
        if not self.is_leader or self.pending_change is not None:
            return None
        wanted = self.isr.union(replica for replica in self.followers if self.may_join(replica))
        if may_shrink and self.log is not None:
            for replica in self.isr.intersection(self.followers):
                if self.followers[replica].is_late(self.log.end_offset, now_ms - self.lag_ms_max):
                    wanted -= {replica}
        return None if wanted == self.isr and not self.is_recovering else wanted

    def begin_isr_change(self, isr: frozenset[NodeId], broker_epoch: int) -> IsrChange:
        """Record that `isr` is being requested from the controller. Returns the change to send.

        `broker_epoch` is the epoch of this broker. Until the outcome is known, the maximal ISR
        contains both the old and the new ISR.
        """
        assert self.is_leader
        assert self.pending_change is None
        assert self.local_id in isr
        members = [
            (replica, self.followers[replica].broker_epoch)
            for replica in sorted(isr)
            if replica != self.local_id
        ]
        change = IsrChange(
            topic_id=self.topic_id,
            index=self.index,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            members=((self.local_id, broker_epoch), *members),
        )
        self.pending_change = change
        self._note_maximal_isr()
        return change

    def complete_isr_change(
        self,
        change: IsrChange,
        isr: Iterable[int],
        *,
        leader_epoch: int,
        partition_epoch: int,
        now_ms: int,
    ) -> None:
        """Apply the controller's response to an ISR change.

        The response takes effect before the metadata arrives (KIP-497). A removed replica remains
        in the maximal ISR until the metadata arrives. The controller applies the current
        min.insync.replicas, and keeps removed replicas eligible below it; this broker's value may
        be older and lower. A response has no effect if it is for another leader epoch, or if newer
        metadata has arrived before it.
        """
        if self.pending_change is not change or leader_epoch != self.leader_epoch:
            return
        if partition_epoch < self.partition_epoch:
            return
        self.pending_change = None
        members = frozenset(NodeId(member) for member in isr)
        self._leaving = (self._leaving | self.isr) - members
        self.isr = members
        self.partition_epoch = partition_epoch
        self.is_recovering = False
        self._note_maximal_isr()
        self.advance_high_watermark(now_ms)

    def abandon_isr_change(self, change: IsrChange, now_ms: int) -> None:
        """Drop a pending ISR change that the controller has not made and will never make.

        The caller must be certain that the controller will not make the change. Otherwise the
        controller's ISR could contain replicas for which the high watermark does not wait.
        """
        if self.pending_change is not change:
            return
        self.pending_change = None
        self._note_maximal_isr()
        self.advance_high_watermark(now_ms)

    def extend_catch_up_time(self, elapsed_ms: int, now_ms: int) -> None:
        """Add the duration of a pause of this process to each follower's catch-up time, so that the
        pause causes no lag."""
        for follower in self.followers.values():
            follower.caught_up_ms = min(now_ms, follower.caught_up_ms + elapsed_ms)


def check_epoch(current_leader_epoch: int, leader_epoch: int) -> None:
    """Raise RefusedError if a client's leader epoch differs from the partition's. A request without
    an epoch has the value -1 (KIP-320)."""
    if current_leader_epoch in (NO_EPOCH, leader_epoch):
        return
    if current_leader_epoch < leader_epoch:
        raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH)
    raise RefusedError(ErrorCode.UNKNOWN_LEADER_EPOCH)
