"""What the handlers need of the transaction coordinator.  Pure."""

from typing import Protocol, TypeAlias

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


TransactionDoor: TypeAlias = ShardDoor[TransactionShard]
"""What is needed of the transaction coordinator."""
