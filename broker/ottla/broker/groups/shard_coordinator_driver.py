"""What the coordinators of groups and of transactions do alike with what is led here.

A publisher: when this broker begins to lead a partition of the coordinator's topic it replays its
log into a shard, and clients are told COORDINATOR_LOAD_IN_PROGRESS until that is done; when it
leads it no longer, those who wait are told NOT_COORDINATOR.  What a turn of the loop decides is
appended as one write, at the end of the turn that serves the requests, or by a task where no such
turn is under way.  A shard whose append failed, or in which an unexpected error was raised, has
decided more than its log holds: it is thrown away and loaded again.

Invariant: OneCoordinatorPerEpoch (a shard appends only while this broker leads in the epoch in
which the shard was loaded).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, Generic

import trio

from ottla.broker.groups.commit_wait import told_as
from ottla.broker.groups.effects import Asker, Instant, new_tuple
from ottla.broker.groups.group_batches import batches_of
from ottla.broker.groups.group_records import GroupRecord
from ottla.broker.groups.led_shard import LedShard, ShardT, WriteT
from ottla.broker.groups.log_replay import LogReplay
from ottla.broker.groups.placement import partition_of
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.turn_end import TurnEnd
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.background_driver import BackgroundWork, run_side_by_side
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log import Log

RELOAD_MS_FIRST = 100
RELOAD_MS_MAX = 10_000
"""How long a shard waits that is loaded again because its log did not take what it wrote, or could
not be read.  Shorter loads it in vain more often, longer leaves its clients without a coordinator
after there is room."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardCoordinator(ABC, Generic[ShardT, WriteT]):
    """The shards of one topic that are led here; owns them."""

    topic: ClassVar[str]
    serves: ClassVar[str]
    """The noun for all that is coordinated, in faults and in the log."""
    serves_each: ClassVar[str]
    """The noun for one of it."""
    too_large_code: ClassVar[ErrorCode]
    """What a client is told whose record is too large for the log."""

    def __init__(
        self,
        *,
        local_id: NodeId,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        errors: UnexpectedErrors | None,
        turn_end: TurnEnd | None,
    ) -> None:
        """`turn_end` is that of the loop which serves requests, where there is one."""
        self._local_id = local_id
        self._table = table
        self._purgatory = purgatory
        self._clock = clock
        self._errors = UnexpectedErrors() if errors is None else errors
        self._turn_end = TurnEnd() if turn_end is None else turn_end
        self._logger = logging.getLogger(f"ottla.broker.{self.serves}")
        self.image: MetadataImage = EMPTY
        """The metadata that it has followed: what it leads by that is being served."""
        self._counted_image = EMPTY
        """The metadata that the number of partitions is of."""
        self._partition_count = 0
        self._led: dict[int, LedShard[ShardT, WriteT]] = {}
        self._due: list[LedShard[ShardT, WriteT]] = []
        self._is_due = trio.Event()
        self._to_load: list[LedShard[ShardT, WriteT]] = []
        self._reload_pauses_ms: dict[int, int] = {}
        """How long the shards waited last whose logs have not taken a write since."""
        self._skipped_count = 0

    # ---- what the two do differently

    @abstractmethod
    def _new_shard(self, partition: Partition) -> ShardT:
        """Return a shard to replay the log of a partition into."""

    @abstractmethod
    def _tasks(self) -> Iterator[tuple[str, BackgroundWork]]:
        """Yield what runs beside loading and appending, each with its name."""

    @abstractmethod
    def _resume(self, led: LedShard[ShardT, WriteT]) -> Iterator[None]:
        """Take up, in steps, what the replayed log left unfinished."""

    @abstractmethod
    def _waiting_in(self, led: LedShard[ShardT, WriteT]) -> Iterator[Asker]:
        """Take those who wait in a shard out of it, and yield them."""

    @abstractmethod
    def _perform(self, led: LedShard[ShardT, WriteT]) -> None:
        """Give the answers that may leave now; have the rest appended at the end of the turn."""

    @abstractmethod
    def _flush(self, led: LedShard[ShardT, WriteT]) -> None:
        """Append what the turn decided; its answers wait until that is committed."""

    @abstractmethod
    def _content_of(self, shard: ShardT) -> str:
        """Return what a shard holds, for the log."""

    def _replay_of(self, log: Log, shard: ShardT) -> LogReplay:
        return LogReplay(log, shard, self._errors)

    async def _wait_replayed(self, led: LedShard[ShardT, WriteT], end_offset: Offset) -> bool:
        """Wait for what else a shard needs; return whether it is still the current one."""
        return self._is_current(led)

    def _on_active(self, led: LedShard[ShardT, WriteT]) -> None:
        """Do what is first done in a shard that is served."""

    def _after_turn(self, nursery: trio.Nursery) -> None:
        """Start what takes longer than one turn may."""

    # ---- running

    async def run(self) -> None:
        """Load, append and keep time until cancelled."""
        await run_side_by_side(self._works, self._errors)

    def _works(self, nursery: trio.Nursery) -> Iterator[tuple[str, BackgroundWork]]:
        yield self.serves, partial(self._serve, nursery)
        yield from self._tasks()

    async def _serve(self, nursery: trio.Nursery) -> None:
        while True:
            await self._is_due.wait()
            self._is_due = trio.Event()
            loading, self._to_load = self._to_load, []
            for led in loading:
                nursery.start_soon(self._load, led)
            self._flush_due()
            self._after_turn(nursery)

    def _flush_due(self) -> None:
        due, self._due = self._due, []
        for led in due:
            if self._is_current(led):
                led.is_due = False
                try:
                    self._flush(led)
                except Exception as error:
                    # Of what waits for the log: the others have theirs.
                    self._errors.note(self.serves, led.partition, error)

    async def _regularly(
        self, interval_ms: int, work: Callable[[ShardT, Instant], Iterable[None] | None]
    ) -> None:
        """Do work, which may have steps, in every shard at an interval."""
        while True:
            await trio.sleep(interval_ms / 1000)
            for led in list(self._led.values()):
                if led.is_active:
                    with self._edge_of(led):
                        await self._work_through(led, work(led.shard, self._now()) or ())

    async def _work_through(self, led: LedShard[ShardT, WriteT], steps: Iterable[None]) -> None:
        for _ in steps:
            self._perform(led)
            await trio.lowlevel.checkpoint()
            if not self._is_current(led):
                return
        self._perform(led)

    # ---- what the metadata says

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Lead, or resign from, what has changed hands."""
        self.image = image
        partitions = self._table.by_name.get(self.topic, {})
        for index, led in list(self._led.items()):
            if partitions.get(index) is not led.partition or not self._leads(led):
                self._resign(led)
        for index, partition in partitions.items():
            if partition.is_leader and index not in self._led:
                self._begin(partition)

    def on_led(self, partition: Partition) -> None:
        """Lead a partition whose log was opened after the metadata was published."""
        if self.image is not self._table.image:
            return  # it is not followed yet: that is done when it is published to us
        index = partition.index
        if self._table.by_name.get(self.topic, {}).get(index) is not partition:
            return
        led = self._led.get(index)
        if led is not None and not (led.partition is partition and self._leads(led)):
            self._resign(led)
        if index not in self._led:
            self._begin(partition)

    def _leads(self, led: LedShard[ShardT, WriteT]) -> bool:
        return led.partition.is_leader and led.partition.leader_epoch == led.epoch

    def _is_current(self, led: LedShard[ShardT, WriteT]) -> bool:
        return self._led.get(led.partition.index) is led

    def _begin(self, partition: Partition, *, pause_ms: int = 0) -> None:
        led = self._led[partition.index] = LedShard(partition, self._new_shard(partition))
        log = partition.log
        if not pause_ms and log is not None and log.log_start_offset == log.end_offset:
            self._activate(led)
            return
        led.load_at_ms = self._clock.monotonic_ms() + pause_ms
        self._to_load.append(led)
        self._is_due.set()

    def _begin_after_pause(self, partition: Partition) -> None:
        """Load a shard again whose disk failed its reads or writes, or that an error ended.

        It may write as much at once, or meet the same error: a full disk would have it loaded
        thousands of times before there is room.
        """
        index = partition.index
        pause_ms = min(self._reload_pauses_ms.get(index, RELOAD_MS_FIRST // 2) * 2, RELOAD_MS_MAX)
        self._reload_pauses_ms[index] = pause_ms
        self._begin(partition, pause_ms=pause_ms)

    def _resign(self, led: LedShard[ShardT, WriteT]) -> list[Asker]:
        """Serve a partition no longer; return those who were told that."""
        del self._led[led.partition.index]
        led.is_active = False
        waiting = list(self._waiting_in(led))
        led.answers, led.writes = [], []
        for asker in waiting:
            self._answer(asker, ErrorCode.NOT_COORDINATOR)
        return waiting

    def _load_again(
        self, led: LedShard[ShardT, WriteT], *, is_at_once: bool = False
    ) -> list[Asker]:
        """Forget what a shard decided and did not write; return those who were told that."""
        if not self._is_current(led):
            return []
        told = self._resign(led)
        if led.partition.is_leader and is_at_once:
            self._begin(led.partition)
        elif led.partition.is_leader:
            self._begin_after_pause(led.partition)
        return told

    @contextmanager
    def _edge_of(self, led: LedShard[ShardT, WriteT]) -> Iterator[None]:
        """End what an unexpected error was decided in: the shard, which is loaded again."""
        try:
            yield
        except Exception as error:
            self._errors.note(self.serves, led.partition, error)
            self._load_again(led)

    def _answer(self, asker: Asker | None, answer: Any) -> None:
        """Answer one, if there is one; that this fails is nothing to the shard."""
        if asker is None:
            return
        try:
            asker(answer)
        except Exception as error:
            self._errors.note("answer", asker, error)

    # ---- loading

    async def _load(self, led: LedShard[ShardT, WriteT]) -> None:
        """Replay the log up to its end; nothing but this shard writes to it."""
        await trio.sleep(max(0, led.load_at_ms - self._clock.monotonic_ms()) / 1000)
        log = led.partition.log
        if log is None or not self._is_current(led):
            return
        started_ms = self._clock.monotonic_ms()
        end_offset = log.end_offset
        replay = self._replay_of(log, led.shard)
        try:
            while not replay.is_done:
                await replay.replay_part()
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
            self._note_loaded(led, replay, started_ms)
            if not await self._wait_replayed(led, end_offset):
                return
            for _ in self._resume(led):
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
        except (RefusedError, OSError) as refusal:
            # Of a shortage, such as of file descriptors, no other broker is told: it passes here.
            self._logger.error(
                "the %s of %r cannot be loaded yet: %s", self.serves, led.partition, refusal
            )
            if self._is_current(led):
                self._load_again(led)
                again = self._led.get(led.partition.index)
                if again is not None:
                    again.delay_reason = str(refusal)
        except Exception as error:
            self._errors.note(self.serves, led.partition, error)
            # Loading it again would bring the same, without end.
            led.failure = str(error) or repr(error)
        else:
            self._activate(led)

    def _note_loaded(
        self, led: LedShard[ShardT, WriteT], replay: LogReplay, started_ms: int
    ) -> None:
        led.load_ms = self._clock.monotonic_ms() - started_ms
        content = self._content_of(led.shard)
        self._logger.info("loaded %s of %r in %d ms", content, led.partition, led.load_ms)
        if replay.skipped_count:
            self._skipped_count += replay.skipped_count
            self._logger.error(
                "%d records or batches of %r could not be read and were skipped",
                replay.skipped_count,
                led.partition,
            )

    def _activate(self, led: LedShard[ShardT, WriteT]) -> None:
        led.is_active = True
        with self._edge_of(led):
            self._on_active(led)
            self._perform(led)

    # ---- requests

    def perform(
        self,
        key: str,
        asker: Asker,
        action: Callable[[ShardT, Instant], None],
        *,
        is_write: bool = False,
    ) -> None:
        """Do something in the shard of a key; the asker is told if that is not possible here.

        `is_write` refuses at once what could not be committed now.
        """
        try:
            led = self._find(key)
            if is_write and len(led.partition.isr) < led.partition.min_isr_count:
                raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except RefusedError as refusal:
            asker(refusal.code)
            return
        try:
            action(led.shard, self._now())
        except Exception as error:
            self._errors.note(self.serves_each, key, error)
            if not any(told is asker for told in self._load_again(led)):
                self._answer(asker, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._perform(led)

    def shard_of(self, key: str) -> ShardT:
        """Return the shard of a key, to be read only.  Raises RefusedError if it is not here."""
        return self._find(key).shard

    def shards(self) -> Iterator[ShardT]:
        """Yield what is served, to be read only."""
        for _, led in sorted(self._led.items()):
            if led.is_active:
                yield led.shard

    @property
    def is_loading(self) -> bool:
        """Whether some of what is coordinated here is not known yet."""
        return any(led.is_loading for led in self._led.values())

    def problems(self) -> Iterator[str]:
        """Yield what is not served and why, for DescribeNode."""
        for index, led in sorted(self._led.items()):
            at = f"{self.topic}-{index}"
            if led.failure is not None:
                yield f"the {self.serves} of {at} cannot be loaded: {led.failure}"
            elif led.delay_reason is not None and not led.is_active:
                yield f"the {self.serves} of {at} cannot be loaded yet: {led.delay_reason}"

    def _find(self, key: str) -> LedShard[ShardT, WriteT]:
        image = self._table.image
        if image is not self._counted_image:
            topic = image.topic(self.topic)
            self._counted_image = image
            self._partition_count = 0 if topic is None else len(topic.partitions)
        if not self._partition_count:
            raise RefusedError(ErrorCode.NOT_COORDINATOR)
        index = partition_of(key, self._partition_count)
        led = self._led.get(index)
        if led is not None and led.is_active and led.failure is None and self._leads(led):
            return led
        return self._led_at(index)

    def _led_at(self, index: int) -> LedShard[ShardT, WriteT]:
        """Return the shard of a partition.  Raises RefusedError if it is not served here."""
        topic = self._table.image.topic(self.topic)
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
        clock = self._clock
        now: Instant = new_tuple(Instant, (clock.monotonic_ms(), clock.wall_ms()))
        return now

    # ---- appending

    def _note_due(self, led: LedShard[ShardT, WriteT]) -> None:
        """Have a shard flushed at the end of the turn, if it has what is to be."""
        if not led.is_due and (led.writes or led.answers):
            led.is_due = True
            self._due.append(led)
            if not self._turn_end.call(self._flush_due):
                self._is_due.set()

    def _append(self, led: LedShard[ShardT, WriteT], writes: Sequence[list[GroupRecord]]) -> Offset:
        """Append what was decided; return where that ends, the log's end where it is nothing.

        Raises RefusedError, with what clients are told, if the log did not take it; the shard is
        then given up or loaded again.
        """
        partition, now = led.partition, self._now()
        try:
            # The coordinator's epoch is that of the leader: an older one writes nothing more.
            end_offset = partition.leader_log(led.epoch).end_offset
            if writes:
                end_offset = partition.append_of_coordinator(
                    batches_of(writes, now.wall_ms, partition.config.max_message_bytes),
                    now_ms=now.wall_ms,
                    mono_ms=now.mono_ms,
                )
                self._reload_pauses_ms.pop(partition.index, None)
        except RefusedError as refusal:
            self._logger.warning(
                "the %s of %r are given up or loaded again: %s", self.serves, partition, refusal
            )
            self._load_again(led, is_at_once=refusal.code is not ErrorCode.KAFKA_STORAGE_ERROR)
            raise RefusedError(told_as(refusal.code, self.too_large_code)) from refusal
        except Exception as error:
            self._errors.note(self.serves, partition, error)
            self._load_again(led)
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        return end_offset
