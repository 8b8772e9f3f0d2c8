"""Checks of setting changes that need this broker's own data: whether it has the log directories to
be cordoned, and whether it can use a new number of threads. Pure."""

from collections.abc import Callable, Mapping

from ottla.broker.cluster.settings.topic_settings import CLUSTER_DEFAULT
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import whole_number
from ottla.model.settings.dynamic import described_definitions
from ottla.model.settings.kafka_keys import THREAD_POOLS
from ottla.model.settings.resources import AlterOperation, ConfigKind
from ottla.model.settings.storage.cleaner import THREADS, check_thread_count
from ottla.model.settings.storage.cordoned import CORDONED_LOG_DIRS, check_cordoned, parse_cordoned
from ottla.node.admin.alter_configs import Resource
from ottla.wire.messages.incremental_alter_configs_request import AlterConfigsResource

THREAD_KEYS = THREAD_POOLS | {THREADS}
"""Names of the settings for numbers of threads, including thread pools that Ottla does not use. The
broker also checks the values of unused settings, because Kafka's tools may expect a refusal of
invalid numbers."""


class BrokerObstacles:
    """Checks of changed broker settings against this broker's own state, such as its log
    directories and its number of threads."""

    def __init__(self, config: BrokerConfig, image: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._image = image
        self._node_id = config.node_id

    def obstacle_of(self, resource: Resource) -> str:
        """Return the reason why this broker cannot use the changed settings of a resource, or an
        empty text if it can use them.

        Settings of another broker are not checked.
        """
        name = resource.resource_name
        if resource.resource_type != ConfigKind.BROKER or (
            name not in (CLUSTER_DEFAULT, str(self._node_id))
        ):
            return ""
        changes: dict[str, str | None]
        if isinstance(resource, AlterConfigsResource):
            changes = {
                change.name: None
                if change.config_operation == AlterOperation.DELETE
                else change.value
                for change in resource.configs
            }
        else:
            changes = dict.fromkeys(self._image().config(BROKER_RESOURCE, name))
            changes |= {change.name: change.value for change in resource.configs}
        try:
            cordoned = changes.get(CORDONED_LOG_DIRS)
            if cordoned is not None and name != CLUSTER_DEFAULT:
                check_cordoned(parse_cordoned(cordoned), self._config.log_dirs)
            for key in changes:
                if key in THREAD_KEYS:
                    self._check_threads(name, key, changes[key])
        except ConfigError as error:
            return str(error)
        except ValueError:
            pass  # The controller refuses it, like any invalid value.
        return ""

    def _check_threads(self, name: str, key: str, text: str | None) -> None:
        """Raise ConfigError if a changed setting would result in too many or too few threads."""
        image = self._image()
        layers: list[Mapping[str, str | None]] = [
            image.config(BROKER_RESOURCE, str(self._node_id)),
            image.config(BROKER_RESOURCE, CLUSTER_DEFAULT),
            self._config.texts,
            {key: described_definitions()[key].default},
        ]
        now = next(layer[key] for layer in layers if layer.get(key) is not None)
        changed = 1 if name == CLUSTER_DEFAULT else 0
        layers[changed] = {key: text}
        after = next(layer[key] for layer in layers if layer.get(key) is not None)
        assert now is not None and after is not None, "the default is never null"
        if after != now:
            check_thread_count(whole_number(after.strip()), whole_number(now.strip()), key)
