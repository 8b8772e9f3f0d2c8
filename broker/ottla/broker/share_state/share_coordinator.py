"""Share coordinator: stores the durable state of the share partitions that this broker coordinates.
Pure.

It is a `ShardCoordinator` whose shards contain the states of share partitions. Initialize, read,
write and delete requests are answered when their record is committed.

Invariants: those of `share_state_shard.py`, and OneCoordinatorPerEpoch.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.coordinators.commit_wait import CommitWait
from ottla.broker.coordinators.effects import Instant, Responder
from ottla.broker.coordinators.led_shard import LedShard
from ottla.broker.coordinators.log_replay import LogReplay
from ottla.broker.coordinators.record_batches import RECORD_OVERHEAD_BYTES
from ottla.broker.coordinators.shard_coordinator import PeriodicTask, ShardCoordinator
from ottla.broker.coordinators.share_persister import SharePartitionKey, StateBatch
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.share_state.recent_writes import RecentWrites
from ottla.broker.share_state.share_state_shard import ShareEffects, ShareStateShard, ShareWrite
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset, TopicIdPartition
from ottla.model.internal_topics import SHARE_STATE_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.share_state import ShareStateConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.turn_end import TurnEnd
from ottla.storage.log.log import Log
from ottla.wire.batch import BatchHeader
from ottla.wire.records import Record

GROUP_ID_CHARS_MAX = 8_191
"""Maximum number of characters of a share group's id. At four bytes for each character, an id of
this length fits into the 32,767 bytes of a string in a record."""

LedShareStates: TypeAlias = LedShard[ShareStateShard, ShareWrite]


class Redundancy(NamedTuple):
    """Records at the start of a log of `__share_group_state` that later snapshots supersede. They
    may be deleted."""

    partition: Partition
    end_offset: Offset


class ShareStateReplay(LogReplay):
    """Replay of a partition of `__share_group_state`, which also notes the offset of each
    snapshot."""

    def __init__(self, log: Log, shard: ShareStateShard, errors: UnexpectedErrors) -> None:
        super().__init__(log, shard, errors)
        self._states = shard

    def _replay_record(self, record: Record, header: BatchHeader) -> None:
        self._states.replay_at(Offset(record.offset), record.key, record.value)


class ShareCoordinator(ShardCoordinator[ShareStateShard, ShareWrite]):
    """Share coordinator: the states of share partitions in the partitions of `__share_group_state`
    that this broker leads."""

    topic = SHARE_STATE_TOPIC
    serves = "share states"
    serves_each = "share partition"
    too_large_code = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(
        self,
        config: ShareStateConfig,
        *,
        local_id: NodeId,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        errors: UnexpectedErrors | None = None,
        turn_end: TurnEnd | None = None,
    ) -> None:
        super().__init__(
            local_id=local_id,
            table=table,
            purgatory=purgatory,
            clock=clock,
            errors=errors,
            turn_end=turn_end,
        )
        self.config = config
        self.writes = RecentWrites(clock.monotonic_ms())
        """Rate and latency of the answered requests to write share partition states."""
        self._deleted: deque[frozenset[UUID]] = deque()
        """Ids of deleted topics whose share partition states were not deleted yet. Each metadata
        image that deleted topics adds one set."""
        self.pruned_ends: dict[int, Offset] = {}
        """End offset of the superseded records that were last reported for deletion, by index of
        the partition of `__share_group_state`."""

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "share coordinator"

    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """Yield the share coordinator's periodic work: snapshots of idle share partitions."""
        yield PeriodicTask(
            "snapshots of idle share partitions",
            self.config.idle_snapshot_interval_ms,
            ShareStateShard.snapshot_idle,
        )

    # ---- metadata

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Start to coordinate the partitions of `__share_group_state` that this broker leads now,
        and resign from all others. Also begin to delete the states of deleted topics."""
        await super().publish(delta, image)
        for index in self.pruned_ends.keys() - self._led.keys():
            del self.pruned_ends[index]
        if delta.deleted_topics:
            self._deleted.append(frozenset(topic.id for topic in delta.deleted_topics))
            self.work_soon()

    @property
    def has_work(self) -> bool:
        """True if share partition states of deleted topics must still be deleted."""
        return bool(self._deleted)

    def work(self) -> Iterator[None]:
        """Delete the share partition states of deleted topics, one step per iteration of the
        returned iterator."""
        while self._deleted:
            topics = self._deleted.popleft()
            for led in list(self._led.values()):
                # A shard that is being loaded deletes them once it is loaded.
                if led.is_active:
                    with self._reload_on_error(led):
                        yield from self._work_through(led, led.shard.delete_states_of(topics))

    def _has_partition(self, topic_id: UUID, partition: int) -> bool:
        return self._table.image.partition(TopicIdPartition(topic_id, partition)) is not None

    # ---- shards

    def _new_shard(self, partition: Partition) -> ShareStateShard:
        return ShareStateShard(
            updates_per_snapshot=self.config.updates_per_snapshot,
            idle_snapshot_ms=self.config.idle_snapshot_interval_ms,
            has_partition=self._has_partition,
            record_bytes_max=lambda: partition.config.max_message_bytes - RECORD_OVERHEAD_BYTES,
        )

    def replay_of(self, log: Log, shard: ShareStateShard) -> ShareStateReplay:
        """Return a replay of a partition's log into a shard of the share coordinator."""
        return ShareStateReplay(log, shard, self.errors)

    def _content_of(self, shard: ShareStateShard) -> str:
        return f"{len(shard.states)} share partitions"

    def resume(self, led: LedShareStates) -> Iterator[None]:
        """Delete, in steps, the share partition states of topics that were deleted before this
        broker loaded the shard."""
        return led.shard.delete_states_without_topic()

    def _take_waiting(self, led: LedShareStates) -> Iterator[Responder]:
        for responder, _ in led.answers:
            yield responder

    # ---- requests

    def ask(
        self,
        key: SharePartitionKey,
        responder: Responder,
        action: Callable[[ShareStateShard, Instant], None],
        *,
        is_write: bool = True,
    ) -> None:
        """Call `action` with the coordinator shard that stores the state of a share partition.
        `action` must answer the request through `responder`.

        With `is_write`, the request is refused at once if too few replicas are in sync. For reads,
        `is_write` is False. The first read by a leader stores the leader's epoch, and waits for the
        replicas; later reads by this leader write nothing.
        """
        if len(key.group_id) > GROUP_ID_CHARS_MAX:
            responder(RefusedError(ErrorCode.INVALID_GROUP_ID))
            return
        self.perform(key.text, responder, action, is_write=is_write)

    def write(
        self,
        key: SharePartitionKey,
        responder: Responder,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Merge the state batches from a share partition's leader into the stored state. Measures
        the time until the write is answered."""
        begun_ms = self.clock.monotonic_ms()

        def respond(answer: Any) -> None:
            self.writes.note(begun_ms, self.clock.monotonic_ms())
            responder(answer)

        self.ask(
            key,
            respond,
            lambda shard, now: shard.write(
                key,
                respond,
                now,
                state_epoch=state_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=batches,
            ),
        )

    def metrics(self) -> dict[str, float]:
        """Return the coordinator's metrics by name. They are the numbers of share partitions, state
        writes, skipped records and loading shards, and the times of writes and shard loads in
        milliseconds."""
        now_ms = self.clock.monotonic_ms()
        shards = list(self.shards())
        loads_ms = [led.load_ms for led in self._led.values() if led.load_ms is not None]
        return {
            "share.states": sum(len(shard.states) for shard in shards),
            "share.states.writes": self.writes.total,
            "share.states.writes.per.second": self.writes.rate(now_ms),
            "share.states.write.ms.avg": self.writes.average_ms(now_ms),
            "share.states.write.ms.max": self.writes.max_ms(now_ms),
            "share.states.records.skipped": self._skipped_count,
            "share.states.partitions.loading": sum(led.is_loading for led in self._led.values()),
            "share.states.load.ms.max": max(loads_ms, default=0),
            "share.states.load.ms.avg": sum(loads_ms) / max(1, len(loads_ms)),
        }

    # ---- redundant records

    def redundant_records(self) -> Iterator[Redundancy]:
        """Yield the superseded records in each log of `__share_group_state` that this broker leads.
        The caller may delete these records."""
        for index, led in sorted(self._led.items()):
            log = led.partition.log
            if not led.is_active or log is None or not self._leads(led):
                continue
            end_offset = led.shard.redundant.end_offset(log.high_watermark)
            if log.log_start_offset < end_offset <= log.high_watermark:
                yield Redundancy(led.partition, end_offset)
                self.pruned_ends[index] = end_offset

    # ---- effects

    def _take_effects(self, shard: ShareStateShard) -> ShareEffects:
        return shard.take_effects()

    def _flush(self, led: LedShareStates) -> None:
        writes, led.writes = led.writes, []
        answers, led.answers = led.answers, []
        try:
            end_offset = self._append(led, [[write.record] for write in writes])
        except RefusedError as refusal:
            for responder, _ in answers:
                self.answer(responder, refusal.code)
            return
        led.shard.redundant.settle(led.partition.high_watermark)
        for offset, write in enumerate(writes, end_offset - len(writes)):
            led.shard.on_written(write, Offset(offset))
        self._answer_when_committed(led, end_offset, answers)

    def _answer_when_committed(
        self, led: LedShareStates, end_offset: Offset, answers: list[tuple[Responder, Any]]
    ) -> None:
        if not answers:
            return
        entry = CommitWait(led.partition, end_offset, answers)
        if not entry.try_complete():
            deadline_ms = self.clock.monotonic_ms() + self.config.write_timeout_ms
            self.purgatory.watch((led.partition.high_watermark_key,), entry, deadline_ms)
