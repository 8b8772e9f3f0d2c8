"""Settings of this broker that change while it runs, and who is told of them.

Three publishers.  The order is Kafka's: dynamic setting of this broker, dynamic cluster-wide
setting, the broker's file, default.  Dynamic settings are:

* every `log.*`, `message.*`, `compression.*` and `min.insync.replicas` that gives topics their
  default: `replica_manager` puts it into force in all logs at once;
* `unclean.leader.election.enable`: the controller's elections;
* `producer.id.expiration.ms`: with the logs' settings, in `replica_manager`;
* `cordoned.log.dirs`: the log directories, through this publisher;
* the rates of throttled replication: its quotas, through this publisher;
* `log.cleaner.*` that is the broker's own: the log cleaner, through this publisher;
* `max.connection*`, of the broker and of single listeners: the quotas of connections;
* `listener.name.NAME.ssl.*` of certificates: what the listeners serve.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from ottla.broker.cluster.topic_settings import CLUSTER_DEFAULT
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.cleaner import CleanerConfig
from ottla.model.settings.connections import (
    MAX_CONNECTION_CREATION_RATE,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_IP,
    MAX_CONNECTIONS_PER_IP_OVERRIDES,
    ConnectionBounds,
    ConnectionConfig,
    listener_values,
)
from ottla.model.settings.declare import definitions

PARTITION_VERIFICATION = "transaction.partition.verification.enable"
LEADER_REPLICATION_RATE = "leader.replication.throttled.rate"
FOLLOWER_REPLICATION_RATE = "follower.replication.throttled.rate"
LOG_DIRS_MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
PRODUCER_ID_EXPIRATION_MS = "producer.id.expiration.ms"
CLEANER_SETTINGS: Mapping[str, str] = {
    key: definition.field_name
    for key, definition in definitions(CleanerConfig).items()
    if definition.is_dynamic
}
"""The log cleaner's dynamic settings, and its fields that hold them."""


def setting_in_force(image: MetadataImage, config: BrokerConfig, key: str) -> Any:
    """Return the value of one of the broker's own dynamic settings."""
    part: Any
    if key in CLEANER_SETTINGS:
        part, known = config.cleaner, definitions(CleanerConfig)
    elif key in (known := definitions(ConnectionConfig)):
        part = config.connections
    else:
        part, known = config, definitions(BrokerConfig)
    definition = known[key]
    assert definition.is_dynamic
    for name in (str(config.node_id), CLUSTER_DEFAULT):
        text = image.config(BROKER_RESOURCE, name).get(key)
        if text is None:
            continue
        try:
            return definition.value_of(text)
        except ConfigError:
            # A release with other bounds accepted it; settings_without_effect warns of it.
            continue
    return getattr(part, definition.field_name)


def connection_bounds(image: MetadataImage, config: BrokerConfig) -> ConnectionBounds:
    """Return the bounds of connections in force, those of single listeners too."""
    texts = dict(config.connections.texts_by_listener)
    for name in (CLUSTER_DEFAULT, str(config.node_id)):
        texts.update(image.config(BROKER_RESOURCE, name))
    in_force = partial(setting_in_force, image, config)
    return ConnectionBounds(
        count_max=in_force(MAX_CONNECTIONS),
        count_max_per_ip=in_force(MAX_CONNECTIONS_PER_IP),
        count_max_of_ips=dict(in_force(MAX_CONNECTIONS_PER_IP_OVERRIDES)),
        rate_max=in_force(MAX_CONNECTION_CREATION_RATE),
        count_max_of_listeners=dict(listener_values(texts, MAX_CONNECTIONS)),
        rate_max_of_listeners=dict(listener_values(texts, MAX_CONNECTION_CREATION_RATE)),
    )


class ConnectionBoundsPublisher:
    """Tells whenever the bounds of connections change."""

    def __init__(self, config: BrokerConfig, tell: Callable[[ConnectionBounds], None]) -> None:
        self._config = config
        self._tell = tell
        self._told = connection_bounds(MetadataImage(), config)

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "bounds of connections"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Tell the bounds if they differ from those told last."""
        if any(kind == BROKER_RESOURCE for kind, _ in delta.changed_configs):
            bounds = connection_bounds(image, self._config)
            if bounds != self._told:
                self._told = bounds
                self._tell(bounds)


class OwnSettingsPublisher:
    """Tells all dynamic settings of this broker alone whenever one of them changes."""

    def __init__(
        self, config: BrokerConfig, tell: Callable[[Mapping[str, str]], Awaitable[None]]
    ) -> None:
        self._resource = BROKER_RESOURCE, str(config.node_id)
        self._tell = tell

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "certificates of listeners"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Tell them if one has changed."""
        if self._resource in delta.changed_configs:
            await self._tell(image.config(*self._resource))


def throttles_of(image: MetadataImage, node_id: NodeId) -> dict[str, float]:
    """Return the rates that were set for this broker alone, as DescribeNode names them."""
    texts = image.config(BROKER_RESOURCE, str(node_id))
    return {
        f"throttle.{name}": float(texts[key])
        for name, key in (
            ("leader", LEADER_REPLICATION_RATE),
            ("follower", FOLLOWER_REPLICATION_RATE),
            ("log.dirs", LOG_DIRS_MOVE_RATE),
        )
        if key in texts
    }


class DynamicSettings:
    """Tells who keeps a copy of a setting whenever it changes."""

    def __init__(self, config: BrokerConfig, owners: Mapping[str, Callable[[Any], None]]) -> None:
        """`owners` has for each key who takes its new value."""
        self._config = config
        self._owners = owners
        self._resources = {
            (BROKER_RESOURCE, name) for name in (str(config.node_id), CLUSTER_DEFAULT)
        }
        self._told = {key: setting_in_force(MetadataImage(), config, key) for key in owners}

    @property
    def name(self) -> str:
        """How faults call this publisher."""
        return "dynamic settings"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Tell what differs from what was told last."""
        if self._resources.isdisjoint(delta.changed_configs):
            return
        for key, tell in self._owners.items():
            value = setting_in_force(image, self._config, key)
            if value != self._told[key]:
                self._told[key] = value
                tell(value)
