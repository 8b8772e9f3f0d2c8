"""Metadata publisher that reports when all other publishers have applied a metadata image in which
this broker is unfenced."""

import trio

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId


class Readiness:
    """The last metadata publisher of a broker. It reports when all publishers have applied a
    metadata image in which this broker is unfenced."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.is_introduced = trio.Event()
        self.is_active = trio.Event()

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "readiness"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Set the event `is_introduced`. If this broker is unfenced in the new metadata image, also
        set the event `is_active`."""
        self.is_introduced.set()
        if image.is_active(self._node_id):
            self.is_active.set()
