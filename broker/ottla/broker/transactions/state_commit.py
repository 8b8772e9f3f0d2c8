"""Holds back the responses of the transaction coordinator until its writes are committed. Pure."""

from collections.abc import Callable
from typing import TypeAlias

from ottla.broker.coordinators.commit_wait import StateChangeWait
from ottla.broker.replicas.partition import Partition
from ottla.broker.transactions.transaction_shard import StateWrite
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, Offset
from ottla.node.network.purgatory import WaitingEntry

E = ErrorCode

TOO_LARGE_CODE = E.UNKNOWN_SERVER_ERROR
"""Error code for a producer whose transaction record is too large for the coordinator's log."""

OnEnd: TypeAlias = Callable[[StateWrite, ErrorCode], None]


class StateCommit(WaitingEntry):
    """Write of the transaction coordinator that waits in the purgatory until it is below the high
    watermark.

    `on_end` is called with the outcome as an error code. The code is REQUEST_TIMED_OUT if the
    outcome is still unknown at the timeout.
    """

    __slots__ = ("_end_offset", "_epoch", "_on_end", "_partition", "write")
    kind = "TransactionCommit"

    def __init__(
        self,
        partition: Partition,
        epoch: Epoch,
        end_offset: Offset,
        write: StateWrite,
        on_end: OnEnd,
    ) -> None:
        super().__init__()
        self._partition = partition
        self._epoch = epoch
        self._end_offset = end_offset
        self._on_end = on_end
        self.write = write

    def try_complete(self) -> bool:
        """End the wait for the commit if the written records are committed or lost. Returns whether
        the wait has ended."""
        partition = self._partition
        log = partition.log
        if log is None or not partition.is_leader or partition.leader_epoch != self._epoch:
            self._on_end(self.write, E.NOT_LEADER_OR_FOLLOWER)
        elif log.high_watermark >= self._end_offset:
            self._on_end(self.write, E.NONE)
        elif log.failure is not None:
            self._on_end(self.write, E.KAFKA_STORAGE_ERROR)
        else:
            return False
        return True

    def on_expire(self) -> None:
        """Report at the timeout that the outcome of the coordinator's write is unknown."""
        self._on_end(self.write, E.REQUEST_TIMED_OUT)

    def on_fault(self, fault: Exception) -> None:
        """Report the outcome of the coordinator's write as unknown, after an unexpected error in
        the steps after the commit."""
        self._on_end(self.write, E.UNKNOWN_SERVER_ERROR)


class CompletionWait(StateChangeWait):
    """AddPartitionsToTxn request that waits in the purgatory until the producer's previous
    transaction is complete."""

    __slots__ = ()
    kind = "AddPartitionsToTxn"
