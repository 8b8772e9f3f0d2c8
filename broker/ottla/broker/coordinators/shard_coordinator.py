"""Base class of the coordinators of groups, share partitions and transactions. Pure.

When this broker begins to lead a partition of the coordinator's topic, the partition's log is
replayed into a shard. During the replay, clients get COORDINATOR_LOAD_IN_PROGRESS. When the broker
no longer leads the partition, the waiting requests get NOT_COORDINATOR. The effects of one
event-loop iteration are appended as one write, at the end of the iteration. Outside an iteration,
the driver appends them. If an append failed, or an unexpected error was raised, the shard contains
decisions that its log lacks. It is then dropped and loaded again.

A driver (`shard_coordinator_driver`) loads shards, keeps time and runs work in steps. A simulation
or fuzzer, which has no tasks, calls `flush_due`, `on_time` and `work` itself.

Invariant: OneCoordinatorPerEpoch (a shard appends only while this broker leads in the epoch in
which the shard was loaded).
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias

from ottla.broker.coordinators.commit_wait import client_code
from ottla.broker.coordinators.effects import (
    CoordinatorRecord,
    Instant,
    Responder,
    ShardEffects,
    new_tuple,
)
from ottla.broker.coordinators.led_shard import LedShard, ShardT, WriteT
from ottla.broker.coordinators.log_replay import LogReplay
from ottla.broker.coordinators.performer import perform
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.coordinators.record_batches import batches_of
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.limits import INT32_MAX
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.turn_end import TurnEnd
from ottla.storage.log.log import Log

RELOAD_MS_FIRST = 100
RELOAD_MS_MAX = 10_000
"""Maximum delay in milliseconds before a coordinator shard is loaded again after a read or write of
its log failed. A shorter delay repeats failing loads more often. A longer delay leaves clients
without a coordinator for longer after the error has ended."""

FLUSHES_MAX = 4
"""Maximum number of times that a shard's writes are appended in one go, because the commit of a
write caused the next write. An end of a transaction without partitions needs three. The driver
appends what is left."""

StepsOfShard: TypeAlias = Callable[[Any, Instant], Iterable[None] | None]


class PeriodicTask(NamedTuple):
    """Work that a coordinator repeats at an interval in every shard (its state in one topic
    partition)."""

    name: str
    interval_ms: int
    steps: StepsOfShard
    """Function that returns the steps of the periodic work for a shard. Its arguments are the shard
    and the time. The coordinator runs the steps one by one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class ShardCoordinator(ABC, Generic[ShardT, WriteT]):
    """Coordinator of one internal topic: one shard (state) for each of the topic's partitions that
    this broker leads."""

    topic: ClassVar[str]
    serves: ClassVar[str]
    """Plural noun for the objects that this coordinator manages (such as groups), for fault reports
    and the log."""
    serves_each: ClassVar[str]
    """Singular noun for one object that this coordinator manages (such as group)."""
    too_large_code: ClassVar[ErrorCode]
    """Error code for a client whose record is too large for the coordinator's log."""
    key_length_max: ClassVar[int] = INT32_MAX
    """Maximum length of a key (such as a group id) in characters."""
    key_too_long_code: ClassVar[ErrorCode] = ErrorCode.INVALID_REQUEST
    """Error code for a client whose key is too long."""
    serves_committed_only: ClassVar[bool] = False
    """True if a shard begins to serve requests only when all records that it loaded are
    committed."""

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
        """Create a coordinator without shards. `turn_end` schedules work for the end of the
        event-loop iteration that serves requests, or is None without such an event loop."""
        self._local_id = local_id
        self._table = table
        self.purgatory = purgatory
        self.clock = clock
        self.errors = UnexpectedErrors() if errors is None else errors
        self._turn_end = TurnEnd() if turn_end is None else turn_end
        self.logger = logging.getLogger(f"ottla.broker.{self.serves}")
        self.image: MetadataImage = EMPTY
        """Last metadata image that the coordinator has applied."""
        self._counted_image = EMPTY
        """Metadata image in which the coordinator last looked up the partition count of its
        topic."""
        self._partition_count = 0
        self._led: dict[int, LedShard[ShardT, WriteT]] = {}
        self._due: list[LedShard[ShardT, WriteT]] = []
        self._is_gathering = False
        """True while further writes of shards will be appended by the caller."""
        self._to_load: list[LedShard[ShardT, WriteT]] = []
        self._reload_pauses_ms: dict[int, int] = {}
        """Last pause in milliseconds before each shard was loaded again, by partition index. An
        entry is removed when the shard's log accepts a write."""
        self._skipped_count = 0
        self._armed_ms: int | None = None
        self.on_due: Callable[[], None] = lambda: None
        """Function that is called when the driver has work: a shard to load, an append outside an
        event-loop iteration, or unfinished steps."""
        self.on_earlier_deadline: Callable[[], None] = lambda: None
        """Function that is called when a shard sets a deadline that is earlier than all others."""

    # ---- implemented by each coordinator

    @property
    @abstractmethod
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """Return the counts and load durations of the coordinator's shards on this broker, by
        metric name."""

    @abstractmethod
    def _new_shard(self, partition: Partition) -> ShardT:
        """Return an empty coordinator shard, into which the log of a partition is then replayed."""

    @abstractmethod
    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """Yield the work that the coordinator does periodically in every shard."""

    @abstractmethod
    def resume(self, led: LedShard[ShardT, WriteT]) -> Iterator[None]:
        """Resume, in steps, the work that a former leader left unfinished according to the replayed
        log of the shard."""

    @abstractmethod
    def _take_waiting(self, led: LedShard[ShardT, WriteT]) -> Iterator[Responder]:
        """Remove and yield the callbacks of requests that wait in a shard that this broker no
        longer serves."""

    @abstractmethod
    def _take_effects(self, shard: ShardT) -> ShardEffects[WriteT]:
        """Return and clear the effects (records, responses, deadlines) that a coordinator shard has
        decided."""

    @abstractmethod
    def _flush(self, led: LedShard[ShardT, WriteT]) -> None:
        """Append a shard's writes of this event-loop iteration to its log. The responses that
        depend on them are sent when the writes are committed."""

    @abstractmethod
    def _content_of(self, shard: ShardT) -> str:
        """Return a description of a shard's content in numbers, for a log message."""

    def replay_of(self, log: Log, shard: ShardT) -> LogReplay:
        """Return a replay of a partition's log into a coordinator shard."""
        return LogReplay(log, shard, self.errors)

    def _on_active(self, led: LedShard[ShardT, WriteT]) -> None:
        """Initialise a coordinator shard that starts to serve requests. Does nothing by default;
        subclasses override this method."""

    def work(self) -> Iterator[None]:
        """Run the coordinator's work that takes several event-loop iterations. Each iteration of
        the returned iterator runs one step."""
        return iter(())

    @property
    def has_work(self) -> bool:
        """True if the coordinator has unfinished work. The iterator of `work` runs this work in
        steps."""
        return False

    def next_deadline_ms(self) -> int | None:
        """Return the monotonic time in milliseconds at which `on_time` must be called, or None if
        there is no deadline."""
        return None

    def on_time(self, now_ms: int) -> None:
        """Handle the deadlines of all shards that have passed at a monotonic time in
        milliseconds."""

    # ---- ports of a led shard

    def answer(self, responder: Responder | None, answer: Any) -> None:
        """Send the response to a coordinator request, if a client waits for it. An exception raised
        while sending does not affect the shard."""
        if responder is None:
            return
        try:
            responder(answer)
        except Exception as error:
            self.errors.note("answer", responder, error)

    def note_due(self, led: LedShard[ShardT, WriteT]) -> None:
        """Schedule the append of a coordinator shard's writes to its log for the end of the
        event-loop iteration."""
        if not led.is_due and (led.writes or led.answers):
            led.is_due = True
            self._due.append(led)
            if not (self._is_gathering or self._turn_end.call(self.flush_due)):
                self.on_due()

    def send(self, order: Any) -> None:
        """Send a message of the coordinator to other brokers, such as the order to write a
        transaction's markers."""
        raise AssertionError(f"the {self.name} sends nothing")

    def wake(self, key: str) -> None:
        """Wake the requests that wait until the previous transaction of a transactional id is
        completed."""
        raise AssertionError(f"nothing waits in the {self.name} for {key}")

    def wake_at(self, deadline_ms: int) -> None:
        """Schedule a call of `on_time`, which handles expired deadlines, at a monotonic time in
        milliseconds."""
        if self._armed_ms is None or deadline_ms < self._armed_ms:
            self.on_earlier_deadline()

    def work_soon(self) -> None:
        """Schedule the unfinished work of the coordinator's shards, which runs in steps."""
        self.on_due()

    def _perform(self, led: LedShard[ShardT, WriteT]) -> None:
        perform(self._take_effects(led.shard), led)

    def _end_event(self, led: LedShard[ShardT, WriteT]) -> None:
        """Perform the effects of a request. A subclass may leave them in the shard, and set
        `has_effects`, until the writes of the shard are appended."""
        self._perform(led)

    def _gather(self, led: LedShard[ShardT, WriteT]) -> None:
        """Perform the effects that were left in a shard, whose writes are appended next."""
        if led.has_effects:
            led.has_effects = False
            self._perform(led)

    # ---- interface for the driver

    def take_loads(self) -> list[LedShard[ShardT, WriteT]]:
        """Return the coordinator shards whose logs must be replayed now. Each shard is returned
        only once."""
        loads, self._to_load = self._to_load, []
        return loads

    def flush_due(self) -> None:
        """Append the pending writes of every coordinator shard to its log, and the writes that
        their commit causes: the end of a transaction lets the next one begin."""
        self._is_gathering = True
        try:
            for _ in range(FLUSHES_MAX):
                due, self._due = self._due, []
                for led in due:
                    if self.is_current(led):
                        self._gather(led)
                        led.is_due = False
                        self._flush_safely(led)
                if not self._due:
                    return
        finally:
            self._is_gathering = False
        self.on_due()

    def _flush_safely(self, led: LedShard[ShardT, WriteT]) -> None:
        try:
            self._flush(led)
        except Exception as error:
            # The error came from a request that waits for the log; the others have their answers.
            self.errors.note(self.serves, led.partition, error)

    @contextmanager
    def one_flush(self) -> Iterator[None]:
        """Context manager that appends the writes of its block together, at the end of the
        block."""
        self._is_gathering = True
        try:
            yield
        finally:
            self.flush_due()

    def run_periodically(self, steps_of: StepsOfShard) -> Iterator[None]:
        """Run periodic work in every shard of the coordinator. The caller runs one step per
        iteration of the returned iterator."""
        for led in list(self._led.values()):
            if led.is_active:
                with self._reload_on_error(led):
                    yield from self._work_through(led, steps_of(led.shard, self._now()) or ())

    def _work_through(self, led: LedShard[ShardT, WriteT], steps: Iterable[None]) -> Iterator[None]:
        for _ in steps:
            self._perform(led)
            yield
            if not self.is_current(led):
                return
        self._perform(led)

    # ---- leadership

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Start to coordinate the partitions that this broker leads in the new metadata image, and
        resign from all others."""
        self.image = image
        partitions = self._table.by_name.get(self.topic, {})
        for index, led in list(self._led.items()):
            if partitions.get(index) is not led.partition or not self._leads(led):
                self._resign(led)
        for index, partition in partitions.items():
            if partition.is_leader and index not in self._led:
                self._begin(partition)

    def on_led(self, partition: Partition) -> None:
        """Start to coordinate a partition of the coordinator's topic whose log was opened after the
        metadata was published."""
        if self.image is not self._table.image:
            return  # The image is not applied here yet; `publish` will start leading.
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

    def is_current(self, led: LedShard[ShardT, WriteT]) -> bool:
        """Return whether a coordinator shard is still in use. The result is False if the shard was
        dropped, or replaced after another load of its log."""
        return self._led.get(led.partition.index) is led

    def _begin(self, partition: Partition, *, pause_ms: int = 0) -> None:
        led: LedShard[ShardT, WriteT] = LedShard(partition, self._new_shard(partition), self)
        self._led[partition.index] = led
        log = partition.log
        if not pause_ms and log is not None and log.log_start_offset == log.end_offset:
            self.activate(led)
            return
        led.load_at_ms = self.clock.monotonic_ms() + pause_ms
        self._to_load.append(led)
        self.on_due()

    def _reload_after_pause(self, partition: Partition) -> None:
        """Replay a coordinator shard's log again after a pause. The pause is needed if a disk error
        or an unexpected exception ended the shard.

        The error may occur again: without the pause, a full disk would cause thousands of loads
        before it has space again.
        """
        index = partition.index
        pause_ms = min(self._reload_pauses_ms.get(index, RELOAD_MS_FIRST // 2) * 2, RELOAD_MS_MAX)
        self._reload_pauses_ms[index] = pause_ms
        self._begin(partition, pause_ms=pause_ms)

    def _resign(self, led: LedShard[ShardT, WriteT]) -> list[Responder]:
        """Stop serving a coordinator shard, and answer its waiting requests with NOT_COORDINATOR.
        Returns the callbacks of the answered requests."""
        del self._led[led.partition.index]
        led.is_active = False
        waiting = list(self._take_waiting(led))
        led.answers, led.writes = [], []
        for responder in waiting:
            self.answer(responder, ErrorCode.NOT_COORDINATOR)
        return waiting

    def _load_again(
        self, led: LedShard[ShardT, WriteT], *, is_at_once: bool = False
    ) -> list[Responder]:
        """Drop a coordinator shard, including its decisions that are not in the log, and load it
        again. Returns the callbacks of the requests that were answered with an error."""
        if not self.is_current(led):
            return []
        refused = self._resign(led)
        if led.partition.is_leader and is_at_once:
            self._begin(led.partition)
        elif led.partition.is_leader:
            self._reload_after_pause(led.partition)
        return refused

    @contextmanager
    def _reload_on_error(self, led: LedShard[ShardT, WriteT]) -> Iterator[None]:
        """Context manager that drops a coordinator shard and replays its log again if its block
        raises an unexpected exception."""
        try:
            yield
        except Exception as error:
            self.errors.note(self.serves, led.partition, error)
            self._load_again(led)

    # ---- loading

    def note_loaded(
        self, led: LedShard[ShardT, WriteT], replay: LogReplay, started_ms: int
    ) -> None:
        """Write a log message about the replay of a shard's log, with its duration and the number
        of skipped records."""
        led.load_ms = self.clock.monotonic_ms() - started_ms
        content = self._content_of(led.shard)
        self.logger.info("loaded %s of %r in %d ms", content, led.partition, led.load_ms)
        if replay.skipped_count:
            self._skipped_count += replay.skipped_count
            self.logger.error(
                "%d records or batches of %r could not be read and were skipped",
                replay.skipped_count,
                led.partition,
            )

    def delay_load(self, led: LedShard[ShardT, WriteT], reason: str) -> None:
        """Load a coordinator shard again after a pause, because of a temporary shortage, such as of
        file descriptors. This broker remains the coordinator of the shard.
        """
        self.logger.error(
            "the %s of %r cannot be loaded yet: %s", self.serves, led.partition, reason
        )
        if self.is_current(led):
            self._load_again(led)
            again = self._led.get(led.partition.index)
            if again is not None:
                again.delay_reason = reason

    def fail_load(self, led: LedShard[ShardT, WriteT], error: Exception) -> None:
        """Stop serving a coordinator shard permanently, since loading it again would raise the same
        error."""
        self.errors.note(self.serves, led.partition, error)
        led.failure = str(error) or repr(error)

    def activate(self, led: LedShard[ShardT, WriteT]) -> None:
        """Start to serve requests for a coordinator shard whose log has been replayed."""
        led.is_active = True
        with self._reload_on_error(led):
            self._on_active(led)
            self._perform(led)

    # ---- requests

    def perform(
        self,
        key: str,
        responder: Responder,
        action: Callable[[ShardT, Instant], None],
        *,
        is_write: bool = False,
    ) -> None:
        """Call `action` with the shard to which `key` (such as a group id) belongs. Then perform
        the effects that the shard decides: records, responses and deadlines.

        The request is refused if this broker does not serve the shard. With `is_write` it is also
        refused if a write could not be committed now.
        """
        try:
            led = self._find(key)
            if is_write and len(led.partition.isr) < led.partition.min_isr_count:
                raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except RefusedError as refusal:
            responder(refusal.code)
            return
        try:
            action(led.shard, self._now())
        except Exception as error:
            self.errors.note(self.serves_each, key, error)
            if not any(refused is responder for refused in self._load_again(led)):
                self.answer(responder, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._end_event(led)

    def shard_of(self, key: str) -> ShardT:
        """Return the coordinator shard (state of one topic partition) that a key, such as a group
        id, belongs to. The caller must not change the shard. Raises RefusedError if this broker
        does not serve the shard."""
        return self._find(key).shard

    def shards(self) -> Iterator[ShardT]:
        """Yield the coordinator shards that serve requests on this broker. The caller must not
        change them."""
        for _, led in sorted(self._led.items()):
            if led.is_active:
                yield led.shard

    @property
    def is_loading(self) -> bool:
        """True while the log of at least one coordinator shard of this broker is still being
        replayed."""
        return self.loading_count > 0

    @property
    def loading_count(self) -> int:
        """Number of the coordinator's shards whose log is still being replayed."""
        return sum(led.is_loading for led in self._led.values())

    def problems(self) -> Iterator[str]:
        """Yield a problem description, for DescribeNode, for each coordinator shard that is not
        served."""
        for index, led in sorted(self._led.items()):
            at = f"{self.topic}-{index}"
            if led.failure is not None:
                yield f"the {self.serves} of {at} cannot be loaded: {led.failure}"
            elif led.delay_reason is not None and not led.is_active:
                yield f"the {self.serves} of {at} cannot be loaded yet: {led.delay_reason}"

    def _find(self, key: str) -> LedShard[ShardT, WriteT]:
        if len(key) > self.key_length_max:
            raise RefusedError(self.key_too_long_code)
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
        """Return the coordinator shard of a partition. Raises RefusedError if this broker does not
        serve it."""
        topic = self._table.image.topic(self.topic)
        if topic is None or index not in topic.partitions:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        led = self._led.get(index)
        if led is None or not self._leads(led):
            # The metadata that makes this broker the leader may have arrived without being applied
            # yet.
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
        clock = self.clock
        now: Instant = new_tuple(Instant, (clock.monotonic_ms(), clock.wall_ms()))
        return now

    # ---- appending

    def _append(
        self, led: LedShard[ShardT, WriteT], writes: Sequence[list[CoordinatorRecord]]
    ) -> Offset:
        """Append writes to the log of a coordinator shard. Returns their end offset, or the log end
        offset if `writes` is empty.

        Raises RefusedError, with the error code for clients, if the append failed. The shard is
        then dropped or loaded again.
        """
        partition, now = led.partition, self._now()
        try:
            # The coordinator epoch is the leader epoch, so that an older coordinator cannot write.
            end_offset = partition.leader_log(led.epoch).end_offset
            if writes:
                end_offset = partition.append_of_coordinator(
                    batches_of(writes, now.wall_ms, partition.config.max_message_bytes),
                    now_ms=now.wall_ms,
                    mono_ms=now.mono_ms,
                )
                self._reload_pauses_ms.pop(partition.index, None)
        except RefusedError as refusal:
            self.logger.warning(
                "the %s of %r are given up or loaded again: %s", self.serves, partition, refusal
            )
            self._load_again(led, is_at_once=refusal.code is not ErrorCode.KAFKA_STORAGE_ERROR)
            raise RefusedError(client_code(refusal.code, self.too_large_code)) from refusal
        except Exception as error:
            self.errors.note(self.serves, partition, error)
            self._load_again(led)
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR) from error
        return end_offset
