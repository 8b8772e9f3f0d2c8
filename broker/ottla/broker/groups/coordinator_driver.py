"""Coordinates the groups whose partition of `__consumer_offsets` is led here.

A `ShardCoordinator` whose shards are groups: members in them have deadlines, of which one alarm
keeps the earliest.  An answer that depends on what a turn of the loop wrote leaves when the high
watermark has passed that.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID

import trio

from ottla.broker.groups.commit_wait import CommitWait
from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.groups.group_batches import RECORD_OVERHEAD_BYTES
from ottla.broker.groups.group_records import TEXT_LENGTH_MAX, GroupRecord
from ottla.broker.groups.group_settings import SettingsOfGroups
from ottla.broker.groups.led_shard import LedGroups, figures_of
from ottla.broker.groups.log_replay import GroupReplay
from ottla.broker.groups.offset_store import OwnBatch
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.shard_coordinator_driver import ShardCoordinator
from ottla.broker.groups.topic_view import TopicView
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.broker.network.alarm_driver import Alarm
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.turn_end import TurnEnd
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.background_driver import BackgroundWork, keep_running
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, NodeId, Offset, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.seams import Clock, Rng
from ottla.model.settings.groups import GroupConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log import Log
from ottla.storage.verification import VerificationGuard
from ottla.wire.batch import NO_SEQUENCE

PAUSE_MS = 1_000
"""An alarm later than this says that the process stood still: no member was silent meanwhile."""


class GroupCoordinator(ShardCoordinator[GroupShard, list[GroupRecord]]):
    """The shards of groups led here, and their timers."""

    topic = OFFSETS_TOPIC
    serves = "groups"
    serves_each = "group"
    too_large_code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE

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
    ) -> None:
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
        self._settings = SettingsOfGroups(config)
        self._topics = TopicView(self._used_regexes)
        self._is_working = self._may_have_work = False
        self._armed_ms: int | None = None
        self._alarm = Alarm(clock, self._next_deadline_ms, self._on_time)

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "group coordinator"

    def _tasks(self) -> Iterator[tuple[str, BackgroundWork]]:
        interval_ms = self._config.offsets_retention_check_interval_ms
        yield "alarm of groups", self._alarm.run
        yield (
            "expiry of committed offsets",
            partial(self._regularly, interval_ms, GroupShard.expire_offsets),
        )

    def _after_turn(self, nursery: trio.Nursery) -> None:
        may_have_work, self._may_have_work = self._may_have_work, False
        if may_have_work and not self._is_working and self._has_work():
            self._is_working = True
            name = "work of groups in steps"
            nursery.start_soon(keep_running, name, self._work_off, self._errors)

    def _has_work(self) -> bool:
        return self._topics.has_work or any(led.shard.has_work for led in self._led.values())

    def _used_regexes(self) -> Iterator[str]:
        """Yield the regular expressions of all groups here, for the view of topics."""
        for led in self._led.values():
            yield from led.shard.used_regexes()

    async def _work_off(self) -> None:
        """Do what takes longer than one turn may, with turns for the other tasks."""
        is_other = False
        while self._has_work():
            if self._topics.has_work:
                is_other = self._topics.resolve_slice() or is_other
                if is_other and not self._topics.has_work:
                    is_other = False
                    self._on_topics(frozenset())
            await trio.lowlevel.checkpoint()
            for led in list(self._led.values()):
                if led.is_active and self._is_current(led) and led.shard.has_work:
                    with self._edge_of(led):
                        led.shard.work(self._now())
                        self._perform(led)
                    await trio.lowlevel.checkpoint()
        self._is_working = False

    def _on_topics(self, changed: frozenset[str]) -> None:
        for led in list(self._led.values()):
            if led.is_active:
                with self._edge_of(led):
                    led.shard.on_topics(changed, self._now())
                    self._perform(led)

    # ---- what the metadata says

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Lead, or resign from, what has changed hands."""
        changed_topics = self._topics.follow(delta, image)
        await super().publish(delta, image)
        if changed_topics:
            self._on_topics(changed_topics)
        if delta.deleted_topics:
            for led in list(self._led.values()):
                if led.is_active:
                    with self._edge_of(led):
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
        )

    def _replay_of(self, log: Log, shard: GroupShard) -> GroupReplay:
        return GroupReplay(log, shard, self._errors)

    def _content_of(self, shard: GroupShard) -> str:
        return f"{len(shard.groups)} groups and {len(shard.offsets)} offsets"

    def _resume(self, led: LedGroups) -> Iterator[None]:
        return led.shard.resume_in_steps(self._now, self._note_unfit)

    def _note_unfit(self, group_id: str, error: Exception) -> None:
        self._errors.note("group", group_id, error)

    def _on_active(self, led: LedGroups) -> None:
        led.shard.drop_offsets_without_topic(self._has_topic, self._now())

    def _waiting_in(self, led: LedGroups) -> Iterator[Asker]:
        for asker, _ in led.answers:
            yield asker
        yield from led.shard.resign()

    # ---- requests

    def begin_transaction(
        self, group_id: str, *, producer_id: int, epoch: int, is_bumping: bool
    ) -> tuple[TopicPartition, VerificationGuard | None]:
        """Return the partition of a group's offsets, and what they are appended with.

        No guard where the transaction is open there already.  Raises RefusedError if the group is
        not here, or the epoch is old.
        """
        partition = self._find(group_id).partition
        guard = partition.begin_verification(
            producer_id,
            epoch=epoch,
            sequence=NO_SEQUENCE,
            is_bumping=is_bumping,
            now_ms=self._clock.wall_ms(),
        )
        return TopicPartition(OFFSETS_TOPIC, partition.index), guard

    def commit_in_transaction(
        self,
        group_id: str,
        asker: Asker,
        decide: Callable[[GroupShard, Instant], OwnBatch],
        guard: VerificationGuard | None,
    ) -> None:
        """Write offsets that wait for the end of their transaction; `asker` hears when it is so."""
        self._append_apart(lambda: self._find(group_id), asker, decide, guard=guard)

    def end_transaction(
        self, index: int, end: TransactionEnd, asker: Callable[[ErrorCode], None]
    ) -> None:
        """Write the end of a transaction into a partition of the offsets, and follow it.

        `asker` is called when it is committed, or with why it cannot be.
        """

        def decide(shard: GroupShard, now: Instant) -> OwnBatch:
            return OwnBatch(
                end.batch(now.wall_ms),
                ErrorCode.NONE,
                lambda: shard.store.end_transaction(end.producer_id, is_commit=end.is_commit),
            )

        self._append_apart(
            lambda: self._led_at(index), asker, decide, version=end.transaction_version
        )

    def _append_apart(
        self,
        find: Callable[[], LedGroups],
        asker: Asker,
        decide: Callable[[GroupShard, Instant], OwnBatch],
        *,
        guard: VerificationGuard | None = None,
        version: int = 0,
    ) -> None:
        """Append what belongs to a transaction, behind all that was decided before it."""
        try:
            led = find()
            if len(led.partition.isr) < led.partition.min_isr_count:
                raise RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS)
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
            self._answer(asker, refusal.code)
            return
        except Exception as error:
            self._errors.note("groups", "offsets of a transaction", error)
            self._answer(asker, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        own.on_written()
        self._perform(led)
        self._answer_when_committed(partition, end_offset, [(asker, own.answer)])

    def metrics(self) -> dict[str, float]:
        """Return how much it coordinates."""
        return figures_of(self._led.values(), self._skipped_count)

    def _find(self, key: str) -> LedGroups:
        if len(key) > TEXT_LENGTH_MAX:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID)
        return super()._find(key)

    # ---- effects

    def _perform(self, led: LedGroups) -> None:
        effects = led.shard.take_effects()
        for asker, answer in effects.answers:
            self._answer(asker, answer)
        led.writes += effects.writes
        led.answers += effects.committed_answers
        self._note_due(led)
        if self._topics.has_work or led.shard.has_work:
            self._may_have_work = True
            self._is_due.set()
        deadline_ms = led.shard.next_deadline_ms
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._alarm.rearm()

    def _flush(self, led: LedGroups) -> None:
        writes, led.writes = led.writes, []
        answers, led.answers = led.answers, []
        try:
            end_offset = self._append(led, writes)
        except RefusedError as refusal:
            for asker, _ in answers:
                self._answer(asker, refusal.code)
            return
        self._answer_when_committed(led.partition, end_offset, answers)

    def _answer_when_committed(
        self, partition: Partition, end_offset: Offset, answers: list[tuple[Asker, Any]]
    ) -> None:
        if not answers:
            return
        entry = CommitWait(partition, end_offset, answers)
        if not entry.try_complete():
            deadline_ms = self._clock.monotonic_ms() + self._config.offsets_commit_timeout_ms
            self._purgatory.watch((partition.high_watermark_key,), entry, deadline_ms)

    # ---- time

    def _next_deadline_ms(self) -> int | None:
        deadlines = [
            deadline_ms
            for led in self._led.values()
            if led.is_active and (deadline_ms := led.shard.next_deadline_ms) is not None
        ]
        self._armed_ms = min(deadlines, default=None)
        return self._armed_ms

    def _on_time(self, now_ms: int) -> None:
        late_ms = 0 if self._armed_ms is None else now_ms - self._armed_ms
        now = self._now()
        for led in list(self._led.values()):
            if not led.is_active:
                continue
            with self._edge_of(led):
                if late_ms > PAUSE_MS:
                    led.shard.restart_sessions(now)
                led.shard.on_time(now)
                self._perform(led)
