"""What the handlers need of the transaction coordinator.  Pure."""

from collections.abc import Callable, Iterator
from typing import Protocol

from ottla.broker.groups.effects import Asker, Instant
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.model.ids import ProducerId


class ProducerIdSupply(Protocol):
    """Where new producer ids come from."""

    @property
    def has_some(self) -> bool:
        """Whether an id is at hand."""
        ...

    def take(self) -> ProducerId:
        """Return an id that was never given; COORDINATOR_LOAD_IN_PROGRESS if none is at hand."""
        ...

    async def wait(self, timeout_s: float) -> None:
        """Return when an id is at hand, or none came."""
        ...


class TransactionDoor(Protocol):
    """What is needed of the transaction coordinator."""

    def perform(
        self,
        transactional_id: str,
        asker: Asker,
        action: Callable[[TransactionShard, Instant], None],
    ) -> None:
        """Do something to a transactional id here; the asker is told if that is not possible."""
        ...

    def shard_of(self, transactional_id: str) -> TransactionShard:
        """Return the shard of a transactional id, to be read only.

        Raises RefusedError if it is not coordinated here.
        """
        ...

    def shards(self) -> Iterator[TransactionShard]:
        """Yield all that is served here, to be read only."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether some transactions of this broker are not known yet."""
        ...
