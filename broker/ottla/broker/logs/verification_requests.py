"""Queues, builds and evaluates verification requests from a partition leader to a transaction
coordinator (KIP-890).

Pure. Before the first batch of a transaction is appended, the leader asks the coordinator whether
the partition belongs to the transaction. Producers of newer versions do not add the partition to
the transaction, so the leader asks the coordinator to add it. Verifications with the same
transactional id and epoch are merged. If the epochs of two verifications differ, the verification
with the older epoch is refused.
"""

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from ottla.model.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse

QUESTIONS_PER_REQUEST = 500
"""Maximum number of transactions in one verification request to a coordinator. A smaller value
costs more requests. A larger value occupies the coordinator longer."""

VERIFICATIONS_MAX = 10_000
"""Maximum number of transaction verifications queued for one coordinator. If the queue is full, a
further verification is refused and its client retries."""

PRODUCE_ABORTABLE_FROM, PRODUCE_ADDS_FROM = 11, 12
OFFSETS_ABORTABLE_FROM, OFFSETS_ADD_FROM = 4, 5

Outcome: TypeAlias = dict[tuple[str, int], ErrorCode]
"""Outcome of the verification of a transaction: an error code for each topic and partition."""


class TransactionOperation(Enum):
    """Kind of transaction verification, which follows from the version of the client's request."""

    VERIFY_FOR_OLD = "verify, for a client that does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "add"

    @property
    def is_add(self) -> bool:
        """True if the transaction coordinator adds missing partitions to the transaction."""
        return self is TransactionOperation.ADD


def operation_of_produce(version: int) -> TransactionOperation:
    """Return the kind of transaction verification that a version of the Produce request
    requires."""
    if version >= PRODUCE_ADDS_FROM:
        return TransactionOperation.ADD
    is_abortable = version >= PRODUCE_ABORTABLE_FROM
    return TransactionOperation.VERIFY if is_abortable else TransactionOperation.VERIFY_FOR_OLD


def operation_of_offsets(version: int) -> TransactionOperation:
    """Return the kind of transaction verification that a version of the TxnOffsetCommit request
    requires."""
    if version >= OFFSETS_ADD_FROM:
        return TransactionOperation.ADD
    is_abortable = version >= OFFSETS_ABORTABLE_FROM
    return TransactionOperation.VERIFY if is_abortable else TransactionOperation.VERIFY_FOR_OLD


_RETRIED_AS_REPLICAS = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)


def produce_code(code: ErrorCode, operation: TransactionOperation) -> ErrorCode:
    """Return the error code in a Produce response for an error code of the transaction coordinator.

    Every temporary error becomes NOT_ENOUGH_REPLICAS, because old clients retry this code without
    refreshing metadata.
    """
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.is_add:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _code_for_all(code, operation)


def offsets_code(code: ErrorCode, operation: TransactionOperation) -> ErrorCode:
    """Return the error code in a TxnOffsetCommit response for an error code of the transaction
    coordinator.

    CONCURRENT_TRANSACTIONS is returned unchanged in every version.
    """
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Clients retry this code without looking up the group coordinator again.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _code_for_all(code, operation)


def _code_for_all(code: ErrorCode, operation: TransactionOperation) -> ErrorCode:
    if code in _RETRIED_AS_REPLICAS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionOperation.VERIFY_FOR_OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code


class TransactionVerification:
    """Partitions of one transaction that its coordinator must verify, and the callback for the
    outcome."""

    __slots__ = (
        "_on_answer",
        "epoch",
        "operation",
        "partitions",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: Iterable[tuple[str, int]],
        on_answer: Callable[[Outcome], None],
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.epoch = epoch
        self.operation = operation
        self.partitions = list(partitions)
        self._on_answer = on_answer

    @property
    def subject(self) -> tuple[int, bool]:
        """Producer id, and whether the coordinator adds missing partitions to the transaction. The
        coordinator handles each combination of these two values separately."""
        return self.producer_id, self.operation.is_add

    def answer(self, outcome: Outcome) -> None:
        """Report the outcome of the verification for each partition. A partition without an outcome
        gets the error code of an unknown partition."""
        unknown = ErrorCode.NETWORK_EXCEPTION
        self._on_answer({each: outcome.get(each, unknown) for each in self.partitions})

    def answer_all(self, code: ErrorCode) -> None:
        """Report one error code as the outcome of the verification for every partition."""
        self._on_answer(dict.fromkeys(self.partitions, code))

    def answer_failed(self, error: ErrorCode) -> None:
        """Report to every partition that the verification request failed. Either no coordinator was
        reached, or the coordinator does not support verification."""
        is_too_old = error is ErrorCode.UNSUPPORTED_VERSION
        if is_too_old and not self.operation.is_add:
            self.answer_all(ErrorCode.NONE)  # No verification, as in old releases.
        else:
            self.answer_all(ErrorCode.NETWORK_EXCEPTION if is_too_old else error)


class VerificationQueue:
    """Transaction verifications queued for one coordinator, in order of arrival."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, list[TransactionVerification]] = {}
        """Queued transaction verifications by transactional id. Verifications with the same id have
        the same epoch."""

    def __len__(self) -> int:
        """Return the number of transaction verifications queued for the coordinator."""
        return self._count

    def add(self, verification: TransactionVerification) -> None:
        """Add a transaction verification to the queue. If a queued verification has the same
        transactional id and another epoch, the verification with the older epoch is refused as
        fenced.

        Several verifications may have the same epoch, because a client may send one request per
        partition.
        """
        older = self._waiting.get(verification.transactional_id, [])
        if older and older[0].epoch > verification.epoch:
            verification.answer_all(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        if older and older[0].epoch < verification.epoch:
            del self._waiting[verification.transactional_id]
            self._count -= len(older)
            for each in older:
                each.answer_all(ErrorCode.INVALID_PRODUCER_EPOCH)
        if self._count >= VERIFICATIONS_MAX:
            verification.answer_all(ErrorCode.NETWORK_EXCEPTION)
            return
        self._waiting.setdefault(verification.transactional_id, []).append(verification)
        self._count += 1

    def remove(self, verification: TransactionVerification) -> None:
        """Remove a transaction verification from the queue if its caller no longer waits for the
        outcome."""
        waiting = self._waiting.get(verification.transactional_id, [])
        if verification in waiting:
            waiting.remove(verification)
            self._count -= 1
            if not waiting:
                del self._waiting[verification.transactional_id]

    def take(self) -> list[TransactionVerification]:
        """Remove and return the transaction verifications for the next request to the coordinator.

        Responses identify a verification only by its transactional id. Verifications with the same
        id that differ in more than their partitions are therefore sent one after the other.
        """
        taken = []
        for transactional_id in list(self._waiting)[:QUESTIONS_PER_REQUEST]:
            waiting = self._waiting.pop(transactional_id)
            together = [each for each in waiting if each.subject == waiting[0].subject]
            if len(together) < len(waiting):
                self._waiting[transactional_id] = [
                    each for each in waiting if each.subject != waiting[0].subject
                ]
            taken += together
        self._count -= len(taken)
        return taken


def request_of(verifications: Iterable[TransactionVerification]) -> AddPartitionsToTxnRequest:
    """Return one request to a transaction coordinator for all of `verifications`. Verifications
    with the same transactional id must have the same subject (producer id and operation)."""
    together: dict[str, list[TransactionVerification]] = {}
    for verification in verifications:
        together.setdefault(verification.transactional_id, []).append(verification)
    return AddPartitionsToTxnRequest(
        transactions=[_transaction_of(each) for each in together.values()]
    )


def _transaction_of(verifications: list[TransactionVerification]) -> AddPartitionsToTxnTransaction:
    first = verifications[0]
    by_topic: dict[str, list[int]] = {}
    for topic, index in dict.fromkeys(each for one in verifications for each in one.partitions):
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=first.transactional_id,
        producer_id=first.producer_id,
        producer_epoch=first.epoch,
        verify_only=not first.operation.is_add,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in by_topic.items()
        ],
    )


def answer_each(
    verifications: Iterable[TransactionVerification], response: AddPartitionsToTxnResponse
) -> None:
    """Report to each transaction verification its error codes in the coordinator's response."""
    if response.error_code:
        for verification in verifications:
            verification.answer_all(_code_of(response.error_code))
        return
    found = {
        one.transactional_id: {
            (topic.name, each.partition_index): _code_of(each.partition_error_code)
            for topic in one.topic_results
            for each in topic.results_by_partition
        }
        for one in response.results_by_transaction
    }
    for verification in verifications:
        verification.answer(found.get(verification.transactional_id, {}))


def _code_of(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
