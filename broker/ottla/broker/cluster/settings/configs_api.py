"""Describes the settings of resources for DescribeConfigs: topics, this broker, its loggers,
groups, and subscriptions to client metrics. Pure.

A topic's own setting takes precedence over the broker's (`node/admin/describe_configs`).
"""

from collections.abc import Iterable, Mapping

from ottla.broker.cluster.cluster_view import is_legal_topic_name
from ottla.metadata.image import MetadataImage
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import Definition
from ottla.model.settings.dynamic import described_definitions
from ottla.model.settings.group_overrides import GROUP_DEFINITIONS
from ottla.model.settings.resources import ConfigKind, ConfigSource
from ottla.model.settings.storage.topic import BROKER_TO_TOPIC, TOPIC_DEFINITIONS, as_topic_text
from ottla.model.settings.telemetry.client_metrics import CLIENT_METRICS_DEFINITIONS
from ottla.node.admin.describe_configs import ConfigLayer, DescribedNode, result_of
from ottla.node.admin.log_levels import LogLevels
from ottla.node.admin.metadata_cache import MetadataCache
from ottla.wire.messages.describe_configs_request import DescribeConfigsResource
from ottla.wire.messages.describe_configs_response import DescribeConfigsResourceResult


class ResourceSettings:
    """The settings of all resources (such as topics and groups) that a broker describes."""

    def __init__(
        self, *, config: BrokerConfig, metadata: MetadataCache, loggers: LogLevels
    ) -> None:
        self._metadata = metadata
        self._own = DescribedNode(config.node_id, config.texts, described_definitions(), loggers)

    def configs_of(self, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
        """Return the settings of a resource, such as a topic. Raises RefusedError if this broker
        has no settings of the resource."""
        image = self._metadata.image
        kind, name = resource.resource_type, resource.resource_name
        match kind:
            case ConfigKind.TOPIC:
                return self._topic_configs(image, name)
            case ConfigKind.BROKER:
                return self._own.broker_configs(image, name)
            case ConfigKind.BROKER_LOGGER:
                return self._own.logger_configs(name)
            case ConfigKind.CLIENT_METRICS:
                return _subscription_configs(image, name)
            case ConfigKind.GROUP:
                return self._group_configs(image, name)
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
        )

    def _topic_configs(
        self, image: MetadataImage, name: str
    ) -> list[DescribeConfigsResourceResult]:
        if not is_legal_topic_name(name):
            raise RefusedError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if image.topic(name) is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = image.config(ConfigKind.TOPIC, name)
        return [
            self._layered_config(image, definition, overrides, ConfigSource.TOPIC)
            for definition in TOPIC_DEFINITIONS.values()
        ]

    def _layered_config(
        self,
        image: MetadataImage,
        definition: Definition,
        overrides: Mapping[str, str],
        own: ConfigSource,
    ) -> DescribeConfigsResourceResult:
        """Describe a setting (such as a setting of a topic) whose default is a setting of the
        brokers."""
        given: list[ConfigLayer] = []
        if definition.key in overrides:
            given.append(ConfigLayer(definition.key, overrides[definition.key], own))
        for source in (
            ConfigSource.BROKER,
            ConfigSource.CLUSTER,
            ConfigSource.STATIC,
        ):
            texts = self._own.texts(image, source)
            given += [
                ConfigLayer(key, texts[key], source)
                for key in definition.broker_keys
                if key in texts
            ]
        given += self._brokers_default(definition)
        if own is ConfigSource.GROUP and not definition.broker_keys:
            given.append(ConfigLayer(definition.key, definition.default, ConfigSource.DEFAULT))
        result = result_of(definition, given, is_read_only=False)
        if given and given[0].source is not own:
            key, text, _ = given[0]
            # The broker's key may have another unit, and a value that an older release accepted.
            if key in BROKER_TO_TOPIC and text is not None:
                try:
                    result.value = as_topic_text(key, text)
                except ConfigError:
                    result.value = definition.default
        return result

    def _brokers_default(self, definition: Definition) -> Iterable[ConfigLayer]:
        """Yield the value of the broker setting that is the default of a topic setting. If several
        broker settings qualify, the first one applies, as in Kafka."""
        for key in definition.broker_keys[:1]:
            brokers = self._own.definitions.get(key)
            if brokers is not None and brokers.default is not None:
                yield ConfigLayer(key, brokers.default, ConfigSource.DEFAULT)

    def _group_configs(
        self, image: MetadataImage, name: str
    ) -> list[DescribeConfigsResourceResult]:
        if not name:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        overrides = image.config(ConfigKind.GROUP, name)
        return [
            self._layered_config(image, definition, overrides, ConfigSource.GROUP)
            for definition in GROUP_DEFINITIONS.values()
        ]


def _subscription_configs(image: MetadataImage, name: str) -> list[DescribeConfigsResourceResult]:
    if not name:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
        )
    texts = image.config(ConfigKind.CLIENT_METRICS, name)
    found = []
    for key, definition in CLIENT_METRICS_DEFINITIONS.items():
        given = [ConfigLayer(key, texts[key], ConfigSource.CLIENT_METRICS)] if key in texts else []
        found.append(result_of(definition, given, is_read_only=False))
    return found
