"""Coordinator of the transactions whose partitions of `__transaction_state` this broker leads.
Pure.

It is a `ShardCoordinator` whose shards contain transactions. Each step is applied when its record
is below the high watermark. A shard serves requests only when all records that it loaded are
committed, because the markers for a Prepare record that may still be truncated must not be sent.

Invariants: NoMarkerBeforePrepare, OneCoordinatorPerEpoch (a step is applied only while this broker
leads in the epoch in which the step was decided).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import TypeAlias

from ottla.broker.coordinators.commit_wait import client_code
from ottla.broker.coordinators.effects import Responder
from ottla.broker.coordinators.led_shard import LedShard
from ottla.broker.coordinators.record_batches import RECORD_OVERHEAD_BYTES
from ottla.broker.coordinators.shard_coordinator import PeriodicTask, ShardCoordinator
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.producer_id_supply import ProducerIdSupply
from ottla.broker.transactions.state_commit import (
    TOO_LARGE_CODE,
    CompletionWait,
    StateCommit,
)
from ottla.broker.transactions.transaction import IMPLICIT_VERSION
from ottla.broker.transactions.transaction_rules import NamedProducer
from ottla.broker.transactions.transaction_shard import (
    StateWrite,
    TransactionEffects,
    TransactionShard,
)
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset, ProducerId, TopicPartition
from ottla.model.internal_topics import TRANSACTIONS_TOPIC
from ottla.model.seams import Clock
from ottla.model.settings.transactions import TransactionConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.turn_end import TurnEnd

COMPLETION_RETRY_MS = 200
"""Milliseconds between attempts to complete transactions if the partition of `__transaction_state`
has too few in-sync replicas."""

COMMIT_AGAIN_MS = 1_000
"""Minimum time in milliseconds for which the coordinator waits again for the commit of a write
whose result is unknown."""

HELD_MS_MAX = 100
"""Maximum milliseconds that a request to add partitions waits for the end of the previous
transaction. A shorter time refuses more clients, which retry after 20 ms (librdkafka, Java). A
longer time blocks other requests on their connections."""

TRANSACTIONAL_ID_CHARS_MAX = 8_191
"""Maximum number of characters of a transactional id. At four bytes for each character, an id of
this length fits into the 32,767 bytes of a string in a record."""

LedTransactions: TypeAlias = LedShard[TransactionShard, StateWrite]


class TransactionCoordinator(ShardCoordinator[TransactionShard, StateWrite]):
    """Transaction coordinator: the transactions in the partitions of `__transaction_state` that
    this broker leads."""

    topic = TRANSACTIONS_TOPIC
    serves = "transactions"
    serves_each = "transactional id"
    too_large_code = TOO_LARGE_CODE
    serves_committed_only = True

    def __init__(
        self,
        config: TransactionConfig,
        *,
        local_id: NodeId,
        table: PartitionTable,
        purgatory: Purgatory,
        clock: Clock,
        ids: ProducerIdSupply,
        send_markers: Callable[[MarkerOrder], None],
        cancel_markers: Callable[[int], None],
        errors: UnexpectedErrors | None = None,
        turn_end: TurnEnd | None = None,
    ) -> None:
        """Create a transaction coordinator without transactions. `send_markers` is called with the
        order for a transaction's markers, once its Prepare record is committed.

        `cancel_markers` is called with a partition of `__transaction_state` that this broker no
        longer coordinates.
        """
        super().__init__(
            local_id=local_id,
            table=table,
            purgatory=purgatory,
            clock=clock,
            errors=errors,
            turn_end=turn_end,
        )
        self._config = config
        self._ids = ids
        self._send_markers = send_markers
        self._cancel_markers = cancel_markers

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "transaction coordinator"

    def periodic_tasks(self) -> Iterator[PeriodicTask]:
        """Yield the transaction coordinator's periodic work: timeouts and expirations of
        transactions, and retries of failed completions."""
        config = self._config
        yield PeriodicTask(
            "timeouts of transactions",
            config.abort_check_interval_ms,
            TransactionShard.abort_timed_out,
        )
        yield PeriodicTask(
            "expiry of transactional ids",
            config.expiry_check_interval_ms,
            TransactionShard.expire,
        )
        yield PeriodicTask(
            "completion of transactions", COMPLETION_RETRY_MS, TransactionShard.complete_again
        )

    # ---- shards

    def _new_shard(self, partition: Partition) -> TransactionShard:
        return TransactionShard(
            self._config,
            index=partition.index,
            coordinator_epoch=partition.leader_epoch,
            take_id=self._ids.take,
            server_version=lambda: self.image.features.get(TRANSACTION_VERSION, 0),
        )

    def _content_of(self, shard: TransactionShard) -> str:
        return f"{len(shard.transactions)} transactions"

    def _take_waiting(self, led: LedTransactions) -> Iterator[Responder]:
        self._cancel_markers(led.partition.index)
        for write in led.writes:
            if write.responder is not None:
                yield write.responder

    def resume(self, led: LedTransactions) -> Iterator[None]:
        """Send again, in steps, the markers of transactions that were in a Prepare state when the
        shard was loaded."""
        return led.shard.resume(self._now())

    # ---- requests

    def metrics(self) -> dict[str, float]:
        """Return the number of transactions by metric name, and the load times of the coordinator's
        shards in milliseconds."""
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

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        responder: Responder,
    ) -> None:
        """Verify that partitions belong to the open transaction of a transactional id.
        `responder` is called before this method returns, with one error code for all partitions,
        or with one error code for each partition."""
        producer = NamedProducer(ProducerId(producer_id), epoch)
        self.perform(
            transactional_id,
            responder,
            lambda shard, now: shard.verify(
                transactional_id, producer, partitions, responder=responder
            ),
        )

    def writes_alone(self, transactional_id: str) -> bool:
        """Return True if no other replica must confirm a write of a transactional id's state, so
        that `add_at_once` calls its responder before it returns."""
        try:
            return len(self._find(transactional_id).partition.isr) == 1
        except RefusedError:
            return True  # The refusal needs no replica.

    def add_at_once(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[tuple[str, int]],
        responder: Callable[[ErrorCode], None],
    ) -> None:
        """Add partitions that this broker leads to the open transaction of a transactional id, or
        begin a transaction. `responder` is called with an error code, before this method returns
        if `writes_alone`.

        A client may send a request for each partition, and each addition must be committed before
        the next is decided. The write therefore does not wait for the end of the event-loop
        iteration.
        """
        producer = NamedProducer(ProducerId(producer_id), epoch)
        named = frozenset(TopicPartition(*each) for each in partitions)
        self.perform(
            transactional_id,
            responder,
            lambda shard, now: shard.add(
                transactional_id,
                producer,
                named,
                client_version=IMPLICIT_VERSION,
                responder=responder,
                now=now,
            ),
        )
        if self._due:
            self.flush_due()

    def when_completed(self, transactional_id: str, proceed: Callable[[], None]) -> bool:
        """Call `proceed` once the ending transaction of a transactional id is complete, or after
        HELD_MS_MAX.

        Returns False if no transaction of this id is ending; `proceed` is then not called.
        """
        if not self.shard_of(transactional_id).is_completing(transactional_id):
            return False
        deadline_ms = self.clock.monotonic_ms() + HELD_MS_MAX
        key = (CompletionWait, transactional_id)
        self.purgatory.watch((key,), CompletionWait(proceed), deadline_ms)
        return True

    # ---- markers

    def on_marked(self, order: MarkerOrder, partitions: Iterable[TopicPartition]) -> None:
        """Remove from a transaction the partitions that have received their marker. The removal of
        the last partition completes the transaction."""
        led = self._led.get(order.state_partition)
        if led is None or not led.is_active or led.epoch != order.coordinator_epoch:
            return
        if not order.is_cancelled:
            with self._reload_on_error(led):
                led.shard.on_marked(order, frozenset(partitions), self._now())
                self._perform(led)

    # ---- effects

    def _take_effects(self, shard: TransactionShard) -> TransactionEffects:
        return shard.take_effects()

    def send(self, order: MarkerOrder) -> None:
        """Send the markers of a transaction to the leaders of the transaction's partitions."""
        self._send_markers(order)

    def wake(self, key: str) -> None:
        """Wake the requests that wait for the completion of a transactional id's previous
        transaction."""
        self.purgatory.wake((CompletionWait, key))

    def note_due(self, led: LedTransactions) -> None:
        """Append the first write of a shard in an event-loop iteration at once, and schedule
        further writes for the end of the iteration.

        The client of the first write then gets its response before the other requests of the
        iteration are served. Few transactions share a shard, so that most writes are the first.
        """
        turn_end = self._turn_end
        is_first = turn_end.is_coming and led.written_turn != turn_end.turn_count
        if self._is_gathering or led.is_due or not is_first:
            super().note_due(led)
            return
        led.written_turn = turn_end.turn_count
        self._flush_safely(led)

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
                self.answer(write.responder, refusal.code)
            return
        for write in fitting:
            self._await_commit(led, end_offset, write)

    def _refuse(self, led: LedTransactions, write: StateWrite, code: ErrorCode) -> None:
        with self._reload_on_error(led):
            write.on_refused()
        self.answer(write.responder, code)

    def _await_commit(self, led: LedTransactions, end_offset: Offset, write: StateWrite) -> None:
        on_end = partial(self._on_end, led, end_offset)
        entry = StateCommit(led.partition, led.epoch, end_offset, write, on_end)
        if not entry.try_complete():
            deadline_ms = self.clock.monotonic_ms() + write.timeout_ms
            self.purgatory.watch((led.partition.high_watermark_key,), entry, deadline_ms)

    def _on_end(
        self, led: LedTransactions, end_offset: Offset, write: StateWrite, code: ErrorCode
    ) -> None:
        """Apply a write of a shard after its wait for the commit, and answer its client. If the
        outcome is unknown, the write stays pending, and the client gets an error. If the write
        failed, the shard is loaded again."""
        if not self.is_current(led):
            self.answer(write.responder, ErrorCode.NOT_COORDINATOR)
        elif code is ErrorCode.NONE:
            with self._reload_on_error(led):
                write.on_committed(self._now())
            is_current = self.is_current(led)
            self.answer(write.responder, write.answer if is_current else ErrorCode.NOT_COORDINATOR)
            if is_current:
                with self._reload_on_error(led):
                    self._perform(led)
        elif code is ErrorCode.REQUEST_TIMED_OUT:
            self.answer(write.responder, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            write.responder = None
            write.timeout_ms = max(write.timeout_ms, COMMIT_AGAIN_MS)
            self._await_commit(led, end_offset, write)
        else:
            self._load_again(led)
            self.answer(write.responder, client_code(code, TOO_LARGE_CODE))


def _size_of(write: StateWrite) -> int:
    return sum(len(key) + len(value or b"") + RECORD_OVERHEAD_BYTES for key, value in write.records)
