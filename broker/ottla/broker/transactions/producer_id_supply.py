"""Interface to the source of new producer ids, for the transaction coordinator and its handlers.
Pure."""

from typing import Protocol

from ottla.model.ids import ProducerId


class ProducerIdSupply(Protocol):
    """Interface to a source of producer ids, which returns each id once."""

    @property
    def has_some(self) -> bool:
        """True if a producer id is available."""
        ...

    def take(self) -> ProducerId:
        """Return a producer id that was not returned before.

        Raises RefusedError with COORDINATOR_LOAD_IN_PROGRESS if no id is available.
        """
        ...

    async def wait(self, timeout_s: float) -> None:
        """Wait until a producer id is available, or until the timeout in seconds."""
        ...
