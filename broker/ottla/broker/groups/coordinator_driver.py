"""Coordinates the groups whose partition of `__consumer_offsets` is led here.

A publisher: when this broker begins to lead such a partition it replays its log into a
`GroupShard`, and members are told COORDINATOR_LOAD_IN_PROGRESS until that is done; when it leads it
no longer, who waits is told NOT_COORDINATOR.  What a turn of the loop decides is appended as one
write, all requests of that turn together; an answer that depends on it leaves when the high
watermark has passed it.  A shard whose append failed has decided more than its log holds: it is
thrown away and loaded again.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from uuid import UUID

import trio

from ottla.broker.groups.commit_wait import CommitWait, told_as
from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.groups.group_batches import RECORD_OVERHEAD_BYTES, batches_of
from ottla.broker.groups.group_records import TEXT_LENGTH_MAX, GroupRecord
from ottla.broker.groups.group_settings import group_settings
from ottla.broker.groups.led_shard import LedShard, figures_of
from ottla.broker.groups.log_replay import GroupReplay
from ottla.broker.groups.offset_store import OwnBatch
from ottla.broker.groups.placement import partition_of
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.topic_view import TopicView
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.broker.network.alarm_driver import Alarm
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.background_driver import keep_running
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, NodeId, Offset, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.seams import Clock, Rng
from ottla.model.settings.groups import GroupConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.verification import VerificationGuard
from ottla.wire.batch import NO_SEQUENCE

logger = logging.getLogger("ottla.broker.groups")

PAUSE_MS = 1_000
"""An alarm later than this says that the process stood still: no member was silent meanwhile."""

RELOAD_MS_FIRST = 100
RELOAD_MS_MAX = 10_000
"""How long a shard waits that is loaded again because its log did not take what it wrote.  Shorter
loads it in vain more often, longer leaves its groups without a coordinator after there is room."""

Action = Callable[[GroupShard, Instant], None]


class GroupCoordinator:
    """The shards led here; owns them and their timers."""

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
    ) -> None:
        self._errors = UnexpectedErrors() if errors is None else errors
        self._config = config
        self._local_id = local_id
        self._table = table
        self._purgatory = purgatory
        self._clock = clock
        self._rng = rng
        self.image: MetadataImage = EMPTY
        """The metadata that it has followed: what it leads by that is being served."""
        self._skipped_count = 0
        self._topics = TopicView(self._used_regexes)
        self._is_working = False
        self._led: dict[int, LedShard] = {}
        self._due: list[LedShard] = []
        self._is_due = trio.Event()
        self._to_load: list[LedShard] = []
        self._reload_pauses_ms: dict[int, int] = {}
        """How long the shards waited last whose logs have not taken a write since."""
        self._armed_ms: int | None = None
        self._alarm = Alarm(clock, self._next_deadline_ms, self._on_time)

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "group coordinator"

    async def run(self) -> None:
        """Load, append and keep time until cancelled."""
        async with trio.open_nursery() as nursery:
            for name, work in (
                ("alarm of groups", self._alarm.run),
                ("expiry of committed offsets", self._expire_regularly),
                ("groups", partial(self._serve, nursery)),
            ):
                nursery.start_soon(keep_running, name, work, self._errors)

    async def _serve(self, nursery: trio.Nursery) -> None:
        while True:
            await self._is_due.wait()
            self._is_due = trio.Event()
            loading, self._to_load = self._to_load, []
            for led in loading:
                nursery.start_soon(self._load, led)
            due, self._due = self._due, []
            for led in due:
                self._flush(led)
            if not self._is_working and self._has_work():
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
        self.image = image
        changed_topics = self._topics.follow(delta, image)
        partitions = self._table.by_name.get(OFFSETS_TOPIC, {})
        for index, led in list(self._led.items()):
            if partitions.get(index) is not led.partition or not self._leads(led):
                self._resign(index)
        for index, partition in partitions.items():
            if partition.is_leader and index not in self._led:
                self._begin(index, partition)
        if changed_topics:
            self._on_topics(changed_topics)
        if delta.deleted_topics:
            for led in list(self._led.values()):
                if led.is_active:
                    with self._edge_of(led):
                        led.shard.drop_offsets_without_topic(self._has_topic, self._now())
                        self._perform(led)

    def on_led(self, partition: Partition) -> None:
        """Lead the groups of a partition whose log has come after the metadata."""
        if self.image is not self._table.image:
            return  # it is not followed yet: that is done when it is published to us
        index = partition.index
        if self._table.by_name.get(OFFSETS_TOPIC, {}).get(index) is not partition:
            return
        led = self._led.get(index)
        if led is not None and not (led.partition is partition and self._leads(led)):
            self._resign(index)
        if index not in self._led:
            self._begin(index, partition)

    def _leads(self, led: LedShard) -> bool:
        return led.partition.is_leader and led.partition.leader_epoch == led.epoch

    def _has_topic(self, name: str, topic_id: UUID) -> bool:
        topic = self.image.topic(name)
        return topic is not None and topic_id in (topic.id, ZERO_UUID)

    def _new_shard(self, partition: Partition) -> LedShard:
        shard = GroupShard(
            self._config,
            topics=self._topics,
            settings=lambda group_id: group_settings(self.image, self._config, group_id),
            new_id=lambda: str(self._rng.uuid()),
            record_bytes_max=lambda: partition.config.max_message_bytes - RECORD_OVERHEAD_BYTES,
        )
        return LedShard(partition, shard)

    def _begin(self, index: int, partition: Partition) -> None:
        led = self._led[index] = self._new_shard(partition)
        log = partition.log
        if log is not None and log.log_start_offset == log.end_offset:
            self._activate(led)
        else:
            self._to_load.append(led)
            self._is_due.set()

    def _begin_after_pause(self, index: int, partition: Partition) -> None:
        """Load a shard again whose disk did not take its writes, or that an error ended.

        It may write as much at once, or meet the same error: a full disk would have it loaded
        thousands of times before there is room.
        """
        pause_ms = min(self._reload_pauses_ms.get(index, RELOAD_MS_FIRST // 2) * 2, RELOAD_MS_MAX)
        self._reload_pauses_ms[index] = pause_ms
        led = self._led[index] = self._new_shard(partition)
        led.load_at_ms = self._clock.monotonic_ms() + pause_ms
        self._to_load.append(led)
        self._is_due.set()

    def _resign(self, index: int) -> list[Asker]:
        """Serve a partition no longer; return those who were told that."""
        led = self._led.pop(index)
        led.is_active = False
        answers, led.answers, led.writes = led.answers, [], []
        waiting = [(asker, ErrorCode.NOT_COORDINATOR) for asker, _ in answers]
        waiting += led.shard.resign()
        for asker, code in waiting:
            self._answer(asker, code)
        return [asker for asker, _ in waiting]

    @contextmanager
    def _edge_of(self, led: LedShard) -> Iterator[None]:
        """End what an unexpected error was decided in: the shard, which is loaded again."""
        try:
            yield
        except Exception as error:
            self._errors.note("groups", led.partition, error)
            self._load_again(led)

    def _load_again(self, led: LedShard) -> list[Asker]:
        """Forget what a shard decided and did not write; return those who were told that."""
        if not self._is_current(led):
            return []
        told = self._resign(led.partition.index)
        if led.partition.is_leader:
            self._begin_after_pause(led.partition.index, led.partition)
        return told

    def _answer(self, asker: Asker, answer: Any) -> None:
        """Answer one; that this fails is nothing to the groups."""
        try:
            asker(answer)
        except Exception as error:
            self._errors.note("answer", asker, error)

    # ---- loading

    async def _load(self, led: LedShard) -> None:
        """Replay the log up to its end; nobody but this shard writes to it."""
        await trio.sleep(max(0, led.load_at_ms - self._clock.monotonic_ms()) / 1000)
        log = led.partition.log
        if log is None or not self._is_current(led):
            return
        started_ms = self._clock.monotonic_ms()
        replay = GroupReplay(log, led.shard, self._errors)
        try:
            while not replay.is_done:
                await replay.replay_part()
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
        except (RefusedError, OSError) as error:
            logger.error("the groups of %r cannot be loaded: %s", led.partition, error)
            led.failure = str(error)
            return
        except Exception as error:
            self._errors.note("groups", led.partition, error)
            led.failure = repr(error)
            return
        logger.info(
            "loaded %d groups and %d offsets of %r in %d ms",
            len(led.shard.groups),
            len(led.shard.offsets),
            led.partition,
            self._clock.monotonic_ms() - started_ms,
        )
        if replay.skipped_count:
            self._skipped_count += replay.skipped_count
            logger.error(
                "%d records or batches of %r could not be read and were skipped",
                replay.skipped_count,
                led.partition,
            )
        try:
            for _ in led.shard.resume_in_steps(self._now, self._note_unfit):
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
        except Exception as error:
            # Loading it again would bring the same, at once and without end.
            self._errors.note("groups", led.partition, error)
            led.failure = str(error)
            return
        self._activate(led)

    def _note_unfit(self, group_id: str, error: Exception) -> None:
        self._errors.note("group", group_id, error)

    def _is_current(self, led: LedShard) -> bool:
        return self._led.get(led.partition.index) is led

    def _activate(self, led: LedShard) -> None:
        led.is_active = True
        with self._edge_of(led):
            led.shard.drop_offsets_without_topic(self._has_topic, self._now())
            self._perform(led)

    # ---- requests

    def perform(
        self, group_id: str, asker: Asker, action: Action, *, is_write: bool = False
    ) -> None:
        """Do something to a group; whoever asks is told if its coordinator is not here.

        `is_write` refuses at once what could not be committed now.
        """
        try:
            led = self._find(group_id)
            if is_write and len(led.partition.isr) < led.partition.min_isr_count:
                raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except RefusedError as refusal:
            asker(refusal.code)
            return
        try:
            action(led.shard, self._now())
        except Exception as error:
            self._errors.note("group", group_id, error)
            if not any(told is asker for told in self._load_again(led)):
                self._answer(asker, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._perform(led)

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
        find: Callable[[], LedShard],
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

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the shard of a group, to be read only; refuse if it is not here."""
        return self._find(group_id).shard

    @property
    def is_loading(self) -> bool:
        """Whether some groups are not known yet."""
        return any(not (led.is_active or led.failure) for led in self._led.values())

    def problems(self) -> Iterator[str]:
        """Yield which groups are not served and why, for DescribeNode."""
        for index, led in sorted(self._led.items()):
            if led.failure is not None:
                yield f"the groups of {OFFSETS_TOPIC}-{index} cannot be loaded: {led.failure}"

    def metrics(self) -> dict[str, float]:
        """Return how much it coordinates."""
        return figures_of(self._led.values(), self._skipped_count)

    def shards(self) -> Iterator[GroupShard]:
        """Yield what is served, to be read only."""
        for _, led in sorted(self._led.items()):
            if led.is_active:
                yield led.shard

    def _find(self, group_id: str) -> LedShard:
        if len(group_id) > TEXT_LENGTH_MAX:
            raise RefusedError(ErrorCode.INVALID_GROUP_ID)
        topic = self._table.image.topic(OFFSETS_TOPIC)
        if topic is None:
            raise RefusedError(ErrorCode.NOT_COORDINATOR)
        return self._led_at(partition_of(group_id, len(topic.partitions)))

    def _led_at(self, index: int) -> LedShard:
        """Return the shard of a partition.  Raises RefusedError if it is not served here."""
        topic = self._table.image.topic(OFFSETS_TOPIC)
        if topic is None or index not in topic.partitions:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        led = self._led.get(index)
        if led is None or not self._leads(led):
            # The metadata that makes us leader may be here, and what it asks of us not done yet.
            is_coming = topic.partitions[index].leader == self._local_id
            raise RefusedError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_coming else ErrorCode.NOT_COORDINATOR
            )
        if led.failure is not None:
            raise RefusedError(ErrorCode.NOT_COORDINATOR)
        if not led.is_active:
            raise RefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return led

    def _now(self) -> Instant:
        return Instant(self._clock.monotonic_ms(), self._clock.wall_ms())

    # ---- effects

    def _perform(self, led: LedShard) -> None:
        """Give the answers that may leave now; have the rest appended at the end of the turn."""
        effects = led.shard.take_effects()
        for asker, answer in effects.answers:
            self._answer(asker, answer)
        led.writes += effects.writes
        led.answers += effects.committed_answers
        if not led.is_due and (led.writes or led.answers):
            led.is_due = True
            self._due.append(led)
            self._is_due.set()
        if self._topics.has_work or led.shard.has_work:
            self._is_due.set()
        deadline_ms = led.shard.next_deadline_ms
        if deadline_ms is not None and (self._armed_ms is None or deadline_ms < self._armed_ms):
            self._alarm.rearm()

    def _flush(self, led: LedShard) -> None:
        """Append what the turn decided; its answers wait until that is committed."""
        if not self._is_current(led):
            return
        led.is_due = False
        writes, led.writes = led.writes, []
        answers, led.answers = led.answers, []
        partition = led.partition
        try:
            log = partition.leader_log(led.epoch)
            end_offset = log.end_offset
            if writes:
                end_offset = self._append(partition, writes)
        except RefusedError as error:
            logger.warning("the groups of %r are given up or loaded again: %s", partition, error)
            self._resign(partition.index)
            for asker, _ in answers:
                self._answer(asker, told_as(error.code))
            if partition.is_leader and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._begin_after_pause(partition.index, partition)
            elif partition.is_leader:
                self._begin(partition.index, partition)
            return
        except Exception as error:
            self._errors.note("groups", partition, error)
            self._load_again(led)
            for asker, _ in answers:
                self._answer(asker, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if writes:
            self._reload_pauses_ms.pop(partition.index, None)
        self._answer_when_committed(partition, end_offset, answers)

    def _append(self, partition: Partition, writes: Sequence[list[GroupRecord]]) -> Offset:
        now = self._now()
        return partition.append_of_coordinator(
            batches_of(writes, now.wall_ms, partition.config.max_message_bytes),
            now_ms=now.wall_ms,
            mono_ms=now.mono_ms,
        )

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

    async def _expire_regularly(self) -> None:
        while True:
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for led in list(self._led.values()):
                if led.is_active:
                    with self._edge_of(led):
                        led.shard.expire_offsets(self._now())
                        self._perform(led)
                    await trio.lowlevel.checkpoint()
