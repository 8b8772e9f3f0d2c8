"""The protocol of the components of a process that receive every new image, in order of
installation."""

from typing import Protocol

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage


class Publisher(Protocol):
    """A component of a process that receives each new metadata image.

    `publish` is called after every committed batch, from one task, never twice for the same image.
    The delta of the first call starts from the empty image, and so contains everything.
    """

    @property
    def name(self) -> str:
        """Name of this metadata publisher in error reports and in metrics."""
        ...

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Use the new image in this component. `delta` lists the changes since the previous
        call."""
        ...
