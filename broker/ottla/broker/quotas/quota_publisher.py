"""Puts the quotas of the metadata in force on this broker.

A publisher: it looks at an image only where a quota changed.
"""

from ottla.broker.quotas.connection_quotas import IP, ConnectionQuotas
from ottla.broker.quotas.request_quotas import RequestQuotas
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage


class QuotaPublisher:
    """The publisher of quotas of clients and of addresses."""

    def __init__(self, quotas: RequestQuotas, connections: ConnectionQuotas) -> None:
        self._quotas = quotas
        self._connections = connections

    @property
    def name(self) -> str:
        """The name of this publisher in reports of faults."""
        return "quotas"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Put limits in force that changed; what clients used so far stays counted."""
        changed = delta.changed_quotas
        if changed:
            self._quotas.set_quotas(image.client_quotas, changed)
            if any(entity[0].type == IP for entity in changed):
                self._connections.set_ip_limits(image.client_quotas)
