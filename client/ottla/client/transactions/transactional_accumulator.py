"""Buffered records of a transactional producer, by partition. All of them belong to the open
transaction.

Pure. This is an accumulator whose batches are transactional. With the protocol EXPLICIT, batches
wait until the coordinator has added their partition. If a record cannot be delivered, the
transaction cannot be committed, and all waiting records fail as well. Invariants, in addition to
the invariants of `accumulator` and `transaction_flow`:
- NothingOutside: no record is accepted outside of a transaction.
"""

from collections.abc import Callable, Sequence

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.partition_queue import PartitionQueue, ProducerBatch
from ottla.client.produce.record_run import RecordRun
from ottla.client.transactions.transaction_flow import (
    PRODUCE_ADDS_FROM,
    TransactionFlow,
    TransactionProtocol,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.limits import INT16_MAX
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch_builder import EncodedHeaders, Headers


def outside() -> RefusedError:
    """Return the error for a record that the application sends outside of a transaction."""
    return RefusedError(
        ErrorCode.INVALID_TXN_STATE,
        "a producer with a transactional.id sends within `async with producer.transaction():`",
    )


class TransactionalAccumulator(Accumulator):
    """Buffered batches of a producer with a transactional id, by partition."""

    is_transactional = True

    def __init__(
        self, config: ProducerConfig, flow: TransactionFlow, on_wanted: Callable[[], None]
    ) -> None:
        super().__init__(config, ends_at_failure=True)
        self._flow = flow
        self._on_wanted = on_wanted
        """Function to call when a partition has to be added to the transaction."""
        self.refusal = outside()

    @property
    def is_identity_due(self) -> bool:
        """Always False. A transactional producer keeps its epoch during a transaction, and requests
        a new epoch only between transactions."""
        return False

    @property
    def has_open(self) -> bool:
        """True if any batch is neither delivered nor failed."""
        return any(not queue.is_empty for queue in self._queues.values())

    def open(self) -> None:
        """Start to accept the records of a new transaction. The previous transaction must have
        ended."""
        assert not self.has_open
        self.ended_by = self.refusal = None
        is_implicit = self._flow.protocol is TransactionProtocol.IMPLICIT
        self.produce_version_max = INT16_MAX if is_implicit else PRODUCE_ADDS_FROM - 1

    def close(self) -> None:
        """Accept no further records. Records that are already buffered are still sent."""
        self.refusal = outside()

    def require_abort(self, why: RefusedError) -> None:
        """Fail all waiting records with the error `why`, and send no further records in this
        transaction."""
        if self.ended_by is None:
            self.ended_by = why
            self.refusal = self.refusal or why
        self._fail_what_follows()

    def become(self, identity: ProducerIdentity) -> None:
        """Use a new producer id and epoch. The sequences of all partitions start at 0 again."""
        assert not self.has_open
        super().become(identity)

    def append(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | EncodedHeaders,
        now_ms: int,
    ) -> tuple[ProducerBatch, bool]:
        """Buffer one record, and request that its partition is added to the transaction. Returns
        the record's batch, and True if the batch is new."""
        found = super().append(partition, timestamp_ms, key, value, headers, now_ms)
        if self._flow.want(partition):
            self._on_wanted()
        return found

    def extend(
        self, partition: TopicPartition, timestamp_ms: int, run: RecordRun, now_ms: int
    ) -> bool:
        """Buffer as many records of a run as fit into one batch, and request that their partition
        is added to the transaction.

        Returns True if the batch is new.
        """
        is_new = super().extend(partition, timestamp_ms, run, now_ms)
        if self._flow.want(partition):
            self._on_wanted()
        return is_new

    def drain(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[ProducerBatch]:
        """Mark batches that are ready as in flight, and return them. After this call, the
        transaction must be ended at the coordinator."""
        taken = super().drain(partitions, now_ms)
        if taken:
            self._flow.on_sent()
        return taken

    def _is_ready(self, queue: PartitionQueue, now_ms: int) -> bool:
        return self._flow.admits(queue.partition) and super()._is_ready(queue, now_ms)

    def _fail_what_follows(self) -> None:
        if self.ended_by is not None:
            self.fail_waiting(self.ended_by.code, self.ended_by.message)
