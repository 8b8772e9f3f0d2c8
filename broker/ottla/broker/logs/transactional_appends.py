"""Verifies the first batch of a transaction in a partition, before the batch is appended.

Pure except for awaiting another broker's coordinator. First the partition issues a verification
guard. Then the coordinator is asked whether the partition belongs to the transaction. The append
must present the guard. A transaction marker that arrives in the meantime revokes the guard
(`storage/producers/verification.py`). Further batches of the same transaction in the partition need
no verification.
"""

from collections.abc import Coroutine, Iterable
from struct import Struct
from typing import Any, Protocol
from uuid import UUID

from ottla.broker.logs.verification_requests import (
    Outcome,
    TransactionOperation,
    operation_of_produce,
    produce_code,
)
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.model.seams import Clock
from ottla.node.network.steps import StepPace, Steps
from ottla.storage.producers.verification import UNGUARDED, VerificationGuard
from ottla.wire.apis import PRODUCE_TOPIC_IDS_FROM
from ottla.wire.batch import MAGIC, TRANSACTIONAL_FLAG
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

_peek = Struct(">16xb4xh20xqhi").unpack_from
"""Function that unpacks fields of a record batch's header: magic, attributes, producer id, producer
epoch, base sequence."""


class TransactionCoordinators(Protocol):
    """Interface through which a partition leader sends requests to transaction coordinators."""

    @property
    def is_verifying(self) -> bool:
        """True if, before an append, the coordinator must confirm that the client has added the
        partition to its transaction."""
        ...

    def ask(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: Iterable[tuple[str, int]],
        timeout_ms: int,
    ) -> Outcome | Coroutine[Any, Any, Outcome]:
        """Ask the coordinator of a transaction to verify or add partitions. Returns the
        coordinator's error code for each partition, or a coroutine that waits for these codes."""
        ...


class NoCoordinators:
    """Implementation of `TransactionCoordinators` for a broker that has no connections to other
    brokers. Every coordinator counts as unavailable."""

    is_verifying = True

    def ask(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: Iterable[tuple[str, int]],
        timeout_ms: int,
    ) -> Outcome:
        """Return the error code for an unavailable coordinator, for each partition."""
        return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class AppendVerdict:
    """Result of verifying a Produce request's transactional batches: verification guards (proofs to
    present at the append) and refusals, by partition."""

    __slots__ = ("_guards", "_refusals", "producer")

    def __init__(self) -> None:
        self._guards: dict[tuple[UUID, int], VerificationGuard] = {}
        self._refusals: dict[tuple[UUID, int], RefusedError] = {}
        self.producer: tuple[int, int] | None = None
        """Producer id and epoch of all transactional batches in the request, or None if there are
        no such batches."""

    def guard(self, partition: Partition) -> VerificationGuard | None:
        """Return the verification guard (the proof to present at the append) of a partition's
        batch, or None if the batch needs no guard.

        Raises RefusedError if the batch may not be appended.
        """
        if not (self._refusals or self._guards):
            return None  # the usual case: the transactions are open
        key = partition.key
        refusal = self._refusals.get(key)
        if refusal is not None:
            raise refusal
        return self._guards.get(key)

    def give(self, partition: Partition, guard: VerificationGuard) -> None:
        """Set the verification guard (the proof to present at the append) for the batch of a
        partition."""
        self._guards[partition.key] = guard

    def refuse(self, partition: Partition, refusal: RefusedError) -> None:
        """Set the error with which every transactional batch of a partition is refused."""
        self._refusals[partition.key] = refusal


Asked = dict[tuple[str, int], Partition]
"""Partitions that the transaction coordinator is asked to verify, by topic name and partition
index."""


class TransactionalAppends:
    """Verification, by transaction coordinators, of the transactional batches in Produce
    requests."""

    def __init__(
        self, *, table: PartitionTable, clock: Clock, coordinators: TransactionCoordinators
    ) -> None:
        self._table = table
        self._clock = clock
        self._coordinators = coordinators

    def begin(self, request: ProduceRequest, version: int) -> Steps[tuple[AppendVerdict, Asked]]:
        """Start the verification of a Produce request's transactional batches. Returns the guards
        and refusals known so far, and the partitions that need the coordinator's confirmation.

        Raises RefusedError if the batches have several producers.
        """
        operation = operation_of_produce(version)
        is_asked = operation.is_add or self._coordinators.is_verifying
        now_ms = self._clock.wall_ms()
        verdict = AppendVerdict()
        asked: Asked = {}
        pace = StepPace()
        for topic in request.topic_data:
            for data in topic.partition_data:
                self._look_at(verdict, asked, topic, data, version, is_asked, now_ms)
                if pace.is_due():
                    yield
        return verdict, asked

    def _look_at(
        self,
        verdict: AppendVerdict,
        asked: Asked,
        topic: TopicProduceData,
        data: PartitionProduceData,
        version: int,
        is_asked: bool,
        now_ms: int,
    ) -> None:
        records = data.records
        if records is None or len(records) < BATCH_HEADER_BYTES:
            return  # The append refuses it later.
        assert isinstance(records, memoryview | bytes | bytearray)
        magic, attributes, producer_id, epoch, sequence = _peek(records)
        if magic != MAGIC or not attributes & TRANSACTIONAL_FLAG:
            return
        if verdict.producer not in (None, (producer_id, epoch)):
            raise RefusedError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                "Transactional records contained more than one producer ID",
            )
        verdict.producer = producer_id, epoch
        try:
            if version >= PRODUCE_TOPIC_IDS_FROM:
                partition = self._table.find_by_id(topic.topic_id, data.index)
            else:
                partition = self._table.find(topic.name, data.index)
        except RefusedError:
            return
        if not is_asked:
            verdict.give(partition, UNGUARDED)
            return
        try:
            guard = partition.begin_verification(
                producer_id,
                epoch=epoch,
                sequence=sequence,
                is_bumping=operation_of_produce(version).is_add,
                now_ms=now_ms,
            )
        except RefusedError as refusal:
            verdict.refuse(partition, refusal)
            return
        if guard is not None:
            verdict.give(partition, guard)
            asked[partition.topic, partition.index] = partition

    def complete(
        self, verdict: AppendVerdict, asked: Asked, request: ProduceRequest, version: int
    ) -> Coroutine[Any, Any, None] | None:
        """Request the verification of the partitions in `asked` from the transaction coordinator,
        and add its answers to `verdict`.

        Returns None if the answers are known at once, as those of this broker's own coordinator
        are. Otherwise returns a coroutine that waits for them.
        """
        assert request.transactional_id is not None
        assert verdict.producer is not None
        operation = operation_of_produce(version)
        outcome = self._coordinators.ask(
            request.transactional_id,
            producer_id=verdict.producer[0],
            epoch=verdict.producer[1],
            operation=operation,
            partitions=asked,
            timeout_ms=request.timeout_ms,
        )
        if isinstance(outcome, dict):
            _note(outcome, verdict, asked, operation)
            return None
        return _note_later(outcome, verdict, asked, operation)


async def _note_later(
    outcome: Coroutine[Any, Any, Outcome],
    verdict: AppendVerdict,
    asked: Asked,
    operation: TransactionOperation,
) -> None:
    _note(await outcome, verdict, asked, operation)


def _note(
    outcome: Outcome, verdict: AppendVerdict, asked: Asked, operation: TransactionOperation
) -> None:
    for key, code in outcome.items():
        if code is not ErrorCode.NONE:
            refusal = RefusedError(produce_code(code, operation), _explanation(code))
            verdict.refuse(asked[key], refusal)


def _explanation(code: ErrorCode) -> str:
    return f"the transaction coordinator answered {code.name} for this partition"
