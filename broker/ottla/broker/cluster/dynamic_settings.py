"""Settings of this broker that change while it runs, and who is told of them.

A publisher.  The order is Kafka's: dynamic setting of this broker, dynamic cluster-wide setting,
the broker's file, default.  Dynamic settings are:

* every `log.*`, `message.*`, `compression.*` and `min.insync.replicas` that gives topics their
  default: `replica_manager` puts it into force in all logs at once;
* `unclean.leader.election.enable`: the controller's elections;
* `producer.id.expiration.ms`: with the logs' settings, in `replica_manager`;
* `max.connections`: the socket server, through this publisher;
* `cordoned.log.dirs`: the log directories, through this publisher;
* the rates of throttled replication: its quotas, through this publisher;
* `log.cleaner.*` that is the broker's own: the log cleaner, through this publisher.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ottla.broker.cluster.topic_settings import CLUSTER_DEFAULT
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.cleaner import CleanerConfig
from ottla.model.settings.declare import definitions

MAX_CONNECTIONS = "max.connections"
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
    is_of_cleaner = key in CLEANER_SETTINGS
    part = config.cleaner if is_of_cleaner else config
    definition = definitions(CleanerConfig if is_of_cleaner else BrokerConfig)[key]
    assert definition.is_dynamic
    for name in (str(config.node_id), CLUSTER_DEFAULT):
        text = image.config(BROKER_RESOURCE, name).get(key)
        if text is not None:
            return definition.value_of(text)
    return getattr(part, definition.field_name)


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
