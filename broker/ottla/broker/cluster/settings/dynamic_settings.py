"""Reads the dynamic settings of this broker, and applies their changes through two metadata
publishers.

The precedence is Kafka's: dynamic setting of this broker, dynamic cluster-wide setting, the
broker's file, default. Dynamic settings, and the components that apply them, are:

* every `log.*`, `message.*`, `compression.*` and `min.insync.replicas` that is a topic default:
  `replica_manager` applies it to all logs at once;
* `unclean.leader.election.enable`: the controller applies it to its elections;
* `producer.id.expiration.ms`: `replica_manager` applies it with the settings of logs;
* `cordoned.log.dirs`: the log directories apply it, through `DynamicSettings`;
* the rates of throttled replication: the replication quotas apply them, through `DynamicSettings`;
* waits, threads and caches of reads and copies of tiered storage: the handlers of Fetch and
  ListOffsets, the remote log manager and the reader of copied segments apply them, through
  `DynamicSettings`;
* `log.cleaner.*` settings of brokers: the log cleaner applies them, through `DynamicSettings`;
* `max.connection*`, of the broker and of single listeners: the connection quotas apply them,
  through `node/admin/connection_bounds`;
* `group.consumer.assignment.interval.ms`, `group.share.assignment.interval.ms`:
  `groups/group_settings` applies them;
* `listener.name.NAME.ssl.*` of certificates: the certificates of the listeners apply them, through
  `OwnSettingsPublisher`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ottla.broker.cluster.settings.topic_settings import CLUSTER_DEFAULT
from ottla.broker.quotas.replication_quota import (
    FOLLOWER_REPLICATION_RATE,
    LEADER_REPLICATION_RATE,
    LOG_DIRS_MOVE_RATE,
)
from ottla.broker.quotas.tier_quotas import COPY_RATE, FETCH_RATE
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.ids import NodeId
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.connections import ConnectionConfig
from ottla.model.settings.declare import definitions
from ottla.model.settings.quotas import QuotaConfig
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.model.settings.storage.tier import TierConfig
from ottla.node.admin.connection_bounds import value_in_force

PARTITION_VERIFICATION = "transaction.partition.verification.enable"
PRODUCER_ID_EXPIRATION_MS = "producer.id.expiration.ms"
CLEANER_SETTINGS: Mapping[str, str] = {
    key: definition.field_name
    for key, definition in definitions(CleanerConfig).items()
    if definition.is_dynamic
}
"""Names of the log cleaner's dynamic settings, each with the field of `CleanerConfig` that stores
the value."""

TIER_SETTINGS = frozenset(
    key for key, definition in definitions(TierConfig).items() if definition.is_dynamic
)
"""Names of the dynamic settings of tiered storage, except for its bandwidth limits."""

TIER_RATES = frozenset((COPY_RATE, FETCH_RATE))
"""Names of the dynamic bandwidth limits of copies to the object store and of reads from the object
store."""


def setting_in_force(image: MetadataImage, config: BrokerConfig, key: str) -> Any:
    """Return the currently effective value of one of the broker's own dynamic settings."""
    part: Any
    if key in CLEANER_SETTINGS:
        part, known = config.cleaner, definitions(CleanerConfig)
    elif key in (known := definitions(ConnectionConfig)):
        part = config.connections
    elif key in TIER_SETTINGS:
        part, known = config.tier, definitions(TierConfig)
    elif key in TIER_RATES:
        part, known = config.quotas, definitions(QuotaConfig)
    else:
        part, known = config, definitions(BrokerConfig)
    return value_in_force(image, config.node_id, known[key], part)


class OwnSettingsPublisher:
    """Metadata publisher that applies the dynamic settings of this broker whenever one of them
    changes. Cluster-wide settings are not included."""

    def __init__(
        self, config: BrokerConfig, apply: Callable[[Mapping[str, str]], Awaitable[None]]
    ) -> None:
        self._resource = BROKER_RESOURCE, str(config.node_id)
        self._apply = apply

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "certificates of listeners"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the dynamic settings of this broker if one of them has changed."""
        if self._resource in delta.changed_configs:
            await self._apply(image.config(*self._resource))


def throttles_of(image: MetadataImage, node_id: NodeId) -> dict[str, float]:
    """Return the replication throttles that are set specifically for this broker, in bytes per
    second. The keys are their names in DescribeNode responses."""
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
    """Metadata publisher that passes each change of a dynamic setting to the component that uses
    the setting."""

    def __init__(self, config: BrokerConfig, owners: Mapping[str, Callable[[Any], None]]) -> None:
        """Create the metadata publisher. `owners` maps each dynamic setting to the function that
        applies its new value."""
        self._config = config
        self._owners = owners
        self._resources = {
            (BROKER_RESOURCE, name) for name in (str(config.node_id), CLUSTER_DEFAULT)
        }
        self._applied = {key: setting_in_force(MetadataImage(), config, key) for key in owners}

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "dynamic settings"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Pass the new value of each changed dynamic setting to the function that applies it."""
        if self._resources.isdisjoint(delta.changed_configs):
            return
        for key, apply in self._owners.items():
            value = setting_in_force(image, self._config, key)
            if value != self._applied[key]:
                self._applied[key] = value
                apply(value)
