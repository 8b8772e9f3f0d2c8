"""One transactional id: what is known of it, and every step that it may take.  Pure.

What is known are frozen `TransactionFacts`, exactly what a record of `__transaction_state` holds
and the last producer epoch beside it.  A step is prepared here, written by the driver, and applied
when it is committed; until then `pending` names where it leads, and no other step may begin.

Invariants: OneStepAtATime, FactsAreCommitted (what `facts` says is in the committed log),
NoMarkerBeforePrepare (markers are asked for from `facts` of a Prepare state alone).
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
"""Only markers carry this epoch: what fences a producer is always one above what it has."""
EXHAUSTED_EPOCH = PRODUCER_EPOCH_MAX - 1
"""From this epoch on a producer gets another id, whose epochs begin at 0."""

NO_START = -1
NO_TIMEOUT_MS = INT32_MAX
"""The timeout of transactions that another resource manager ends (KIP-939)."""

EPOCH_BUMPS_FROM = 2
"""The transaction.version from which on every end of a transaction bumps the epoch (KIP-890)."""


class TransactionStatus(IntEnum):
    """Kafka's states, numbered as its records do; the last two are never stored."""

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
        """The name that DescribeTransactions and ListTransactions show."""
        return self.name.title().replace("_", "")


S = TransactionStatus

IDLE = frozenset((S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT))
"""States in which no transaction is open."""
PREPARED = frozenset((S.PREPARE_COMMIT, S.PREPARE_ABORT))
"""States in which the outcome is decided, and markers are under way."""
COMPLETED = frozenset((S.COMPLETE_COMMIT, S.COMPLETE_ABORT))
"""States in which every partition has its marker."""
STORED = frozenset((*IDLE, *PREPARED, S.ONGOING))

ALLOWED_FROM: dict[TransactionStatus, frozenset[TransactionStatus]] = {
    S.EMPTY: IDLE,
    S.ONGOING: IDLE | {S.ONGOING},
    S.PREPARE_COMMIT: frozenset((S.ONGOING,)),
    # Nothing needs to be open for the abort of a client whose adds may have happened unseen.
    S.PREPARE_ABORT: IDLE | {S.ONGOING},
    S.COMPLETE_COMMIT: frozenset((S.PREPARE_COMMIT,)),
    S.COMPLETE_ABORT: frozenset((S.PREPARE_ABORT,)),
    S.DEAD: IDLE,
}
"""Where each state is entered from.

Kafka's PrepareEpochFence is not among them: to fence a producer and to abort what it had open is
one step here, which is written as PrepareAbort.
"""


@frozen(kw_only=True)
class TransactionFacts:
    """What a record says of a transactional id."""

    producer_id: ProducerId
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    """Its producer id before the last step; it differs after an overflow of epochs alone."""
    next_producer_id: ProducerId = NO_PRODUCER_ID
    """In a Prepare state whose epoch overflows: the id that follows with Complete."""
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, by which a retry is known.  It is not stored: a retry that
    comes after a failover is fenced."""
    timeout_ms: int
    status: TransactionStatus = S.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_START
    last_update_ms: int
    client_version: int = 0
    """The transaction.version by whose rules the client took its last step."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next bump needs another producer id."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    @property
    def identity_after_end(self) -> tuple[ProducerId, int]:
        """The producer id and epoch that a client of version 2 uses for its next transaction."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch


class Transaction:
    """What is committed of one transactional id, and the step that is not committed yet."""

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
        """Begin a producer's life with an epoch of the same producer id."""
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
        """Begin a producer's life with another producer id: the epochs of the old one are used."""
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
        """Add partitions; the first ones begin a transaction."""
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
        """Decide the outcome as the client asked for it."""
        facts = self.facts
        epoch, last_epoch = facts.producer_epoch, facts.last_producer_epoch
        if client_version >= EPOCH_BUMPS_FROM:
            # At the highest epoch an abort goes on with it, so that the id is of use again.
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
            # What is aborted without a partition has begun and ends now.
            start_ms=facts.start_ms if facts.status is S.ONGOING else now_ms,
        )

    def prepare_fence(
        self, *, server_version: int, next_producer_id: ProducerId, now_ms: int
    ) -> TransactionFacts:
        """Abort what is open, at an epoch that its producer does not have."""
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
        """Let no other step begin while the markers are under way."""
        assert self.pending is None
        assert self.facts.status in PREPARED
        self.pending = (
            S.COMPLETE_COMMIT if self.facts.status is S.PREPARE_COMMIT else S.COMPLETE_ABORT
        )

    def completed_facts(self, now_ms: int) -> TransactionFacts:
        """Return what is written when every partition has its marker."""
        assert self.pending in COMPLETED
        facts = self.facts
        producer_id, epoch = facts.producer_id, facts.producer_epoch
        if facts.client_version >= EPOCH_BUMPS_FROM:
            # The client never sees the highest epoch: its last one stays the one before.
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
        """Begin to forget the transactional id."""
        self._begin(S.DEAD)

    # ---- their ends

    def apply(self, facts: TransactionFacts) -> None:
        """Take what is committed now."""
        assert self.pending is facts.status
        self.facts, self.pending = facts, None

    def give_up(self) -> None:
        """Stay as it was: the log did not take the step."""
        assert self.pending is not None
        self.pending = None

    def remove_marked(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget partitions that have their marker."""
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
