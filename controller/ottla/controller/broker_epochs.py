"""Check of the broker epoch in a broker's request."""

from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId


def registered(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """Return the registration of a broker that sends a request with a broker epoch.

    Raises RefusedError if the broker is not registered under this epoch.
    """
    broker = image.brokers.get(NodeId(broker_id))
    if broker is None:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered"
        )
    if broker.epoch != broker_epoch:
        raise RefusedError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Expected broker epoch {broker.epoch} for broker {broker_id}, but got {broker_epoch}",
        )
    return broker
