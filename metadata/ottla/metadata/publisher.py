"""Who is told of every new image, in the order of installation."""

from typing import Protocol

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage


class Publisher(Protocol):
    """A part of a process that follows the metadata.

    `publish` is called after every committed batch, from one task, never twice for the same
    image.  The first call brings everything: its delta starts from the empty image.
    """

    @property
    def name(self) -> str:
        """Return how faults and metrics call this publisher."""
        ...

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Bring this part up to `image`; `delta` says what differs from the last one."""
        ...
