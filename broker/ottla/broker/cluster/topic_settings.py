"""Which settings hold for a topic: its own, over this broker's, over the cluster's, over Kafka's.

Pure.  The order is Kafka's: topic override, dynamic setting of this broker, dynamic cluster-wide
setting, the broker's own file, default.
"""

from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.topic import BROKER_TO_TOPIC, TopicConfig, topic_defaults_of

CLUSTER_DEFAULT = ""
"""The name of the cluster-wide broker resource."""


def topic_defaults_of_image(image: MetadataImage, config: BrokerConfig) -> dict[str, str]:
    """Return the topic defaults on this broker, by topic key."""
    texts = {
        key: text
        for name in (CLUSTER_DEFAULT, str(config.node_id))
        for key, text in image.config(BROKER_RESOURCE, name).items()
        if key in BROKER_TO_TOPIC
    }
    return {**config.topic_defaults, **topic_defaults_of(texts)}


def topic_config_of(image: MetadataImage, topic: str, defaults: dict[str, str]) -> TopicConfig:
    """Return the settings of one topic over the broker's defaults."""
    return TopicConfig.from_texts(dict(image.config(TOPIC_RESOURCE, topic)), defaults)
