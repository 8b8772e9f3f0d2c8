"""Handles requests for the transactional ids that one partition of `__transaction_state` stores.
Pure.

For each request, `TransactionShard` decides the next state of the transactional id and returns its
record as a `StateWrite`. When the record is committed, the state takes effect, the client gets its
response, and transaction markers are ordered. Until then, other requests that would change the
state of this id are refused with CONCURRENT_TRANSACTIONS.

Invariants: the invariants of `transaction.py`.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from ottla.broker.coordinators.effects import (
    CoordinatorRecord,
    Instant,
    Responder,
    ShardEffects,
)
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.transaction import (
    COMPLETED,
    IDLE,
    NO_PRODUCER_EPOCH,
    PREPARED,
    Transaction,
    TransactionFacts,
    TransactionStatus,
)
from ottla.broker.transactions.transaction_records import read_state_record, state_record
from ottla.broker.transactions.transaction_rules import (
    NamedProducer,
    TakeProducerId,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
    is_timed_out,
    verified,
)
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, TopicPartition
from ottla.model.settings.transactions import TransactionConfig

logger = logging.getLogger("ottla.broker.transactions")

LOOKED_AT_PER_STEP = 2_000
"""Number of transactional ids that periodic work checks per step, before other tasks run. A step
takes about a millisecond."""

FORGOTTEN_PER_WRITE = 100
"""Maximum number of expired transactional ids that one write deletes by tombstones."""

UNANSWERED_TIMEOUT_MS = 30_000
"""Time in milliseconds after which an uncommitted write without a waiting client is logged."""


@dataclass(slots=True, kw_only=True, eq=False)
class StateWrite:
    """Records of the transaction coordinator to append, with the callbacks for their commit and for
    a failed append."""

    records: list[CoordinatorRecord]
    timeout_ms: int
    """Maximum time in milliseconds that the client waits for the commit of this write. Afterwards
    the client gets COORDINATOR_NOT_AVAILABLE, and the write stays pending."""
    on_committed: Callable[[Instant], None]
    on_refused: Callable[[], None]
    """Function that is called if the append of the records to the log failed."""
    responder: Responder | None = None
    answer: Any = None
    """Response to send to the client when the records are committed."""


TransactionEffects: TypeAlias = ShardEffects[StateWrite]


class TransactionShard:
    """Transactions whose state is stored in one partition of `__transaction_state`. The leader of
    that partition coordinates them."""

    def __init__(
        self,
        config: TransactionConfig,
        *,
        index: int,
        coordinator_epoch: Epoch,
        take_id: TakeProducerId,
        server_version: Callable[[], int],
    ) -> None:
        """Create a shard of the transaction coordinator without transactions. `server_version`
        returns the cluster's current transaction.version."""
        self._config = config
        self.index = index
        """Index of the partition of `__transaction_state` that stores this shard."""
        self._coordinator_epoch = coordinator_epoch
        self._take_id = take_id
        self._server_version = server_version
        self._effects: TransactionEffects = ShardEffects()
        self._uncompleted: list[Transaction] = []
        self.transactions: dict[str, Transaction] = {}
        """Committed and pending state of each transactional id in this shard, by the id."""
        self.counts: Counter[TransactionStatus] = Counter()
        """Number of transactional ids by transaction state."""

    def take_effects(self) -> TransactionEffects:
        """Return and clear the effects (writes, responses, marker orders) decided since the last
        call."""
        effects, self._effects = self._effects, ShardEffects()
        return effects

    # ---- loading

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the shard's log. Raises CorruptDataError if the record cannot be
        read."""
        said = read_state_record(key, value)
        if said is None:
            raise CorruptDataError("a key of a later version")
        transactional_id, facts = said
        self._drop(transactional_id)
        if facts is not None:
            self._put(Transaction(transactional_id, facts))

    def _put(self, transaction: Transaction) -> None:
        self.transactions[transaction.transactional_id] = transaction
        self.counts[transaction.facts.status] += 1

    def _drop(self, transactional_id: str) -> None:
        transaction = self.transactions.pop(transactional_id, None)
        if transaction is not None:
            self.counts[transaction.facts.status] -= 1

    def _apply(self, transaction: Transaction, facts: TransactionFacts) -> None:
        self.counts[transaction.facts.status] -= 1
        transaction.apply(facts)
        self.counts[facts.status] += 1

    def resume(self, now: Instant) -> Iterator[None]:
        """Send again, in steps, the markers of transactions that an earlier coordinator left in a
        Prepare state."""
        for at, transaction in enumerate(list(self.transactions.values())):
            if transaction.facts.status in PREPARED:
                self._send_markers(transaction, now)
            if at % LOOKED_AT_PER_STEP == 0:
                yield

    # ---- requests

    def init_producer(
        self,
        transactional_id: str,
        expected: NamedProducer | None,
        *,
        timeout_ms: int,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Assign a producer id and epoch to a producer. `responder` is called with a NamedProducer
        or an error code."""
        transaction = self.transactions.get(transactional_id)
        try:
            if not 0 < timeout_ms <= self._config.timeout_ms_max:
                raise RefusedError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
            if transaction is None:
                transaction = self._new_transaction(transactional_id, timeout_ms, now)
            facts = decide_init(
                transaction,
                expected,
                timeout_ms=timeout_ms,
                server_version=self._server_version(),
                take_id=self._take_id,
                now_ms=now.wall_ms,
            )
        except RefusedError as refusal:
            self._effects.answers.append((responder, refusal.code))
            return
        answer: Any = NamedProducer(facts.producer_id, facts.producer_epoch)
        if facts.status is not TransactionStatus.EMPTY:
            # The open transaction is aborted first, at an epoch that no client gets.
            answer = ErrorCode.CONCURRENT_TRANSACTIONS
        self._write(transaction, facts, responder, answer)

    def _new_transaction(self, transactional_id: str, timeout_ms: int, now: Instant) -> Transaction:
        facts = TransactionFacts(
            producer_id=self._take_id(), timeout_ms=timeout_ms, last_update_ms=now.wall_ms
        )
        made = Transaction(transactional_id, facts)
        self._put(made)
        return made

    def add(
        self,
        transactional_id: str,
        producer: NamedProducer,
        partitions: Collection[TopicPartition],
        *,
        client_version: int,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Add partitions to the open transaction of a transactional id, or begin a transaction.
        `responder` is called with an error code."""
        transaction = self.transactions.get(transactional_id)
        try:
            facts = decide_add(
                transaction,
                producer,
                partitions,
                client_version=client_version,
                now_ms=now.wall_ms,
            )
        except RefusedError as refusal:
            self._effects.answers.append((responder, refusal.code))
            return
        if facts is None:
            self._effects.answers.append((responder, ErrorCode.NONE))
        else:
            assert transaction is not None
            self._write(transaction, facts, responder, ErrorCode.NONE)

    def verify(
        self,
        transactional_id: str,
        producer: NamedProducer,
        partitions: Collection[tuple[str, int]],
        *,
        responder: Responder,
    ) -> None:
        """Verify that partitions belong to the open transaction of a transactional id.
        `responder` is called with one error code for all partitions, or with one error code for
        each partition."""
        answer: dict[tuple[str, int], ErrorCode] | ErrorCode
        try:
            answer = verified(self.transactions.get(transactional_id), producer, partitions)
        except RefusedError as refusal:
            answer = refusal.code
        self._effects.answers.append((responder, answer))

    def end(
        self,
        transactional_id: str,
        producer: NamedProducer,
        *,
        is_commit: bool,
        client_version: int,
        responder: Responder,
        now: Instant,
    ) -> None:
        """Commit or abort the open transaction of a transactional id. `responder` is called with an
        error code, or the NamedProducer for the next transaction."""
        transaction = self.transactions.get(transactional_id)
        try:
            facts = decide_end(
                transaction,
                producer,
                is_commit=is_commit,
                client_version=client_version,
                take_id=self._take_id,
                now_ms=now.wall_ms,
            )
        except RefusedError as refusal:
            self._effects.answers.append((responder, refusal.code))
            return
        assert transaction is not None
        if facts is None:
            again = NamedProducer(transaction.facts.producer_id, transaction.facts.producer_epoch)
            self._effects.answers.append((responder, again))
        else:
            self._write(transaction, facts, responder, NamedProducer(*facts.identity_after_end))

    # ---- time

    def abort_timed_out(self, now: Instant) -> Iterator[None]:
        """Abort transactions that have been open for longer than their timeout, in steps."""
        for at, transaction in enumerate(list(self.transactions.values())):
            if is_timed_out(transaction, now.wall_ms):
                try:
                    facts = decide_fence(
                        transaction,
                        server_version=self._server_version(),
                        take_id=self._take_id,
                        now_ms=now.wall_ms,
                    )
                except RefusedError:
                    continue  # No producer id is available; the next check tries again.
                logger.info(
                    "%s is aborted: its transaction was open for longer than %d ms",
                    transaction.transactional_id,
                    facts.timeout_ms,
                )
                self._write(transaction, facts, None, None)
            if at % LOOKED_AT_PER_STEP == 0:
                yield

    def expire(self, now: Instant) -> Iterator[None]:
        """Delete transactional ids that were unused for their expiration time, in steps."""
        oldest_ms = now.wall_ms - self._config.id_expiration_ms
        expired = []
        for at, transaction in enumerate(list(self.transactions.values())):
            is_idle = transaction.facts.status in IDLE and transaction.pending is None
            if is_idle and transaction.facts.last_update_ms <= oldest_ms:
                transaction.prepare_expiry()
                expired.append(transaction)
            if len(expired) == FORGOTTEN_PER_WRITE:
                self._forget(expired)
                expired = []
            if at % LOOKED_AT_PER_STEP == 0:
                yield
        if expired:
            self._forget(expired)

    def _forget(self, expired: list[Transaction]) -> None:
        def on_committed(now: Instant) -> None:
            for transaction in expired:
                self._drop(transaction.transactional_id)

        def on_refused() -> None:
            for transaction in expired:
                transaction.give_up()

        records = [state_record(transaction.transactional_id, None) for transaction in expired]
        self._effects.writes.append(
            StateWrite(
                records=records,
                timeout_ms=UNANSWERED_TIMEOUT_MS,
                on_committed=on_committed,
                on_refused=on_refused,
            )
        )

    # ---- writes, markers

    def _write(
        self,
        transaction: Transaction,
        facts: TransactionFacts,
        responder: Responder | None,
        answer: Any,
    ) -> None:
        def on_committed(now: Instant) -> None:
            self._apply(transaction, facts)
            if facts.status in PREPARED:
                self._send_markers(transaction, now)

        def on_refused() -> None:
            transaction.give_up()
            if transaction.facts.producer_epoch == NO_PRODUCER_EPOCH:
                self._drop(transaction.transactional_id)

        self._effects.writes.append(
            StateWrite(
                records=[self._record(transaction, facts)],
                timeout_ms=facts.timeout_ms,
                on_committed=on_committed,
                on_refused=on_refused,
                responder=responder,
                answer=answer,
            )
        )

    def _record(self, transaction: Transaction, facts: TransactionFacts) -> CoordinatorRecord:
        return state_record(transaction.transactional_id, facts, self._server_version())

    def _send_markers(self, transaction: Transaction, now: Instant) -> None:
        transaction.begin_completion()
        facts = transaction.facts
        if not facts.partitions:
            self._complete(transaction, now)
            return
        self._effects.orders.append(
            MarkerOrder(
                transaction.transactional_id,
                producer_id=facts.producer_id,
                producer_epoch=facts.producer_epoch,
                is_commit=facts.status is TransactionStatus.PREPARE_COMMIT,
                transaction_version=facts.client_version,
                partitions=facts.partitions,
                state_partition=self.index,
                coordinator_epoch=self._coordinator_epoch,
            )
        )

    def on_marked(
        self, order: MarkerOrder, partitions: Collection[TopicPartition], now: Instant
    ) -> None:
        """Record the partitions of a transaction that have received their marker. The last
        partition completes the transaction."""
        transaction = self.transactions[order.transactional_id]
        order.missing.difference_update(partitions)
        transaction.remove_marked(partitions)
        if not order.missing:
            self._complete(transaction, now)

    def _complete(self, transaction: Transaction, now: Instant) -> None:
        facts = transaction.completed_facts(now.wall_ms)

        def on_committed(now: Instant) -> None:
            self._apply(transaction, facts)
            self._effects.completed.append(transaction.transactional_id)

        self._effects.writes.append(
            StateWrite(
                records=[self._record(transaction, facts)],
                timeout_ms=UNANSWERED_TIMEOUT_MS,
                on_committed=on_committed,
                # The transaction stays pending, since there is no other outcome.
                on_refused=lambda: self._uncompleted.append(transaction),
            )
        )

    @property
    def uncompleted_count(self) -> int:
        """Number of transactions whose completion could not be appended to the log."""
        return len(self._uncompleted)

    def complete_again(self, now: Instant) -> None:
        """Retry the completions of transactions that could not be appended to the log."""
        uncompleted, self._uncompleted = self._uncompleted, []
        for transaction in uncompleted:
            self._complete(transaction, now)

    # ---- queries

    def is_completing(self, transactional_id: str) -> bool:
        """Return True while the transactional id's transaction is being completed: its markers or
        its last record are being written."""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and transaction.pending in COMPLETED

    def described(self, transactional_id: str) -> TransactionFacts:
        """Return the committed state of a transactional id.

        Raises RefusedError with TRANSACTIONAL_ID_NOT_FOUND if the id is unknown.
        """
        transaction = self.transactions.get(transactional_id)
        if (
            transaction is None
            or transaction.pending is TransactionStatus.DEAD
            or transaction.facts.producer_epoch == NO_PRODUCER_EPOCH
        ):
            raise RefusedError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return transaction.facts

    @property
    def open_count(self) -> int:
        """Number of transactions in this shard that are open or ending."""
        return sum(count for status, count in self.counts.items() if status not in IDLE)
