"""Writes of the coordinator that wait until they are committed.  Pure."""

from collections.abc import Callable
from typing import TypeAlias

from ottla.broker.network.purgatory import WaitingEntry
from ottla.broker.replicas.partition import Partition
from ottla.broker.transactions.transaction_shard import StateWrite
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, Offset

E = ErrorCode

TOO_LARGE_CODE = E.UNKNOWN_SERVER_ERROR
"""What a producer is told whose record is too large for the log."""

OnEnd: TypeAlias = Callable[[StateWrite, ErrorCode], None]


class StateCommit(WaitingEntry):
    """One write that waits for the high watermark.

    `on_end` is called with what became of it: REQUEST_TIMED_OUT where that is not known yet.
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
        """End once it is known what became of the records."""
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
        """Report that it is not known yet."""
        self._on_end(self.write, E.REQUEST_TIMED_OUT)

    def on_fault(self, fault: Exception) -> None:
        """Report that what follows the commit met a bug of ours."""
        self._on_end(self.write, E.UNKNOWN_SERVER_ERROR)


class CommittedUpTo(WaitingEntry):
    """Calls `on_news` once: when what it waits for has moved, or at its deadline."""

    __slots__ = ("_on_news",)
    kind = "TransactionLoad"

    def __init__(self, on_news: Callable[[], None]) -> None:
        super().__init__()
        self._on_news = on_news

    def try_complete(self) -> bool:
        """End: something has moved."""
        self._on_news()
        return True

    def on_expire(self) -> None:
        """End: it is time to look again."""
        self._on_news()

    def on_fault(self, fault: Exception) -> None:
        """End."""
        self._on_news()


class CompletionWait(CommittedUpTo):
    """An add that waits until the transaction before it is complete."""

    __slots__ = ()
    kind = "AddPartitionsToTxn"
