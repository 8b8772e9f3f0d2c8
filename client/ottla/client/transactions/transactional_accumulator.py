"""The records of one transaction at a time, by partition.

Pure.  An accumulator whose batches are transactional; by the protocol EXPLICIT they wait until the
coordinator has added their partition.  The first record that is not delivered dooms the
transaction: what waits fails with it.  Invariants: NothingOutside (no record is accepted outside a
transaction), those of `accumulator` and `transaction_flow`.
"""

from collections.abc import Callable, Sequence

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.producer_lane import Lane, ProducerBatch
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
    """Return the refusal of a record outside a transaction."""
    return RefusedError(
        ErrorCode.INVALID_TXN_STATE,
        "a producer with a transactional.id sends within `async with producer.transaction():`",
    )


class TransactionalAccumulator(Accumulator):
    """The lanes of a producer of transactions."""

    is_transactional = True

    def __init__(
        self, config: ProducerConfig, flow: TransactionFlow, on_wanted: Callable[[], None]
    ) -> None:
        super().__init__(config, ends_at_failure=True)
        self._flow = flow
        self._on_wanted = on_wanted
        """Called when a partition is to be added to the transaction."""
        self.refusal = outside()

    @property
    def is_identity_due(self) -> bool:
        """False: a transaction keeps its epoch, and the next one is asked for between them."""
        return False

    @property
    def has_open(self) -> bool:
        """Whether a batch has no outcome yet."""
        return any(not lane.is_empty for lane in self._lanes.values())

    def open(self) -> None:
        """Accept records of a new transaction."""
        assert not self.has_open
        self.ended_by = self.refusal = None
        is_implicit = self._flow.protocol is TransactionProtocol.IMPLICIT
        self.produce_version_max = INT16_MAX if is_implicit else PRODUCE_ADDS_FROM - 1

    def close(self) -> None:
        """Accept nothing more; what was accepted is still sent."""
        self.refusal = outside()

    def doom(self, why: RefusedError) -> None:
        """Let everything that waits fail, and send nothing more of this transaction."""
        if self.ended_by is None:
            self.ended_by = why
            self.refusal = self.refusal or why
        self._fail_what_follows()

    def become(self, identity: ProducerIdentity) -> None:
        """Number from 0 on, under this id and epoch."""
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
        """Take one record; let its partition be added to the transaction."""
        found = super().append(partition, timestamp_ms, key, value, headers, now_ms)
        if self._flow.want(partition):
            self._on_wanted()
        return found

    def extend(
        self, partition: TopicPartition, timestamp_ms: int, run: RecordRun, now_ms: int
    ) -> bool:
        """Take what one batch takes of a run; let its partition be added to the transaction."""
        is_new = super().extend(partition, timestamp_ms, run, now_ms)
        if self._flow.want(partition):
            self._on_wanted()
        return is_new

    def drain(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[ProducerBatch]:
        """Take into flight what may leave now; from then on the transaction must be ended."""
        taken = super().drain(partitions, now_ms)
        if taken:
            self._flow.on_sent()
        return taken

    def _is_ready(self, lane: Lane, now_ms: int) -> bool:
        return self._flow.admits(lane.partition) and super()._is_ready(lane, now_ms)

    def _fail_what_follows(self) -> None:
        if self.ended_by is not None:
            self.fail_waiting(self.ended_by.code, self.ended_by.message)
