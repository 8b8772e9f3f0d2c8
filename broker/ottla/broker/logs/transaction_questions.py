"""What a leader of data asks a transaction coordinator, and what it makes of the answer (KIP-890).

Pure.  Before the first batch of a transaction is appended, its coordinator is asked whether the
partition belongs to it; a producer of a new version leaves it to this leader to add the partition.
Questions of one transactional id and epoch are asked as one; one of an older epoch is refused.
"""

from collections.abc import Callable, Iterable, Mapping
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
"""Transactions asked about at once.  Fewer cost more requests, more hold the coordinator longer."""

QUESTIONS_MAX = 10_000
"""Questions that wait for one coordinator; a further one is refused, and asks again later."""

PRODUCE_ABORTABLE_FROM, PRODUCE_ADDS_FROM = 11, 12
OFFSETS_ABORTABLE_FROM, OFFSETS_ADD_FROM = 4, 5

Outcome: TypeAlias = Mapping[tuple[str, int], ErrorCode]
"""What is answered for each topic and partition."""


class TransactionOperation(Enum):
    """What is asked, which the version of a client's request decides."""

    VERIFY_FOR_OLD = "verify, for a client that does not know TRANSACTION_ABORTABLE"
    VERIFY = "verify"
    ADD = "add"

    @property
    def is_add(self) -> bool:
        """Whether the partition is added where the transaction does not have it."""
        return self is TransactionOperation.ADD


def operation_of_produce(version: int) -> TransactionOperation:
    """Return what a Produce asks of the coordinator."""
    if version >= PRODUCE_ADDS_FROM:
        return TransactionOperation.ADD
    is_abortable = version >= PRODUCE_ABORTABLE_FROM
    return TransactionOperation.VERIFY if is_abortable else TransactionOperation.VERIFY_FOR_OLD


def operation_of_offsets(version: int) -> TransactionOperation:
    """Return what a TxnOffsetCommit asks of the coordinator."""
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
    """Return what a producer is told where the coordinator said `code`.

    Old clients retry NOT_ENOUGH_REPLICAS without asking for metadata, so it stands for whatever
    passes by itself.
    """
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and not operation.is_add:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return _told_to_all(code, operation)


def offsets_code(code: ErrorCode, operation: TransactionOperation) -> ErrorCode:
    """Return the code that a commit of offsets is answered with.

    CONCURRENT_TRANSACTIONS stays what it is, in every version.
    """
    if code is ErrorCode.NETWORK_EXCEPTION:
        # Clients ask again without looking for another coordinator of the group.
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return _told_to_all(code, operation)


def _told_to_all(code: ErrorCode, operation: TransactionOperation) -> ErrorCode:
    if code in _RETRIED_AS_REPLICAS:
        return ErrorCode.NOT_ENOUGH_REPLICAS
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.TRANSACTION_ABORTABLE and operation is TransactionOperation.VERIFY_FOR_OLD:
        return ErrorCode.INVALID_TXN_STATE
    return code


class TransactionQuestion:
    """One transaction's partitions, and who waits for what the coordinator says of them."""

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
        """Producer id, and whether partitions are added; the coordinator judges each apart."""
        return self.producer_id, self.operation.is_add

    def answer(self, outcome: Outcome) -> None:
        """Give the asker the codes of the partitions; one without a code is not known of."""
        unknown = ErrorCode.NETWORK_EXCEPTION
        self._on_answer({each: outcome.get(each, unknown) for each in self.partitions})

    def answer_all(self, code: ErrorCode) -> None:
        """Answer every partition with one code."""
        self._on_answer(dict.fromkeys(self.partitions, code))

    def answer_failed(self, error: ErrorCode) -> None:
        """Answer where no coordinator was reached, or one that cannot verify yet."""
        is_too_old = error is ErrorCode.UNSUPPORTED_VERSION
        if is_too_old and not self.operation.is_add:
            self.answer_all(ErrorCode.NONE)  # as before there was verification
        else:
            self.answer_all(ErrorCode.NETWORK_EXCEPTION if is_too_old else error)


class QuestionQueue:
    """The questions that wait for one coordinator, in the order in which they came."""

    __slots__ = ("_count", "_waiting")

    def __init__(self) -> None:
        self._count = 0
        self._waiting: dict[str, list[TransactionQuestion]] = {}
        """By transactional id; those of one are of one epoch."""

    def __len__(self) -> int:
        """Return the number of questions that wait."""
        return self._count

    def add(self, question: TransactionQuestion) -> None:
        """Have a question asked; of two with the same transactional id the older epoch is fenced.

        A client that sends a request for each partition asks several in one epoch.
        """
        older = self._waiting.get(question.transactional_id, [])
        if older and older[0].epoch > question.epoch:
            question.answer_all(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        if older and older[0].epoch < question.epoch:
            del self._waiting[question.transactional_id]
            self._count -= len(older)
            for each in older:
                each.answer_all(ErrorCode.INVALID_PRODUCER_EPOCH)
        if self._count >= QUESTIONS_MAX:
            question.answer_all(ErrorCode.NETWORK_EXCEPTION)
            return
        self._waiting.setdefault(question.transactional_id, []).append(question)
        self._count += 1

    def remove(self, question: TransactionQuestion) -> None:
        """Forget a question that is no longer waited for."""
        waiting = self._waiting.get(question.transactional_id, [])
        if question in waiting:
            waiting.remove(question)
            self._count -= 1
            if not waiting:
                del self._waiting[question.transactional_id]

    def take(self) -> list[TransactionQuestion]:
        """Return the questions of the next request, which wait here no longer.

        Answers name a transactional id and nothing else of the question: those of one id that
        differ in more than their partitions are asked one after the other.
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


def request_of(questions: Iterable[TransactionQuestion]) -> AddPartitionsToTxnRequest:
    """Return the request that asks them all; those of one transactional id are of one subject."""
    together: dict[str, list[TransactionQuestion]] = {}
    for question in questions:
        together.setdefault(question.transactional_id, []).append(question)
    return AddPartitionsToTxnRequest(
        transactions=[_transaction_of(each) for each in together.values()]
    )


def _transaction_of(questions: list[TransactionQuestion]) -> AddPartitionsToTxnTransaction:
    first = questions[0]
    by_topic: dict[str, list[int]] = {}
    for topic, index in dict.fromkeys(each for one in questions for each in one.partitions):
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
    questions: Iterable[TransactionQuestion], response: AddPartitionsToTxnResponse
) -> None:
    """Give each question what the coordinator said of it."""
    if response.error_code:
        for question in questions:
            question.answer_all(_code_of(response.error_code))
        return
    found = {
        one.transactional_id: {
            (topic.name, each.partition_index): _code_of(each.partition_error_code)
            for topic in one.topic_results
            for each in topic.results_by_partition
        }
        for one in response.results_by_transaction
    }
    for question in questions:
        question.answer(found.get(question.transactional_id, {}))


def _code_of(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
