"""Limits of connections, from the file and the dynamic settings of a node, and the metadata
publisher that applies their changes. Pure.

The precedence is Kafka's: dynamic setting of this node, dynamic cluster-wide setting, the node's
file, default. Brokers and controllers apply the limits alike.
"""

from collections.abc import Callable
from typing import Any

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.settings.connections import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    ConnectionBounds,
    ConnectionConfig,
    listener_values,
)
from ottla.model.settings.declare import Definition, definitions
from ottla.node.admin.describe_configs import CLUSTER_DEFAULT


def value_in_force(
    image: MetadataImage, node_id: NodeId, definition: Definition, config: object
) -> Any:
    """Return the effective value of a node's dynamic setting. `config` contains the value from the
    node's settings file, or else the default."""
    assert definition.is_dynamic
    for name in (str(node_id), CLUSTER_DEFAULT):
        text = image.config(BROKER_RESOURCE, name).get(definition.key)
        if text is None:
            continue
        try:
            return definition.value_of(text)
        except ConfigError:
            # A release with other bounds accepted the value; settings_without_effect warns of it.
            continue
    return getattr(config, definition.field_name)


def connection_bounds(
    image: MetadataImage, node_id: NodeId, config: ConnectionConfig
) -> ConnectionBounds:
    """Return the effective limits of a node's connections, including the limits of each listener
    that has limits of its own."""
    texts = dict(config.texts_by_listener)
    for name in (CLUSTER_DEFAULT, str(node_id)):
        texts.update(image.config(BROKER_RESOURCE, name))

    def in_force(key: str) -> Any:
        return value_in_force(image, node_id, definitions(ConnectionConfig)[key], config)

    return ConnectionBounds(
        count_max=in_force(MAX_CONNECTIONS),
        count_max_per_ip=in_force(MAX_CONNECTIONS_PER_IP),
        count_max_of_ips=dict(in_force(MAX_CONNECTIONS_PER_IP_OVERRIDES)),
        rate_max=in_force(MAX_CONNECTION_CREATION_RATE),
        count_max_of_listeners=dict(listener_values(texts, MAX_CONNECTIONS)),
        rate_max_of_listeners=dict(listener_values(texts, MAX_CONNECTION_CREATION_RATE)),
    )


class ConnectionBoundsPublisher:
    """Metadata publisher that applies each change of the limits on a node's connections."""

    def __init__(
        self,
        node_id: NodeId,
        config: ConnectionConfig,
        apply: Callable[[ConnectionBounds], None],
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._apply = apply
        self._applied = connection_bounds(EMPTY, node_id, config)

    @property
    def name(self) -> str:
        """Name of this metadata publisher in fault reports."""
        return "bounds of connections"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the limits of connections in a new metadata image if they have changed."""
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            bounds = connection_bounds(image, self._node_id, self._config)
            if bounds != self._applied:
                self._applied = bounds
                self._apply(bounds)
