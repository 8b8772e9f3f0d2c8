"""Bounds of connections of a node, which change while it runs."""

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.ids import NodeId
from ottla.model.settings.connections import ConnectionBounds, ConnectionConfig
from ottla.node.admin.connection_bounds import ConnectionBoundsPublisher

CONFIG = ConnectionConfig(max_connections=500)


def image_with(settings: dict[str, dict[str, str]]) -> MetadataImage:
    return MetadataImage(
        configs=PersistentMap(
            {(BROKER_RESOURCE, name): PersistentMap(texts) for name, texts in settings.items()}
        )
    )


async def test_connection_bounds_are_published_when_one_of_them_changes() -> None:
    published: list[ConnectionBounds] = []
    publisher = ConnectionBoundsPublisher(NodeId(1), CONFIG, published.append)
    now = EMPTY
    for settings in (
        {"": {"producer.id.expiration.ms": "9"}},
        {"": {"max.connections.per.ip": "7", "max.connections.per.ip.overrides": "10.0.0.1:9"}},
        {"1": {"listener.name.external.max.connections": "3"}},
        {"1": {"listener.name.External.max.connection.creation.rate": "4"}},
        {},
    ):
        image = image_with(settings)
        await publisher.publish(MetadataDelta.between(now, image), image)
        now = image
    assert published == [
        ConnectionBounds(count_max=500, count_max_per_ip=7, count_max_of_ips={"10.0.0.1": 9}),
        ConnectionBounds(count_max=500, count_max_of_listeners={"external": 3}),
        ConnectionBounds(count_max=500, rate_max_of_listeners={"external": 4}),
        ConnectionBounds(count_max=500),
    ]
