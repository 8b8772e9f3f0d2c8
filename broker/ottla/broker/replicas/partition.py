"""One partition as this broker sees it: who leads it, who is in sync, and what is committed.

Pure: no clock, no await; the log below it appends synchronously.  The metadata image decides who
leads (`apply`); the followers' fetches decide what is committed (`on_follower_fetch`).  While a
change of the in-sync set is under way, the *maximal* set (the old and the new members) holds the
high watermark back, so whichever way the controller decides, nothing committed is lost.  Whoever
left by the controller's answer counts until metadata says so too: it may be an eligible leader
under a min.insync.replicas that we have not heard of yet.

Invariants: WatermarkNeverRecedes, WatermarkHeldByEveryInSyncReplica, NothingCommittedBelowMinIsr
(with fewer in sync than `min.insync.replicas` the high watermark stands still, KIP-966),
MaximalIsrCoversController (whoever the controller may elect in this epoch is waited for).

A partition owns the consequences of its changes: through its `PartitionPort` it wakes the requests
that wait for them, has its log flushed and its in-sync set reviewed.  No caller does so for it.
"""

from collections.abc import Callable, Collection, Iterable
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
from ottla.model.limits import INT64_MAX
from ottla.model.settings.topic import TOPIC_DEFAULTS, TopicConfig
from ottla.storage.append_info import AppendInfo, AppendOrigin
from ottla.storage.log import Log
from ottla.storage.validate import Accepted
from ottla.storage.verification import VerificationGuard

ACKS_ALL: Final = -1


class Partition:
    """The leader's or follower's view of one replica on this broker.

    A partition whose log is still being opened or has been removed leads nothing.  Requests that
    wait for a commit watch `high_watermark_key`, those that wait for records `end_offset_key`;
    both are woken where the partition leads, follows or fails from now.
    """

    __slots__ = (
        "_leaving", "_other_maximal_isr", "_port", "config", "damage", "end_offset_key",
        "followers", "high_watermark_key", "index", "inspects_records", "is_eligible",
        "is_flush_awaited", "is_internal", "is_leader", "is_reassigning", "is_recovering",
        "is_removed", "isr", "key", "lag_ms_max", "leader_epoch",
        "leader_epoch_start_offset", "leader_id", "local_id", "log", "min_isr_count",
        "partition_epoch", "pending_change", "replicas", "storage_failure", "topic",
        "topic_id", "traffic", "unclean_leader_epoch",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        *,
        local_id: NodeId,
        is_eligible: Callable[[NodeId, int], bool],
        port: PartitionPort,
        lag_ms_max: int = 30_000,
        traffic: TopicTraffic | None = None,
    ) -> None:
        """`is_eligible(replica, broker_epoch)`: may it be in sync, neither fenced nor leaving.

        `lag_ms_max` (`replica.lag.time.max.ms`): how long a follower may lag and stay in sync.
        `traffic` is where the topic's bytes are counted.
        """
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.is_internal = topic in INTERNAL_TOPICS
        """Whether brokers keep their own state in it: clients write no records there."""
        self.key = TopicIdPartition(topic_id, index)
        self.local_id = local_id
        self.is_eligible = is_eligible
        self._port = port
        self.lag_ms_max = lag_ms_max
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.log: Log | None = None
        self.storage_failure: str | None = None
        """Why there is no log and will be none: its bytes lie, or its disk failed."""
        self.damage: str | None = None
        """What a fetch found wrong with the stored records last; they cannot be served."""
        self.config = TOPIC_DEFAULTS
        self.inspects_records = False
        """Whether a produced batch's records are looked at, or packed by another codec."""
        self.is_leader = False
        self.is_removed = False
        self.leader_id = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.leader_epoch_start_offset = Offset(0)
        self.partition_epoch = -1
        self.replicas: tuple[NodeId, ...] = ()
        self.is_reassigning = False
        self.isr: frozenset[NodeId] = frozenset()
        self.pending_change: IsrChange | None = None
        """What the controller has been asked for, until it is known what became of it."""
        self.is_recovering = False
        """Elected without all that was committed, and the controller not told yet to go on."""
        self.unclean_leader_epoch = FIRST_EPOCH
        self.min_isr_count = 1
        self.is_flush_awaited = False
        self.followers: dict[NodeId, FollowerProgress] = {}
        self._leaving: frozenset[NodeId] = frozenset()
        """Who is out of sync by the controller's answers alone, which run ahead of metadata."""
        self._other_maximal_isr: tuple[FollowerProgress, ...] = ()
        self.high_watermark_key = WakeKey()
        self.end_offset_key = WakeKey()

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.topic}-{self.index}, {role} in epoch {self.leader_epoch})"

    # ---- what produce, fetch and look-ups ask ----

    def leader_log(self, current_leader_epoch: int = NO_EPOCH) -> Log:
        """Return the log if this broker leads in that epoch; else refuse with Kafka's code.

        `current_leader_epoch` is what the asker believes, -1 when it does not say (KIP-320).
        """
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH)
            raise RefusedError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self.log
        if not self.is_leader or log is None:
            if self.storage_failure is not None and self.leader_id == self.local_id:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.storage_failure)
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def append(
        self,
        records: memoryview,
        *,
        acks: int,
        now_ms: int,
        mono_ms: int,
        accepted: Accepted | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append a client's batch as the leader; the high watermark follows if it can at once.

        `now_ms` is wall time, for the records; `mono_ms` monotonic, for the followers' lag;
        `accepted` is the batch where it was checked before, `guard` what a transactional one was
        verified with.
        """
        if self.is_internal:
            raise RefusedError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {self.topic}"
            )
        log = self.log
        if log is None or not self.is_leader:
            log = self.leader_log()  # which refuses
        if acks == ACKS_ALL and len(self.isr) < self.min_isr_count:
            raise RefusedError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(self.isr)} in sync, min.insync.replicas is {self.min_isr_count}",
            )
        for follower in self.followers.values():
            # A fetch says nothing of partitions without news: until now it has had everything.
            if follower.end_offset >= log.end_offset:
                follower.caught_up_ms = mono_ms
        info = log.append_as_leader(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, first=accepted, guard=guard
        )
        self._on_appended(log, mono_ms)
        return info

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, is_bumping: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard with which a transaction's first batch may be appended here.

        None where it is open here already.  Raises RefusedError if the epoch is old.
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
        """Append batches of a coordinator on this broker, as one write; return their end.

        With too few replicas in sync they are written all the same, and committed when more are.
        `guard` and `transaction_version` are those of transactional batches and of markers.
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
        if self.end_offset_key in self._port.watched:
            self._port.wake(self.end_offset_key)
        self.advance_high_watermark(mono_ms)
        if self.is_flush_awaited and log.is_flush_due:
            self._port.on_flush_due(self)

    def on_flushed(self, log: Log, now_ms: int) -> None:
        """Count what a flush of `log` made durable, and wake the produces that waited for it.

        Also where the flush failed: they are answered by that.
        """
        if self.log is log and self.is_leader:
            self.advance_high_watermark(now_ms)
        self._port.wake(self.high_watermark_key)

    def on_start_raised(self) -> None:
        """Wake the followers' fetches: their answers bring the new start of the log."""
        self._port.wake(self.end_offset_key)

    def acknowledgement(self, end_offset: Offset, acks: int) -> ErrorCode | None:
        """Say how a produce that ended at `end_offset` is answered; None while it must wait."""
        log = self.log
        if log is None or not self.is_leader:
            if self.storage_failure is not None:
                return ErrorCode.KAFKA_STORAGE_ERROR
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == ACKS_ALL:
            if log.high_watermark < end_offset:
                return None if log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
            if len(self.maximal_isr) < self.min_isr_count:
                return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            return ErrorCode.NONE
        if self.is_flush_awaited and self.durable_end < end_offset:
            return None if log.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    @property
    def high_watermark(self) -> Offset:
        """The end of what is committed; 0 while there is no log."""
        return Offset(0) if self.log is None else self.log.high_watermark

    @property
    def durable_end(self) -> Offset:
        """The end of what counts as written: below flush.messages records above what is flushed."""
        log = self.log
        assert log is not None
        if not self.is_flush_awaited:
            return log.end_offset
        return min(log.end_offset, Offset(log.recovery_point + self.config.flush_messages - 1))

    @property
    def is_flush_due(self) -> bool:
        """Whether something counts only once it is flushed."""
        return self.log is not None and self.durable_end < self.log.end_offset

    @property
    def low_watermark(self) -> Offset:
        """The lowest log start among the living replicas: what DeleteRecords deleted everywhere."""
        assert self.log is not None
        starts = [
            follower.log_start_offset
            for replica, follower in self.followers.items()
            if self.is_eligible(replica, UNKNOWN_BROKER_EPOCH)
        ]
        return min([self.log.log_start_offset, *starts])

    # ---- what the metadata image says ----

    def attach(self, log: Log, now_ms: int) -> None:
        """Take the opened log; a leader in waiting leads from now."""
        assert self.log is None
        assert not self.is_removed
        self.log = log
        if self.leader_id == self.local_id:
            self._begin_leading(now_ms)
        self._on_changed()

    def change_log(self, log: Log) -> None:
        """Use another log, which has all that ours has: the replica moved between directories."""
        assert self.log is not None
        self.log = log
        self._wake()
        self._flush_if_awaited()

    def fail(self, reason: str) -> None:
        """Lead and follow nothing until the next start: the disk of the log failed."""
        self.log = None
        self.storage_failure = reason
        self.is_leader = False
        self.pending_change = None
        self.followers.clear()
        self._wake()

    def set_log_aside(self) -> Log:
        """Lead nothing until the log is attached again; return it: another task changes it yet."""
        log, self.log = self.log, None
        assert log is not None
        self.is_leader = False
        self.followers.clear()
        self._wake()
        return log

    def apply(self, state: PartitionState, config: TopicConfig, now_ms: int) -> None:
        """Follow what the controller decided.

        The answer to our own change may have told us of this state, or of a later one, already.
        """
        if state.partition_epoch < self.partition_epoch:
            return
        if state.partition_epoch > self.partition_epoch:
            # A change asked for from an older state is in this one, or will never be made.
            self.pending_change = None
        self._leaving = frozenset()
        is_new_epoch = state.leader_epoch > self.leader_epoch
        assert state.leader_epoch >= self.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.leader_epoch = Epoch(state.leader_epoch)
        self.leader_id = NodeId(state.leader)
        self.replicas = tuple(state.replicas)
        self.isr = frozenset(state.isr)
        self.is_reassigning = bool(state.adding or state.removing)
        self.is_recovering = state.recovery_state is RecoveryState.RECOVERING
        self.unclean_leader_epoch = state.unclean_leader_epoch
        self._apply_config(config)
        if self.leader_id != self.local_id or self.log is None:
            self.is_leader = False
            self.followers.clear()
        elif is_new_epoch or not self.is_leader:
            self._begin_leading(now_ms)
        else:
            self._note_replicas(now_ms)
            self.advance_high_watermark(now_ms)
        self._on_changed()

    def apply_config(self, config: TopicConfig, now_ms: int) -> None:
        """Take changed topic settings."""
        self._apply_config(config)
        if self.is_leader:
            self.advance_high_watermark(now_ms)
        self._flush_if_awaited()

    def on_brokers_changed(self, now_ms: int) -> None:
        """Count replicas again whose brokers are or were fenced: the image has other brokers.

        Such a replica may join those in sync, or no longer holds up a commit or a deletion.
        """
        if self.is_leader and len(self.isr) < len(self.replicas):
            self.advance_high_watermark(now_ms)
            self._port.wake(self.high_watermark_key)
            self._port.on_isr_due(self)

    def remove(self) -> Log | None:
        """Lead and follow no longer: the topic is deleted or the replica moved; return the log."""
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
        """Have what counts only when flushed flushed, though nobody may append here any more."""
        if self.is_flush_due:
            self._port.on_flush_due(self)

    def _apply_config(self, config: TopicConfig) -> None:
        self.config = config
        # Never more than there are replicas: such a topic could not be written at all (KIP-966).
        self.min_isr_count = min(config.min_insync_replicas, max(1, len(self.replicas)))
        self.is_flush_awaited = config.flush_messages < INT64_MAX
        self.inspects_records = (
            config.is_compacted
            or config.record_validation == "full"
            or config.compression_type != "producer"
        )

    def _begin_leading(self, now_ms: int) -> None:
        assert self.log is not None
        self.is_leader = True
        self.leader_epoch_start_offset = self.log.end_offset
        self.log.assign_epoch(self.leader_epoch, self.leader_epoch_start_offset)
        # What a follower of an earlier epoch reported may have been truncated since.
        self.followers.clear()
        self._note_replicas(now_ms)
        self.advance_high_watermark(now_ms)

    def _note_replicas(self, now_ms: int) -> None:
        others = [replica for replica in self.replicas if replica != self.local_id]
        self.followers = {
            replica: self.followers.get(replica) or FollowerProgress(now_ms) for replica in others
        }
        self._note_maximal_isr()

    # ---- what is committed, and who is in sync ----

    @property
    def maximal_isr(self) -> Collection[NodeId]:
        """Every replica that the controller may take for one that has all that is committed."""
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
        """Note where a follower's log begins and ends, as its fetch says.

        `broker_epoch` is one that the metadata has registered.  A fetch that an earlier life of the
        follower sent is refused: it may have lost since what it had then (KIP-903).  One that is
        late may take back what a newer one said: the follower's session, which looks at what has
        news only, is woken to say it again, also where nothing is ever appended.
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
        """Commit what every replica of the maximal ISR has, and wake the requests that wait for it.

        A caught-up replica that is about to join the ISR is waited for too: else the high
        watermark could run ahead of it permanently (KIP-966's strict rule needs it to join).
        """
        log = self.log
        if log is None or len(self.isr) < self.min_isr_count:
            return
        committed = self.durable_end if self.is_flush_awaited else log.end_offset
        for follower in self._other_maximal_isr:
            committed = min(committed, follower.end_offset)
        if self.followers and len(self._other_maximal_isr) < len(self.followers):
            for replica, follower in self.followers.items():
                if (
                    now_ms - follower.caught_up_ms <= self.lag_ms_max
                    and follower.end_offset >= log.high_watermark
                    and self.is_eligible(replica, follower.broker_epoch)
                ):
                    committed = min(committed, follower.end_offset)
        if committed > log.high_watermark:
            log.update_high_watermark(committed)
            if self.high_watermark_key in self._port.watched:
                self._port.wake(self.high_watermark_key)

    def may_join(self, replica: NodeId) -> bool:
        """Return whether a replica that is not in sync should be now.

        It must have all that is committed, and this epoch's start: what an earlier leader
        committed lies below that, also where our own high watermark does not say so yet.  Whoever
        has just left holds that back until metadata says so: it would be back at once.  And who
        ends where our log begins must have heard that: what it holds below may be another log's.
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
        """Return the in-sync set the controller should be asked for, None when it stands.

        One change at a time.  Lag is looked for only where `may_shrink`: whoever asks has made
        sure that the clock did not run while this process stood still.
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
        """Note that the controller is asked for `isr`; return the change to send.

        `broker_epoch` is this broker's own.  Until its outcome is known, both sets count.
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
        """Take in the state in which the controller left us.

        It is in force before the metadata brings it (KIP-497), but for whoever left: the controller
        counts in-sync replicas by the min.insync.replicas of now, and keeps those that leave
        eligible below it, while ours may be older and lower.  An answer that metadata has overtaken
        or that speaks of another leader's epoch changes nothing.
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
        """Forget a change that the controller has not made and never will.

        Only for an answer that is certain of it: else the controller's ISR could be larger than
        the one that holds our high watermark back.
        """
        if self.pending_change is not change:
            return
        self.pending_change = None
        self._note_maximal_isr()
        self.advance_high_watermark(now_ms)

    def forgive_lag(self, elapsed_ms: int, now_ms: int) -> None:
        """Let time in which this process stood still count against no follower."""
        for follower in self.followers.values():
            follower.caught_up_ms = min(now_ms, follower.caught_up_ms + elapsed_ms)
