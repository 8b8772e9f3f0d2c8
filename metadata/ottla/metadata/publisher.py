"""Protocol of the components of a process that receive every new metadata image. They receive it in
the order in which they were installed."""

from typing import Protocol

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage


class Publisher(Protocol):
    """A component of a process that receives each new metadata image.

    One task calls `publish` after each committed batch of metadata records, and only once for each
    image. The delta of the first call starts from the empty image, so it lists everything.
    """

    @property
    def name(self) -> str:
        """Name of this metadata publisher in error reports and in metrics."""
        ...

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply a new metadata image to this component. `delta` lists the changes since the
        previous call."""
        ...
