"""Decides requests about a transactional id by the tables of KIP-98, KIP-360 and KIP-890. Pure.

The rules depend on the version of each request, never on the cluster's version. Clients of
transaction.version 2 send EndTxn 5; their producer epoch is bumped at the end of every transaction.
A refusal is a RefusedError with Kafka's code. Every other decision begins a step, such as a commit,
and returns the state of the transaction after that step (`TransactionFacts`).
"""

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from ottla.broker.transactions.transaction import (
    EPOCH_BUMPS_FROM,
    EXHAUSTED_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_TIMEOUT_MS,
    PREPARED,
    PRODUCER_EPOCH_MAX,
    Transaction,
    TransactionFacts,
    TransactionStatus,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

S = TransactionStatus

TakeProducerId: TypeAlias = Callable[[], ProducerId]
"""Function that returns an unused producer id. Raises RefusedError with
COORDINATOR_LOAD_IN_PROGRESS if no id is available."""


class NamedProducer(NamedTuple):
    """Producer id and producer epoch that a request names."""

    producer_id: ProducerId
    epoch: int


# ---- InitProducerId


def decide_init(
    transaction: Transaction,
    expected: NamedProducer | None,
    *,
    timeout_ms: int,
    server_version: int,
    take_id: TakeProducerId,
    now_ms: int,
) -> TransactionFacts:
    """Begin the step that assigns a producer id and epoch to a producer, or that aborts the
    producer's open transaction.

    Returns the state after the step. After an abort, the state is PrepareAbort, and the client
    retries. Raises RefusedError with CONCURRENT_TRANSACTIONS while another step is pending or the
    transaction is being ended, or with PRODUCER_FENCED for an outdated producer.
    """
    facts = transaction.facts
    if transaction.pending is not None:
        raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _is_known(facts, expected):
        raise RefusedError(ErrorCode.PRODUCER_FENCED)
    if facts.status in PREPARED:
        raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if facts.status is S.ONGOING:
        return decide_fence(
            transaction, server_version=server_version, take_id=take_id, now_ms=now_ms
        )
    if facts.is_epoch_exhausted and (expected is None or expected.epoch == facts.producer_epoch):
        return transaction.prepare_rotation(
            take_id(), timeout_ms=timeout_ms, is_last_kept=expected is not None, now_ms=now_ms
        )
    epoch, last_epoch = _next_epoch(facts, expected)
    return transaction.prepare_epoch_bump(
        timeout_ms=timeout_ms, epoch=epoch, last_epoch=last_epoch, now_ms=now_ms
    )


def _is_known(facts: TransactionFacts, expected: NamedProducer) -> bool:
    """Return True if an InitProducerId request names the current producer id, or the previous
    producer id with its last epoch. Returns True for any producer if no epoch was assigned yet."""
    is_overflowed = (
        expected.producer_id == facts.previous_producer_id and expected.epoch >= EXHAUSTED_EPOCH
    )
    is_new = facts.producer_epoch == NO_PRODUCER_EPOCH
    return is_new or expected.producer_id == facts.producer_id or is_overflowed


def _next_epoch(facts: TransactionFacts, expected: NamedProducer | None) -> tuple[int, int]:
    """Return the producer epoch to assign, and the epoch by which the coordinator recognises a
    retry of the InitProducerId request."""
    epoch = facts.producer_epoch
    if expected is None:
        return epoch + 1, NO_PRODUCER_EPOCH
    if not facts.is_epoch_exhausted and (epoch == NO_PRODUCER_EPOCH or expected.epoch == epoch):
        return epoch + 1, epoch
    if expected.epoch == facts.last_producer_epoch:
        return epoch, facts.last_producer_epoch
    raise RefusedError(ErrorCode.PRODUCER_FENCED)


def decide_fence(
    transaction: Transaction, *, server_version: int, take_id: TakeProducerId, now_ms: int
) -> TransactionFacts:
    """Begin the step that aborts the open transaction of a transactional id and fences its
    producer. Returns the state after the step."""
    is_overflow = server_version >= EPOCH_BUMPS_FROM and transaction.facts.is_epoch_exhausted
    return transaction.prepare_fence(
        server_version=server_version,
        next_producer_id=take_id() if is_overflow else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Return True if a transaction has been open for longer than its timeout."""
    facts = transaction.facts
    return (
        facts.status is S.ONGOING
        and transaction.pending is None
        and facts.timeout_ms != NO_TIMEOUT_MS
        and facts.start_ms + facts.timeout_ms < now_ms
    )


# ---- AddPartitionsToTxn, AddOffsetsToTxn


def decide_add(
    transaction: Transaction | None,
    producer: NamedProducer,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> TransactionFacts | None:
    """Begin the step that adds partitions to the transaction of a transactional id. Returns the
    state after the step, or None if all of the partitions are in the transaction already."""
    # Check this before the producer id: after an overflow of epochs the new id may be pending.
    if transaction is not None and transaction.pending is not None:
        raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
    known = _of_producer(transaction, producer)
    facts = known.facts
    if facts.status is S.ONGOING and facts.partitions.issuperset(partitions):
        return None
    return known.prepare_add(partitions, client_version=client_version, now_ms=now_ms)


def verified(
    transaction: Transaction | None,
    producer: NamedProducer,
    partitions: Collection[tuple[str, int]],
) -> dict[tuple[str, int], ErrorCode]:
    """Return an error code for each partition. It is NONE if the partition belongs to the
    producer's open transaction."""
    facts = _of_producer(transaction, producer).facts
    return {
        one: ErrorCode.NONE if one in facts.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for one in partitions
    }


def _of_producer(transaction: Transaction | None, producer: NamedProducer) -> Transaction:
    if transaction is None or transaction.facts.producer_id != producer.producer_id:
        raise RefusedError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.facts.producer_epoch != producer.epoch:
        raise RefusedError(ErrorCode.PRODUCER_FENCED)
    if transaction.facts.status in PREPARED:
        raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return transaction


# ---- EndTxn

DONE = "done"
"""Result of an EndTxn rule for a request that was served before. The coordinator returns the same
answer again."""
PREPARE = "prepare"
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS

EndRule: TypeAlias = str | ErrorCode

END_RULES: dict[TransactionStatus, tuple[EndRule, EndRule]] = {
    # status: abort, commit
    S.EMPTY: (INVALID, INVALID),
    S.ONGOING: (PREPARE, PREPARE),
    S.PREPARE_COMMIT: (INVALID, CONCURRENT),
    S.PREPARE_ABORT: (CONCURRENT, INVALID),
    S.COMPLETE_COMMIT: (INVALID, DONE),
    S.COMPLETE_ABORT: (DONE, INVALID),
}
"""Rules of EndTxn versions 0 to 4, by the current state of the transaction: the rule for an abort,
and the rule for a commit."""

BUMPING_END_RULES: dict[TransactionStatus, tuple[EndRule, EndRule, EndRule, EndRule]] = {
    # status: abort retried, abort, commit retried, commit
    S.EMPTY: (FENCED, PREPARE, FENCED, INVALID),
    S.ONGOING: (FENCED, PREPARE, FENCED, PREPARE),
    S.PREPARE_COMMIT: (INVALID, FENCED, CONCURRENT, FENCED),
    S.PREPARE_ABORT: (CONCURRENT, FENCED, FENCED, FENCED),
    S.COMPLETE_COMMIT: (INVALID, PREPARE, DONE, INVALID),
    S.COMPLETE_ABORT: (DONE, PREPARE, FENCED, INVALID),
}
"""Rules of EndTxn 5. The epoch of a request shows whether it is a retry, or the end of the next
transaction.

A commit at the epoch before an abort is not a retry of the abort. The coordinator has then aborted
without a request, as after a timeout. Kafka returns PRODUCER_FENCED since KAFKA-20785, which
Streams survives.  4.4.0 still returns INVALID_TXN_STATE, which ends a Streams thread.
"""


def decide_end(
    transaction: Transaction | None,
    producer: NamedProducer,
    *,
    is_commit: bool,
    client_version: int,
    take_id: TakeProducerId,
    now_ms: int,
) -> TransactionFacts | None:
    """Begin the step that commits or aborts a transaction. Returns the state after the step, or
    None if the request was served before."""
    if transaction is None:
        raise RefusedError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_bumping = client_version >= EPOCH_BUMPS_FROM
    if is_bumping:
        rule = _bumping_rule(transaction, producer, is_commit)
    else:
        rule = _rule(transaction, producer, is_commit)
    if isinstance(rule, ErrorCode):
        raise RefusedError(rule)
    if rule == DONE:
        return None
    facts = transaction.facts
    if is_bumping and is_commit and facts.producer_epoch == PRODUCER_EPOCH_MAX:
        raise RefusedError(ErrorCode.PRODUCER_FENCED)  # No epoch is left with which to commit it.
    is_overflow = is_bumping and facts.is_epoch_exhausted
    return transaction.prepare_end(
        is_commit=is_commit,
        client_version=client_version,
        next_producer_id=take_id() if is_overflow else NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def _rule(transaction: Transaction, producer: NamedProducer, is_commit: bool) -> EndRule:
    facts = transaction.facts
    if producer.producer_id != facts.producer_id:
        raise RefusedError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if producer.epoch != facts.producer_epoch:
        raise RefusedError(ErrorCode.PRODUCER_FENCED)
    if transaction.pending is not None:
        raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return END_RULES[facts.status][is_commit]


def _bumping_rule(transaction: Transaction, producer: NamedProducer, is_commit: bool) -> EndRule:
    facts = transaction.facts
    if transaction.pending is not None:
        raise RefusedError(ErrorCode.CONCURRENT_TRANSACTIONS)
    is_overflow_retry = (
        facts.previous_producer_id == producer.producer_id
        and producer.epoch == EXHAUSTED_EPOCH
        and facts.producer_epoch == 0
    )
    if producer.producer_id != facts.producer_id and not is_overflow_retry:
        raise RefusedError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    # A client before transaction version 2 ends its transactions at one epoch.  The epoch below is
    # that of a producer that it fenced.  That producer would otherwise get the epoch of the live
    # one.
    is_bumped = facts.client_version >= EPOCH_BUMPS_FROM
    is_retry = is_overflow_retry or (is_bumped and facts.producer_epoch == producer.epoch + 1)
    if not is_retry and facts.producer_epoch != producer.epoch:
        raise RefusedError(ErrorCode.PRODUCER_FENCED)
    return BUMPING_END_RULES[facts.status][2 * is_commit + (not is_retry)]
