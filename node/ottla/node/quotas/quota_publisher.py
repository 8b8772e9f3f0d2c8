"""Applies the quotas in the metadata to the clients and connections of this node.

`QuotaPublisher` is a metadata publisher, and reads an image only if a quota has changed.
"""

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.node.network.connection_quotas import IP, ConnectionQuotas
from ottla.node.quotas.request_quotas import RequestQuotas


class QuotaPublisher:
    """Metadata publisher that applies the quotas for clients and for IP addresses."""

    def __init__(self, quotas: RequestQuotas, connections: ConnectionQuotas) -> None:
        self._quotas = quotas
        self._connections = connections

    @property
    def name(self) -> str:
        """Name of this metadata publisher in fault reports."""
        return "quotas"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the quotas in a new metadata image if they have changed. Past usage still
        counts."""
        changed = delta.changed_quotas
        if changed:
            self._quotas.set_quotas(image.client_quotas, changed)
            if any(entity[0].type == IP for entity in changed):
                self._connections.set_ip_limits(image.client_quotas)
