"""Coordinates the transactions whose partition of `__transaction_state` is led here.

A `ShardCoordinator` whose shards are transactions: each step is applied when the high watermark has
passed its record.  A shard serves when all that it loaded is committed: a Prepare record that may
still be cut off must not have its markers sent.

Invariants: NoMarkerBeforePrepare, OneCoordinatorPerEpoch (a step is applied only while this broker
leads in the epoch in which it was decided).
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeAlias

import trio

from ottla.broker.groups.commit_wait import told_as
from ottla.broker.groups.effects import Asker
from ottla.broker.groups.group_batches import RECORD_OVERHEAD_BYTES
from ottla.broker.groups.led_shard import LedShard
from ottla.broker.groups.shard_coordinator_driver import ShardCoordinator
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.turn_end import TurnEnd
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.producer_id_stock_driver import ProducerIdStock
from ottla.broker.transactions.state_commit import (
    TOO_LARGE_CODE,
    CommittedUpTo,
    CompletionWait,
    StateCommit,
)
from ottla.broker.transactions.transaction_shard import StateWrite, TransactionShard
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.model.background_driver import BackgroundWork
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset, TopicPartition
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.transactions import TransactionConfig
from ottla.model.unexpected_errors import UnexpectedErrors

COMPLETION_RETRY_MS = 200
"""How often a transaction is completed again whose log had too few replicas in sync."""

COMMIT_POLL_MS = 1_000
"""How often it is looked again whether all that was loaded is committed, without any news of it."""

HELD_MS_MAX = 100
"""How long an add is held that meets the end of the transaction before.  Shorter sends its client
away more often, which comes again after 20 ms (librdkafka, Java); longer keeps its connection from
serving what else it asks."""

TRANSACTIONAL_ID_CHARS_MAX = 8_191
"""Four bytes each, they fill the 32,767 that a text of a record may have."""

LedTransactions: TypeAlias = LedShard[TransactionShard, StateWrite]


class TransactionCoordinator(ShardCoordinator[TransactionShard, StateWrite]):
    """The shards of transactions led here."""

    topic = TRANSACTIONS_TOPIC
    serves = "transactions"
    serves_each = "transactional id"
    too_large_code = TOO_LARGE_CODE

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
        self.ids = ids
        self.send_markers: Callable[[MarkerOrder], None] = lambda order: None
        """Called with markers to send; their Prepare record is committed."""
        self.cancel_markers: Callable[[int], None] = lambda state_partition: None
        """Called with a partition of the transaction state that is coordinated here no longer."""

    @property
    def name(self) -> str:
        """The name of this publisher in faults."""
        return "transaction coordinator"

    def _tasks(self) -> Iterator[tuple[str, BackgroundWork]]:
        config = self._config
        yield "producer ids of transactions", self.ids.run
        for name, interval_ms, work in (
            (
                "timeouts of transactions",
                config.abort_check_interval_ms,
                TransactionShard.abort_timed_out,
            ),
            (
                "expiry of transactional ids",
                config.expiry_check_interval_ms,
                TransactionShard.expire,
            ),
            ("completion of transactions", COMPLETION_RETRY_MS, TransactionShard.complete_again),
        ):
            yield name, partial(self._regularly, interval_ms, work)

    # ---- shards

    def _new_shard(self, partition: Partition) -> TransactionShard:
        return TransactionShard(
            self._config,
            index=partition.index,
            coordinator_epoch=partition.leader_epoch,
            take_id=self.ids.take,
            server_version=lambda: self.image.features.get(TRANSACTION_VERSION, 0),
        )

    def _content_of(self, shard: TransactionShard) -> str:
        return f"{len(shard.transactions)} transactions"

    def _waiting_in(self, led: LedTransactions) -> Iterator[Asker]:
        self.cancel_markers(led.partition.index)
        for write in led.writes:
            if write.asker is not None:
                yield write.asker

    async def _wait_replayed(self, led: LedTransactions, end_offset: Offset) -> bool:
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

    def _resume(self, led: LedTransactions) -> Iterator[None]:
        return led.shard.resume(self._now())

    # ---- requests

    def metrics(self) -> dict[str, float]:
        """Return how much it coordinates."""
        shards = list(self.shards())
        loads_ms = [led.load_ms for led in self._led.values() if led.load_ms is not None]
        return {
            "transactions.ids": sum(len(shard.transactions) for shard in shards),
            "transactions.open": sum(shard.open_count for shard in shards),
            "transactions.completions.retried": sum(shard.uncompleted_count for shard in shards),
            "transactions.records.skipped": self._skipped_count,
            "transactions.partitions.loading": sum(led.is_loading for led in self._led.values()),
            "transactions.load.ms.max": max(loads_ms, default=0),
            "transactions.load.ms.avg": sum(loads_ms) / max(1, len(loads_ms)),
        }

    def _find(self, key: str) -> LedTransactions:
        if not key or len(key) > TRANSACTIONAL_ID_CHARS_MAX:
            raise RefusedError(ErrorCode.INVALID_REQUEST)
        return super()._find(key)

    def when_completed(self, transactional_id: str, proceed: Callable[[], None]) -> bool:
        """Call back once the transaction that is being ended is complete, or takes too long.

        Returns False where none is being ended.
        """
        if not self.shard_of(transactional_id).is_completing(transactional_id):
            return False
        deadline_ms = self._clock.monotonic_ms() + HELD_MS_MAX
        key = (CompletionWait, transactional_id)
        self._purgatory.watch((key,), CompletionWait(proceed), deadline_ms)
        return True

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
        effects = led.shard.take_effects()
        for asker, answer in effects.answers:
            self._answer(asker, answer)
        led.writes += effects.writes
        self._note_due(led)
        for order in effects.orders:
            self.send_markers(order)
        for transactional_id in effects.completed:
            self._purgatory.wake((CompletionWait, transactional_id))

    def _flush(self, led: LedTransactions) -> None:
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
        try:
            end_offset = self._append(led, [write.records for write in fitting])
        except RefusedError as refusal:
            for write in fitting:
                self._answer(write.asker, refusal.code)
            return
        for write in fitting:
            self._await_commit(led, end_offset, write)

    def _refuse(self, led: LedTransactions, write: StateWrite, code: ErrorCode) -> None:
        with self._edge_of(led):
            write.on_refused()
        self._answer(write.asker, code)

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
            self._answer(write.asker, told_as(code, TOO_LARGE_CODE))


def _size_of(write: StateWrite) -> int:
    return sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in write.records)
