"""Coordinates the transactions whose partition of `__transaction_state` is led here.

A publisher: when this broker begins to lead such a partition it replays its log into a
`TransactionShard`; when it leads it no longer, all that wait are told NOT_COORDINATOR.  What a turn
of the loop decides is appended as one write; each step is applied when the high watermark has
passed its record.  A shard serves when all that it loaded is committed: a Prepare record that may
still be cut off must not have its markers sent.

Invariants: NoMarkerBeforePrepare, OneCoordinatorPerEpoch (a step is applied only while this broker
leads in the epoch in which it was decided).
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import trio

from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.groups.group_batches import RECORD_OVERHEAD_BYTES, batches_of
from ottla.broker.groups.log_replay import LogReplay
from ottla.broker.groups.placement import partition_of
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.producer_id_stock_driver import ProducerIdStock
from ottla.broker.transactions.state_commit import CommittedUpTo, StateCommit, told_producer_as
from ottla.broker.transactions.transaction_shard import StateWrite, TransactionShard
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.background_driver import keep_running
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.transactions import TransactionConfig
from ottla.model.unexpected_errors import UnexpectedErrors

logger = logging.getLogger("ottla.broker.transactions")

RELOAD_MS_FIRST = 100
RELOAD_MS_MAX = 10_000
"""How long a shard waits that is loaded again because its log did not take what it wrote.  Shorter
loads it in vain more often, longer leaves its transactions without a coordinator."""

COMPLETION_RETRY_S = 0.2
"""How often a transaction is completed again whose log had too few replicas in sync."""

COMMIT_POLL_MS = 1_000
"""How often it is looked again whether all that was loaded is committed, without any news of it."""

TRANSACTIONAL_ID_CHARS_MAX = 8_191
"""Four bytes each, they fill the 32,767 that a text of a record may have."""

Action = Callable[[TransactionShard, Instant], None]


class LedTransactions:
    """One partition of the transaction state that is led here, and what is to be done for it."""

    __slots__ = (
        "epoch",
        "failure",
        "is_active",
        "is_due",
        "load_at_ms",
        "load_ms",
        "partition",
        "shard",
        "writes",
    )

    def __init__(self, partition: Partition, shard: TransactionShard) -> None:
        self.partition = partition
        self.epoch: Epoch = partition.leader_epoch
        """The coordinator epoch."""
        self.shard = shard
        self.is_active = False
        """Whether all of its log is replayed and committed."""
        self.failure: str | None = None
        """Why its log cannot be replayed."""
        self.is_due = False
        self.load_at_ms = 0
        """When its log is replayed, at the earliest."""
        self.load_ms: int | None = None
        """How long that took."""
        self.writes: list[StateWrite] = []


class TransactionCoordinator:
    """The shards led here; owns them."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        local_id: NodeId,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        ids: ProducerIdStock,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self._config = config
        self._local_id = local_id
        self._table = table
        self._purgatory = purgatory
        self._clock = clock
        self._errors = UnexpectedErrors() if errors is None else errors
        self.ids = ids
        self.image: MetadataImage = EMPTY
        """The metadata that it has followed."""
        self.send_markers: Callable[[MarkerOrder], None] = lambda order: None
        """Called with markers to send; their Prepare record is committed."""
        self.cancel_markers: Callable[[int], None] = lambda state_partition: None
        """Called with a partition of the transaction state that is coordinated here no longer."""
        self._led: dict[int, LedTransactions] = {}
        self._due: list[LedTransactions] = []
        self._is_due = trio.Event()
        self._to_load: list[LedTransactions] = []
        self._reload_pauses_ms: dict[int, int] = {}
        self._skipped_count = 0

    @property
    def name(self) -> str:
        """The name of this publisher in faults."""
        return "transaction coordinator"

    async def run(self) -> None:
        """Load, append and keep time until cancelled."""
        config = self._config
        async with trio.open_nursery() as nursery:
            for name, work in (
                ("transactions", partial(self._serve, nursery)),
                ("producer ids of transactions", self.ids.run),
                (
                    "timeouts of transactions",
                    partial(
                        self._regularly,
                        config.abort_check_interval_ms,
                        TransactionShard.abort_timed_out,
                    ),
                ),
                (
                    "expiry of transactional ids",
                    partial(
                        self._regularly, config.expiry_check_interval_ms, TransactionShard.expire
                    ),
                ),
                ("completion of transactions", self._complete_again),
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

    # ---- what the metadata says

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Lead, or resign from, what has changed hands."""
        self.image = image
        partitions = self._table.by_name.get(TRANSACTIONS_TOPIC, {})
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
        if self._table.by_name.get(TRANSACTIONS_TOPIC, {}).get(index) is not partition:
            return
        led = self._led.get(index)
        if led is not None and not (led.partition is partition and self._leads(led)):
            self._resign(led)
        if index not in self._led:
            self._begin(partition)

    def _leads(self, led: LedTransactions) -> bool:
        return led.partition.is_leader and led.partition.leader_epoch == led.epoch

    def _is_current(self, led: LedTransactions) -> bool:
        return self._led.get(led.partition.index) is led

    def _server_version(self) -> int:
        return self.image.features.get(TRANSACTION_VERSION, 0)

    def _begin(self, partition: Partition, *, pause_ms: int = 0) -> None:
        shard = TransactionShard(
            self._config,
            index=partition.index,
            coordinator_epoch=partition.leader_epoch,
            take_id=self.ids.take,
            server_version=self._server_version,
        )
        led = self._led[partition.index] = LedTransactions(partition, shard)
        log = partition.log
        if log is not None and log.log_start_offset == log.end_offset:
            led.is_active = True
            return
        led.load_at_ms = self._clock.monotonic_ms() + pause_ms
        self._to_load.append(led)
        self._is_due.set()

    def _begin_after_pause(self, partition: Partition) -> None:
        index = partition.index
        pause_ms = min(self._reload_pauses_ms.get(index, RELOAD_MS_FIRST // 2) * 2, RELOAD_MS_MAX)
        self._reload_pauses_ms[index] = pause_ms
        self._begin(partition, pause_ms=pause_ms)

    def _resign(self, led: LedTransactions) -> None:
        """Serve a partition no longer; what waits for a commit is told so when it looks."""
        del self._led[led.partition.index]
        led.is_active = False
        self.cancel_markers(led.partition.index)
        writes, led.writes = led.writes, []
        for write in writes:
            self._answer(write.asker, ErrorCode.NOT_COORDINATOR)

    def _load_again(self, led: LedTransactions) -> None:
        """Forget what a shard decided and did not write."""
        if self._is_current(led):
            self._resign(led)
            if led.partition.is_leader:
                self._begin_after_pause(led.partition)

    @contextmanager
    def _edge_of(self, led: LedTransactions) -> Iterator[None]:
        """End what an unexpected error was decided in: the shard, which is loaded again."""
        try:
            yield
        except Exception as error:
            self._errors.note("transactions", led.partition, error)
            self._load_again(led)

    def _answer(self, asker: Asker | None, answer: Any) -> None:
        if asker is None:
            return
        try:
            asker(answer)
        except Exception as error:
            self._errors.note("answer", asker, error)

    # ---- loading

    async def _load(self, led: LedTransactions) -> None:
        """Replay the log up to its end, and wait until that is committed."""
        await trio.sleep(max(0, led.load_at_ms - self._clock.monotonic_ms()) / 1000)
        log = led.partition.log
        if log is None or not self._is_current(led):
            return
        started_ms = self._clock.monotonic_ms()
        end_offset = log.end_offset
        replay = LogReplay(log, led.shard, self._errors)
        try:
            while not replay.is_done:
                await replay.replay_part()
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
            self._note_loaded(led, replay, started_ms)
            if not await self._wait_committed(led, end_offset):
                return
            for _ in led.shard.resume(self._now()):
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
        except Exception as error:
            if isinstance(error, RefusedError | OSError):
                logger.error("%r cannot be loaded: %s", led.partition, error)
            else:
                self._errors.note("transactions", led.partition, error)
            # Loading it again would bring the same, at once and without end.
            led.failure = str(error) or repr(error)
            return
        led.is_active = True
        self._perform(led)

    def _note_loaded(self, led: LedTransactions, replay: LogReplay, started_ms: int) -> None:
        led.load_ms = self._clock.monotonic_ms() - started_ms
        count = len(led.shard.transactions)
        logger.info("loaded %d transactions of %r in %d ms", count, led.partition, led.load_ms)
        if replay.skipped_count:
            self._skipped_count += replay.skipped_count
            logger.error(
                "%d records or batches of %r could not be read and were skipped",
                replay.skipped_count,
                led.partition,
            )

    async def _wait_committed(self, led: LedTransactions, end_offset: Offset) -> bool:
        """Wait until all up to `end_offset` is committed; return whether the shard is current."""
        while self._is_current(led):
            if led.partition.high_watermark >= end_offset:
                return True
            moved = trio.Event()
            deadline_ms = self._clock.monotonic_ms() + COMMIT_POLL_MS
            key = led.partition.high_watermark_key
            self._purgatory.watch((key,), CommittedUpTo(moved.set), deadline_ms)
            await moved.wait()
        return False

    # ---- requests

    def perform(self, transactional_id: str, asker: Asker, action: Action) -> None:
        """Do something to a transactional id; the asker is told if it is not coordinated here."""
        try:
            led = self._find(transactional_id)
        except RefusedError as refusal:
            asker(refusal.code)
            return
        try:
            action(led.shard, self._now())
        except Exception as error:
            self._errors.note("transactional id", transactional_id, error)
            self._load_again(led)
            self._answer(asker, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        self._perform(led)

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of a transactional id, to be read only; refuse if it is not here."""
        return self._find(transactional_id).shard

    def shards(self) -> Iterator[TransactionShard]:
        """Yield what is served, to be read only."""
        for _, led in sorted(self._led.items()):
            if led.is_active:
                yield led.shard

    @property
    def is_loading(self) -> bool:
        """Whether some transactions are not known yet."""
        return any(not (led.is_active or led.failure) for led in self._led.values())

    def problems(self) -> Iterator[str]:
        """Yield which transactions are not served and why, for DescribeNode."""
        for index, led in sorted(self._led.items()):
            if led.failure is not None:
                at = f"{TRANSACTIONS_TOPIC}-{index}"
                yield f"the transactions of {at} cannot be loaded: {led.failure}"

    def metrics(self) -> dict[str, float]:
        """Return how much it coordinates."""
        shards = list(self.shards())
        loads_ms = [led.load_ms for led in self._led.values() if led.load_ms is not None]
        return {
            "transactions.ids": sum(len(shard.transactions) for shard in shards),
            "transactions.open": sum(shard.open_count for shard in shards),
            "transactions.completions.retried": sum(shard.uncompleted_count for shard in shards),
            "transactions.records.skipped": self._skipped_count,
            "transactions.partitions.loading": sum(
                not (led.is_active or led.failure) for led in self._led.values()
            ),
            "transactions.load.ms.max": max(loads_ms, default=0),
            "transactions.load.ms.avg": sum(loads_ms) / max(1, len(loads_ms)),
        }

    def _find(self, transactional_id: str) -> LedTransactions:
        if not transactional_id or len(transactional_id) > TRANSACTIONAL_ID_CHARS_MAX:
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        topic = self._table.image.topic(TRANSACTIONS_TOPIC)
        if topic is None:
            raise RefusedError(ErrorCode.NOT_COORDINATOR)
        index = partition_of(transactional_id, len(topic.partitions))
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

    # ---- markers

    def on_marked(self, order: MarkerOrder, partitions: Iterable[TopicPartition]) -> None:
        """Note partitions that have their marker."""
        led = self._led.get(order.state_partition)
        if led is None or not led.is_active or led.epoch != order.coordinator_epoch:
            return
        if not order.is_cancelled:
            with self._edge_of(led):
                led.shard.on_marked(order, frozenset(partitions), self._now())
                self._perform(led)

    # ---- effects

    def _perform(self, led: LedTransactions) -> None:
        """Give the answers that may leave now; have the rest appended at the end of the turn."""
        effects = led.shard.take_effects()
        for asker, answer in effects.answers:
            self._answer(asker, answer)
        led.writes += effects.writes
        if not led.is_due and led.writes:
            led.is_due = True
            self._due.append(led)
            self._is_due.set()
        for order in effects.orders:
            self.send_markers(order)

    def _flush(self, led: LedTransactions) -> None:
        """Append what the turn decided."""
        if not self._is_current(led):
            return
        led.is_due = False
        writes, led.writes = led.writes, []
        partition = led.partition
        if len(partition.isr) < partition.min_isr_count:
            for write in writes:
                self._refuse(led, write, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        bytes_max = partition.config.max_message_bytes
        fitting = []
        for write in writes:
            if _size_of(write) > bytes_max:
                self._refuse(led, write, ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                fitting.append(write)
        if fitting:
            self._append(led, fitting)

    def _refuse(self, led: LedTransactions, write: StateWrite, code: ErrorCode) -> None:
        with self._edge_of(led):
            write.on_refused()
        self._answer(write.asker, code)

    def _append(self, led: LedTransactions, writes: list[StateWrite]) -> None:
        partition, now = led.partition, self._now()
        try:
            # The coordinator's epoch is that of the leader: an older one writes nothing more.
            partition.leader_log(led.epoch)
            end_offset = partition.append_of_coordinator(
                batches_of(
                    [write.records for write in writes],
                    now.wall_ms,
                    partition.config.max_message_bytes,
                ),
                now_ms=now.wall_ms,
                mono_ms=now.mono_ms,
            )
        except Exception as error:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            if isinstance(error, RefusedError):
                logger.warning("%r is given up or loaded again: %s", partition, error)
                code = told_producer_as(error.code)
            else:
                self._errors.note("transactions", partition, error)
            self._load_again(led)
            for write in writes:
                self._answer(write.asker, code)
            return
        self._reload_pauses_ms.pop(partition.index, None)
        for write in writes:
            self._await_commit(led, end_offset, write)

    def _await_commit(self, led: LedTransactions, end_offset: Offset, write: StateWrite) -> None:
        on_end = partial(self._on_end, led, end_offset)
        entry = StateCommit(led.partition, led.epoch, end_offset, write, on_end)
        if not entry.try_complete():
            deadline_ms = self._clock.monotonic_ms() + write.timeout_ms
            self._purgatory.watch((led.partition.high_watermark_key,), entry, deadline_ms)

    def _on_end(
        self, led: LedTransactions, end_offset: Offset, write: StateWrite, code: ErrorCode
    ) -> None:
        """Apply what is committed; what is not known yet stays pending, and the asker is told."""
        if not self._is_current(led):
            self._answer(write.asker, ErrorCode.NOT_COORDINATOR)
        elif code is ErrorCode.NONE:
            with self._edge_of(led):
                write.on_committed(self._now())
            is_current = self._is_current(led)
            self._answer(write.asker, write.answer if is_current else ErrorCode.NOT_COORDINATOR)
            if is_current:
                with self._edge_of(led):
                    self._perform(led)
        elif code is ErrorCode.REQUEST_TIMED_OUT:
            self._answer(write.asker, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            write.asker = None
            write.timeout_ms = max(write.timeout_ms, COMMIT_POLL_MS)
            self._await_commit(led, end_offset, write)
        else:
            self._load_again(led)
            self._answer(write.asker, told_producer_as(code))

    # ---- time

    async def _regularly(
        self, interval_ms: int, work: Callable[[TransactionShard, Instant], Iterator[None]]
    ) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            for led in list(self._led.values()):
                if led.is_active:
                    await self._work_off(led, work(led.shard, self._now()))

    async def _work_off(self, led: LedTransactions, steps: Iterator[None]) -> None:
        with self._edge_of(led):
            for _ in steps:
                self._perform(led)
                await trio.lowlevel.checkpoint()
                if not self._is_current(led):
                    return
            self._perform(led)

    async def _complete_again(self) -> None:
        while True:
            await trio.sleep(COMPLETION_RETRY_S)
            for led in list(self._led.values()):
                if led.is_active and led.shard.uncompleted_count:
                    with self._edge_of(led):
                        led.shard.complete_again(self._now())
                        self._perform(led)


def _size_of(write: StateWrite) -> int:
    return sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in write.records)
