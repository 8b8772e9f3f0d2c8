"""Computes the effective settings of a topic from its own settings, this broker's, the cluster's,
and Kafka's defaults.

Pure. The precedence is Kafka's: topic override, dynamic setting of this broker, dynamic
cluster-wide setting, the broker's own file, default. Invalid stored values are ignored. Such values
exist if a release with other bounds accepted them.
"""

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import allowed_texts
from ottla.model.settings.storage.topic import (
    DEFAULT_DEFINITIONS,
    TOPIC_DEFINITIONS,
    TopicConfig,
    topic_defaults_of,
)

CLUSTER_DEFAULT = ""
"""Name of the broker resource that stores the cluster-wide settings: the empty text."""


def topic_defaults_of_image(image: MetadataImage, config: BrokerConfig) -> dict[str, str]:
    """Return the values of topic settings that apply on this broker to topics without their own
    settings. The keys are the names of the settings."""
    texts: dict[str, str] = {}
    for name in (CLUSTER_DEFAULT, str(config.node_id)):
        texts |= allowed_texts(DEFAULT_DEFINITIONS, image.config(BROKER_RESOURCE, name))[0]
    return {**config.topic_defaults, **topic_defaults_of(texts)}


def topic_config_of(image: MetadataImage, topic: str, defaults: dict[str, str]) -> TopicConfig:
    """Return the effective settings of a topic. `defaults` contains this broker's defaults for
    topics."""
    texts, _ = allowed_texts(TOPIC_DEFINITIONS, image.config(TOPIC_RESOURCE, topic))
    return TopicConfig.from_texts(texts, defaults)
