"""One transactional id: its committed state, and the steps that may follow. Pure.

The state is an immutable `TransactionFacts`: the content of a record of `__transaction_state`, and
the previous producer epoch. A step is a change of this state: `Transaction` prepares it, the
coordinator writes its record, and the step is applied when the record is committed. Until then
`pending` is the state after the step, and no other step may begin.

Invariants: OneStepAtATime, FactsAreCommitted (the content of `facts` is in the committed log),
NoMarkerBeforePrepare (markers are ordered only from `facts` in a Prepare state).
"""

from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from typing import Any

from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.model.limits import INT32_MAX
from ottla.model.values import frozen

NO_PRODUCER_EPOCH = -1
PRODUCER_EPOCH_MAX = 32_767
"""Highest producer epoch. Only transaction markers use it. A producer with this epoch could not be
fenced, because fencing needs a higher epoch."""
EXHAUSTED_EPOCH = PRODUCER_EPOCH_MAX - 1
"""Producer epoch at which a producer gets a new producer id. The epochs of the new id begin at
0."""

NO_START = -1
NO_TIMEOUT_MS = INT32_MAX
"""Transaction timeout in milliseconds that disables the timeout, because another resource manager
ends the transaction (KIP-939)."""

IMPLICIT_VERSION = 2
"""Feature level transaction.version from which partition leaders, not clients, add the partitions
of a transaction."""

EPOCH_BUMPS_FROM = 2
"""First feature level transaction.version in which every end of a transaction bumps the producer
epoch (KIP-890)."""


class TransactionStatus(IntEnum):
    """Kafka's transaction states, numbered as in its records. The last two are never written."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Name of the transaction state in DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")


S = TransactionStatus

IDLE = frozenset((S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT))
"""Transaction states in which no transaction is open."""
PREPARED = frozenset((S.PREPARE_COMMIT, S.PREPARE_ABORT))
"""Transaction states in which the outcome is decided and markers are being written."""
COMPLETED = frozenset((S.COMPLETE_COMMIT, S.COMPLETE_ABORT))
"""Transaction states in which all partitions have their markers."""
STORED = frozenset((*IDLE, *PREPARED, S.ONGOING))

ALLOWED_FROM: dict[TransactionStatus, frozenset[TransactionStatus]] = {
    S.EMPTY: IDLE,
    S.ONGOING: IDLE | {S.ONGOING},
    S.PREPARE_COMMIT: frozenset((S.ONGOING,)),
    # An abort needs no open transaction, since its client's adds may have failed or succeeded
    # without a response.
    S.PREPARE_ABORT: IDLE | {S.ONGOING},
    S.COMPLETE_COMMIT: frozenset((S.PREPARE_COMMIT,)),
    S.COMPLETE_ABORT: frozenset((S.PREPARE_ABORT,)),
    S.DEAD: IDLE,
}
"""For each transaction state, the states from which it may be entered.

Kafka's state PrepareEpochFence is missing. In Ottla, fencing a producer and aborting its open
transaction is one step, which is written as PrepareAbort.
"""


@frozen(kw_only=True)
class TransactionFacts:
    """State of one transactional id, as its record in `__transaction_state` stores it."""

    producer_id: ProducerId
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """Producer id before the last state change. It differs from the current id only after the
    epochs of the old id were used up."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """Producer id that replaces the current producer id when the transaction is complete, if the
    epochs are used up. It is set in a Prepare state."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """Producer epoch before the last increase, from which the coordinator recognises a retry. The
    log does not store it, so a retry after a failover is fenced."""
    timeout_ms: int
    status: TransactionStatus = S.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_START
    last_update_ms: int
    client_version: int = 0
    """Feature level transaction.version of the client's last request."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """True if the next bump of the producer epoch requires a new producer id."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def identity_after_end(self) -> tuple[ProducerId, int]:
        """Producer id and epoch for the next transaction of a client whose feature level
        transaction.version is 2."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class Transaction:
    """Committed state of one transactional id, and its next state while that state is not
    committed."""

    __slots__ = ("facts", "pending", "transactional_id")

    def __init__(self, transactional_id: str, facts: TransactionFacts) -> None:
        self.transactional_id = transactional_id
        self.facts = facts
        self.pending: TransactionStatus | None = None

    def __repr__(self) -> str:
        return f"Transaction({self.transactional_id}, {self.facts.status.title})"

    # ---- steps

    def prepare_epoch_bump(
        self, *, timeout_ms: int, epoch: int, last_epoch: int, now_ms: int
    ) -> TransactionFacts:
        """Prepare the step that assigns an epoch of the current producer id to a producer. Returns
        the transactional id's state after the step."""
        assert 0 <= epoch < PRODUCER_EPOCH_MAX
        assert epoch in (self.facts.producer_epoch, self.facts.producer_epoch + 1)
        return self._prepare(
            S.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_START,
            last_update_ms=now_ms,
        )

    def prepare_rotation(
        self, producer_id: ProducerId, *, timeout_ms: int, is_last_kept: bool, now_ms: int
    ) -> TransactionFacts:
        """Prepare the step that assigns a new producer id, because the epochs of the old id are
        used up. Returns the state after the step."""
        assert producer_id != self.facts.producer_id
        return self._prepare(
            S.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.facts.producer_epoch if is_last_kept else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_START,
            last_update_ms=now_ms,
        )

    def prepare_add(
        self, partitions: Iterable[TopicPartition], *, client_version: int, now_ms: int
    ) -> TransactionFacts:
        """Prepare the step that adds partitions to the transaction. The first partitions begin a
        transaction. Returns the state after the step."""
        is_first = self.facts.status in IDLE
        return self._prepare(
            S.ONGOING,
            partitions=self.facts.partitions.union(partitions),
            start_ms=now_ms if is_first else self.facts.start_ms,
            last_update_ms=now_ms,
            client_version=client_version,
        )

    def prepare_end(
        self,
        *,
        is_commit: bool,
        client_version: int,
        next_producer_id: ProducerId,
        now_ms: int,
    ) -> TransactionFacts:
        """Prepare the step that commits or aborts the transaction at the client's request. Returns
        the state after the step."""
        facts = self.facts
        epoch, last_epoch = facts.producer_epoch, facts.last_producer_epoch
        if client_version >= EPOCH_BUMPS_FROM:
            # At the highest epoch an abort keeps that epoch, so that the id stays usable.
            assert is_commit <= (epoch < PRODUCER_EPOCH_MAX)
            epoch, last_epoch = min(epoch + 1, PRODUCER_EPOCH_MAX), epoch
        else:
            assert facts.status is S.ONGOING
        return self._prepare_end(
            is_commit,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            client_version=client_version,
            last_update_ms=now_ms,
            # An abort without partitions begins and ends at once.
            start_ms=facts.start_ms if facts.status is S.ONGOING else now_ms,
        )

    def prepare_fence(
        self, *, server_version: int, next_producer_id: ProducerId, now_ms: int
    ) -> TransactionFacts:
        """Prepare the step that aborts the open transaction and increases the producer epoch, so
        that the current producer is fenced. Returns the state after the step."""
        assert self.facts.status is S.ONGOING
        if server_version >= EPOCH_BUMPS_FROM:
            return self.prepare_end(
                is_commit=False,
                client_version=server_version,
                next_producer_id=next_producer_id,
                now_ms=now_ms,
            )
        return self._prepare_end(
            False,
            producer_epoch=min(self.facts.producer_epoch + 1, PRODUCER_EPOCH_MAX),
            last_producer_epoch=NO_PRODUCER_EPOCH,
            next_producer_id=NO_PRODUCER_ID,
            client_version=server_version,
            last_update_ms=now_ms,
        )

    def begin_completion(self) -> None:
        """Refuse other steps of this transactional id until the transaction's markers and its last
        record are written."""
        assert self.pending is None
        assert self.facts.status in PREPARED
        self.pending = (
            S.COMPLETE_COMMIT if self.facts.status is S.PREPARE_COMMIT else S.COMPLETE_ABORT
        )

    def completed_facts(self, now_ms: int) -> TransactionFacts:
        """Return the state to write to the log when every partition of the transaction has its
        marker."""
        assert self.pending in COMPLETED
        facts = self.facts
        producer_id, epoch = facts.producer_id, facts.producer_epoch
        if facts.client_version >= EPOCH_BUMPS_FROM:
            # The client never receives the highest epoch; it keeps the previous one.
            producer_id, epoch = facts.identity_after_end
        return replace(
            facts,
            status=self.pending,
            previous_producer_id=facts.producer_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=now_ms,
        )

    def prepare_expiry(self) -> None:
        """Prepare the deletion of the transactional id, which has expired."""
        self._begin(S.DEAD)

    # ---- ends of steps

    def apply(self, facts: TransactionFacts) -> None:
        """Set the committed state of the transactional id. No step is pending afterwards."""
        assert self.pending is facts.status
        self.facts, self.pending = facts, None

    def give_up(self) -> None:
        """Drop the pending state change, since its append to the log failed."""
        assert self.pending is not None
        self.pending = None

    def remove_marked(self, partitions: Iterable[TopicPartition]) -> None:
        """Remove from the transaction the partitions that have received their marker."""
        assert self.facts.status in PREPARED
        self.facts = replace(self.facts, partitions=self.facts.partitions.difference(partitions))

    def _prepare_end(self, is_commit: bool, **changes: Any) -> TransactionFacts:
        return self._prepare(S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT, **changes)

    def _prepare(self, status: TransactionStatus, **changes: Any) -> TransactionFacts:
        self._begin(status)
        return replace(
            self.facts,
            **{"status": status, "previous_producer_id": self.facts.producer_id, **changes},
        )

    def _begin(self, status: TransactionStatus) -> None:
        assert self.pending is None
        assert self.facts.status in ALLOWED_FROM[status]
        self.pending = status
