"""What the handlers need of the transaction coordinator.  Pure."""

from collections.abc import Callable
from typing import Protocol

from ottla.broker.groups.coordinator_door import ShardDoor
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


class TransactionDoor(ShardDoor[TransactionShard], Protocol):
    """What is needed of the transaction coordinator."""

    def when_completed(self, transactional_id: str, proceed: Callable[[], None]) -> bool:
        """Call back once the transaction that is being ended is complete, or takes too long.

        Returns False where none is being ended.
        """
        ...
