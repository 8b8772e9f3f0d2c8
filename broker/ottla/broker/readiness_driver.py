"""The publisher that shows when every other publisher has the image with this broker unfenced."""

import trio

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.model.ids import NodeId


class Readiness:
    """The last publisher: tells when the image that everybody follows has us as unfenced."""

    def __init__(self, node_id: NodeId) -> None:
        self._node_id = node_id
        self.is_introduced = trio.Event()
        self.is_active = trio.Event()

    @property
    def name(self) -> str:
        """Name of this publisher in reports of faults."""
        return "readiness"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Look for this broker in the image."""
        self.is_introduced.set()
        if image.is_active(self._node_id):
            self.is_active.set()
