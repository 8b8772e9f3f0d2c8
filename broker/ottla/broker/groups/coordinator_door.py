"""What the handlers need of the coordinator, and how one answer is put together of many.  Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.groups.offset_store import OwnBatch
from ottla.broker.groups.shard import GroupShard
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.storage.verification import VerificationGuard


class CoordinatorDoor(Protocol):
    """What is needed of the group coordinator."""

    def perform(
        self,
        group_id: str,
        asker: Asker,
        action: Callable[[GroupShard, Instant], None],
        *,
        is_write: bool = False,
    ) -> None:
        """Do something to a group here; `asker` is told if that is not possible."""
        ...

    def shard_of(self, group_id: str) -> GroupShard:
        """Return the shard of a group, to be read only; RefusedError if it is not here."""
        ...

    def shards(self) -> Iterator[GroupShard]:
        """Yield all that is served here, to be read only."""
        ...

    def begin_transaction(
        self, group_id: str, *, producer_id: int, epoch: int, is_bumping: bool
    ) -> tuple[TopicPartition, VerificationGuard | None]:
        """Return the partition of a group's offsets, and what they are appended with.

        Raises RefusedError if the group is not here, or the epoch is old.
        """
        ...

    def commit_in_transaction(
        self,
        group_id: str,
        asker: Asker,
        decide: Callable[[GroupShard, Instant], OwnBatch],
        guard: VerificationGuard | None,
    ) -> None:
        """Write offsets that wait for the end of their transaction; `asker` hears when it is so."""
        ...

    def end_transaction(
        self, index: int, end: TransactionEnd, asker: Callable[[ErrorCode], None]
    ) -> None:
        """End a transaction in a partition of the offsets; `asker` is called with the outcome."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether some groups of this broker are not known yet."""
        ...


class Gathering:
    """Waits for several answers, in whatever order they come, and passes them on in its own."""

    __slots__ = ("_answers", "_on_all", "_open_count")

    def __init__(self, count: int, on_all: Callable[[Sequence[Any]], None]) -> None:
        self._answers: list[Any] = [None] * count
        self._open_count = count
        self._on_all = on_all
        if count == 0:
            on_all([])

    def size_of(self, at: int) -> int:
        """Return how many entries the answer of one place has, 0 while it is open or a code."""
        answer = self._answers[at]
        return len(answer) if isinstance(answer, list) else 0

    def asker(self, at: int) -> Asker:
        """Return who takes the answer of one place."""

        def take(answer: Any) -> None:
            self._answers[at] = answer
            self._open_count -= 1
            if self._open_count == 0:
                self._on_all(self._answers)

        return take
