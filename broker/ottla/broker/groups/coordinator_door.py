"""What the handlers need of a coordinator, and how one answer is put together of many.  Pure."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.groups.offset_store import OwnBatch
from ottla.broker.groups.shard import GroupShard
from ottla.broker.logs.write_txn_markers import TransactionEnd
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.storage.verification import VerificationGuard

ServedT = TypeVar("ServedT", covariant=True)


class ShardDoor(Protocol[ServedT]):
    """What is needed of a coordinator, be it of groups or of transactions."""

    def perform(
        self,
        key: str,
        asker: Asker,
        action: Callable[[ServedT, Instant], None],
        *,
        is_write: bool = False,
    ) -> None:
        """Do something in the shard of a key; the asker is told if that is not possible here.

        `is_write` refuses at once what could not be committed now.
        """
        ...

    def shard_of(self, key: str) -> ServedT:
        """Return the shard of a key, to be read only.  Raises RefusedError if it is not here."""
        ...

    def shards(self) -> Iterator[ServedT]:
        """Yield all that is served here, to be read only."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether some of what this broker coordinates is not known yet."""
        ...


class CoordinatorDoor(ShardDoor[GroupShard], Protocol):
    """What is needed of the group coordinator."""

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
