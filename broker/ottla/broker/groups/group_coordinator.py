"""Coordinator of the groups whose partitions of `__consumer_offsets` this broker leads. Pure.

It is a `ShardCoordinator` whose shards contain groups. A response that depends on the writes of an
event-loop iteration is sent when these writes are below the high watermark.
"""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from ottla.broker.coordinators.commit_wait import CommitWait
from ottla.broker.coordinators.effects import EventWrite, GroupEffects, Instant, Responder
from ottla.broker.coordinators.record_batches import RECORD_OVERHEAD_BYTES
from ottla.broker.coordinators.shard_coordinator import PeriodicTask, ShardCoordinator
from ottla.broker.coordinators.share_persister import SharePersister
from ottla.broker.groups.consumer.topic_view import TopicView
from ottla.broker.groups.group_figures import LedGroups, Rebalances, figures_of
from ottla.broker.groups.group_records import TEXT_LENGTH_MAX
from ottla.broker.groups.group_replay import GroupReplay
from ottla.broker.groups.group_settings import SettingsOfGroups
from ottla.broker.groups.offsets.committed_offsets import LedOffsets
from ottla.broker.groups.offsets.offset_store import SeparateBatch
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.share.partition_states import SharePorts, StateOutcomes
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, NodeId, Offset, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.seams import Clock, Rng
from ottla.model.settings.groups import GroupConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.turn_end import TurnEnd
from ottla.storage.log.log import Log
from ottla.storage.producers.verification import VerificationGuard
from ottla.wire.batch import NO_SEQUENCE

PAUSE_MS = 1_000
"""Minimum delay in milliseconds of a call of `on_time` after which the coordinator assumes that the
process was paused. Such a pause must not cause session timeouts of members."""


class GroupCoordinator(ShardCoordinator[GroupShard, EventWrite]):
    """Group coordinator of this broker: the groups in the partitions of `__consumer_offsets` that
    it leads, and their deadlines."""

    topic = OFFSETS_TOPIC
    serves = "groups"
    serves_each = "group"
    too_large_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    key_length_max = TEXT_LENGTH_MAX
    key_too_long_code = ErrorCode.INVALID_GROUP_ID

    def __init__(
        self,
        config: GroupConfig,
        *,
        local_id: NodeId,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        rng: Rng,
        errors: UnexpectedErrors | None = None,
        turn_end: TurnEnd | None = None,
        share_persister: SharePersister | None = None,
    ) -> None:
        """Create a group coordinator without groups. If `share_persister` is None, no partition of
        a share group is ever initialised."""
        super().__init__(
            local_id=local_id,
            table=table,
            purgatory=purgatory,
            clock=clock,
            errors=errors,
            turn_end=turn_end,
        )
        self._config = config
        self._rng = rng
        self._settings = SettingsOfGroups(config, local_id)
        self._share_ports: SharePorts | None = None
        if share_persister is not None:
            self._share_ports = SharePorts(share_persister, self._perform_on_shares)
        self._topics = TopicView(self._used_regexes)
        self.rebalances = Rebalances(clock.monotonic_ms())

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "group coordinator"

    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """Yield the group coordinator's periodic work, which deletes expired committed offsets."""
        interval_ms = self._config.offsets_retention_check_interval_ms
        yield PeriodicTask("expiry of committed offsets", interval_ms, GroupShard.expire_offsets)

    def led_offsets(self) -> Iterator[LedOffsets]:
        """Yield the committed offsets of the groups that this broker currently coordinates."""
        for index, led in list(self._led.items()):
            if led.is_active and self.is_current(led):
                yield LedOffsets(index, led.epoch, led.shard.offsets)

    @property
    def has_work(self) -> bool:
        """True if a shard (the groups of one partition), or the view of topics, has unfinished work
        to run in steps."""
        return self._topics.has_work or any(led.shard.has_work for led in self._led.values())

    def work(self) -> Iterator[None]:
        """Run the group coordinator's work that takes several event-loop iterations, for its shards
        and its view of topics. One step runs per iteration of the returned iterator."""
        is_other = False
        while self.has_work:
            if self._topics.has_work:
                is_other = self._topics.resolve_slice() or is_other
                if is_other and not self._topics.has_work:
                    is_other = False
                    self._on_topics(frozenset())
            yield
            for led in list(self._led.values()):
                if led.is_active and self.is_current(led) and led.shard.has_work:
                    with self._reload_on_error(led):
                        led.shard.work(self._now())
                        self._perform(led)
                    yield

    def _used_regexes(self) -> Iterator[str]:
        """Yield the regular expressions to which members of groups on this broker subscribe. The
        view of topics uses them."""
        for led in self._led.values():
            yield from led.shard.used_regexes()

    def _on_topics(self, changed: frozenset[str]) -> None:
        for led in list(self._led.values()):
            if led.is_active:
                with self._reload_on_error(led):
                    led.shard.on_topics(changed, self._now())
                    self._perform(led)

    # ---- metadata

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Start to coordinate the partitions of `__consumer_offsets` that this broker leads now,
        and resign from all others. Also apply changes of topics to the groups."""
        changed_topics = self._topics.follow(delta, image)
        await super().publish(delta, image)
        if changed_topics:
            self._on_topics(changed_topics)
        if delta.deleted_topics:
            for led in list(self._led.values()):
                if led.is_active:
                    with self._reload_on_error(led):
                        self._on_active(led)
                        self._perform(led)

    def _has_topic(self, name: str, topic_id: UUID) -> bool:
        topic = self.image.topic(name)
        return topic is not None and topic_id in (topic.id, ZERO_UUID)

    # ---- shards

    def _new_shard(self, partition: Partition) -> GroupShard:
        return GroupShard(
            self._config,
            topics=self._topics,
            settings=lambda group_id: self._settings.of(self.image, group_id),
            new_id=lambda: str(self._rng.uuid()),
            record_bytes_max=lambda: partition.config.max_message_bytes - RECORD_OVERHEAD_BYTES,
            share_ports=self._share_ports,
        )

    def replay_of(self, log: Log, shard: GroupShard) -> GroupReplay:
        """Return a replay of a partition's log into a shard of the group coordinator."""
        return GroupReplay(log, shard, self.errors)

    def _perform_on_shares(
        self, group_id: str, responder: Responder, action: Callable[[StateOutcomes, Instant], None]
    ) -> None:
        """Call `action` with the share groups of the shard that contains a group. `responder` is
        called with an error code if this broker does not serve that shard."""
        self.perform(group_id, responder, lambda shard, now: action(shard.shares, now))

    def _content_of(self, shard: GroupShard) -> str:
        return f"{len(shard.groups)} groups and {len(shard.offsets)} offsets"

    def resume(self, led: LedGroups) -> Iterator[None]:
        """Start to serve, in steps, the groups of a shard whose log was replayed."""
        return led.shard.resume_in_steps(self._now, self._note_unfit)

    def _note_unfit(self, group_id: str, error: Exception) -> None:
        self.errors.note("group", group_id, error)

    def _on_active(self, led: LedGroups) -> None:
        led.shard.drop_offsets_without_topic(self._has_topic, self._now())

    def _take_waiting(self, led: LedGroups) -> Iterator[Responder]:
        self.rebalances.keep(led.shard)
        for responder, _ in (*led.answers, *led.shard.take_effects().committed_answers):
            yield responder
        yield from led.shard.resign()

    # ---- requests

    def begin_transaction(
        self, group_id: str, *, producer_id: int, epoch: int, is_bumping: bool
    ) -> tuple[TopicPartition, VerificationGuard | None]:
        """Begin to append a group's offsets in a transaction. Returns the partition that stores the
        offsets, and the verification guard that the append must present.

        The guard is None if the transaction is already open in the partition. Raises RefusedError
        if this broker does not coordinate the group, or if the producer epoch is old.
        """
        partition = self._find(group_id).partition
        guard = partition.begin_verification(
            producer_id,
            epoch=epoch,
            sequence=NO_SEQUENCE,
            is_bumping=is_bumping,
            now_ms=self.clock.wall_ms(),
        )
        return TopicPartition(OFFSETS_TOPIC, partition.index), guard

    def commit_in_transaction(
        self,
        group_id: str,
        responder: Responder,
        decide: Callable[[GroupShard, Instant], SeparateBatch],
        guard: VerificationGuard | None,
    ) -> None:
        """Append the offsets that a transaction commits for a group. The response is sent when
        their records are committed."""
        self._append_separately(lambda: self._find(group_id), responder, decide, guard=guard)

    def end_transaction(
        self, index: int, end: TransactionEnd, responder: Callable[[ErrorCode], None]
    ) -> None:
        """Append a transaction marker to a partition of `__consumer_offsets`, and apply it to the
        offsets that wait for the transaction's end.

        `responder` is called with NONE when the marker is committed, or with the error code if the
        marker cannot be written.
        """

        def decide(shard: GroupShard, now: Instant) -> SeparateBatch:
            return SeparateBatch(
                end.batch(now.wall_ms),
                ErrorCode.NONE,
                lambda: shard.store.end_transaction(end.producer_id, is_commit=end.is_commit),
            )

        self._append_separately(
            lambda: self._led_at(index), responder, decide, version=end.transaction_version
        )

    def _append_separately(
        self,
        find: Callable[[], LedGroups],
        responder: Responder,
        decide: Callable[[GroupShard, Instant], SeparateBatch],
        *,
        guard: VerificationGuard | None = None,
        version: int = 0,
    ) -> None:
        """Append a batch of records that belongs to a transaction, after all earlier writes of the
        event-loop iteration."""
        try:
            led = find()
            if len(led.partition.isr) < led.partition.min_isr_count:
                raise RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS)
            self._gather(led)
            if led.writes:
                self._flush(led)
                led = find()
            now = self._now()
            own = decide(led.shard, now)
            partition = led.partition
            end_offset = partition.leader_log(led.epoch).end_offset
            if own.data:
                end_offset = partition.append_of_coordinator(
                    own.data,
                    now_ms=now.wall_ms,
                    mono_ms=now.mono_ms,
                    guard=guard,
                    transaction_version=version,
                )
        except RefusedError as refusal:
            self.answer(responder, refusal.code)
            return
        except Exception as error:
            self.errors.note("groups", "offsets of a transaction", error)
            self.answer(responder, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        own.on_written()
        self._perform(led)
        self._answer_when_committed(partition, end_offset, [(responder, own.answer)])

    def metrics(self) -> dict[str, float]:
        """Return the numbers of groups, members and committed offsets on this broker, by metric
        name."""
        return figures_of(self._led.values(), self._skipped_count, self.rebalances)

    # ---- effects

    def _take_effects(self, shard: GroupShard) -> GroupEffects:
        return shard.take_effects()

    def _end_event(self, led: LedGroups) -> None:
        """Perform the effects of a request. Those of all commits but the first of an event-loop
        iteration are performed together, which saves a twentieth of the instructions of each."""
        if led.is_due and led.shard.end_event():
            led.has_effects = True
        else:
            self._perform(led)

    def _flush(self, led: LedGroups) -> None:
        writes, led.writes = led.writes, []
        answers, led.answers = led.answers, []
        try:
            end_offset = self._append(led, writes)
        except RefusedError as refusal:
            for responder, _ in answers:
                self.answer(responder, refusal.code)
            return
        self._answer_when_committed(led.partition, end_offset, answers)

    def _answer_when_committed(
        self, partition: Partition, end_offset: Offset, answers: list[tuple[Responder, Any]]
    ) -> None:
        if not answers:
            return
        entry = CommitWait(partition, end_offset, answers)
        if not entry.try_complete():
            deadline_ms = self.clock.monotonic_ms() + self._config.offsets_commit_timeout_ms
            self.purgatory.watch((partition.high_watermark_key,), entry, deadline_ms)

    # ---- time

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time in milliseconds at which `on_time` must be called, or None if
        no group has a deadline."""
        deadlines = [
            deadline_ms
            for led in self._led.values()
            if led.is_active and (deadline_ms := led.shard.next_deadline_ms()) is not None
        ]
        self._armed_ms = min(deadlines, default=None)
        return self._armed_ms

    def on_time(self, now_ms: int) -> None:
        """Handle the deadlines of groups that have passed in every shard. If this call is late, the
        process was paused. The session timeouts are then restarted first."""
        late_ms = 0 if self._armed_ms is None else now_ms - self._armed_ms
        now = self._now()
        for led in list(self._led.values()):
            if not led.is_active:
                continue
            with self._reload_on_error(led):
                if late_ms > PAUSE_MS:
                    led.shard.restart_sessions(now)
                led.shard.on_time(now)
                self._perform(led)
