"""Which value of a topic's setting holds, and who said so.

A topic's own value comes first, then the cluster-wide dynamic one, then this controller's file,
then the default of the declaration.
"""

from typing import NamedTuple

from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.resources import ConfigSource
from ottla.model.settings.topic import DEFAULT_DEFINITIONS, TOPIC_DEFINITIONS, as_topic_text

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class InForce(NamedTuple):
    """A setting's value as text, None where it is not set at all, and who set it."""

    value: str | None
    source: ConfigSource


def topic_setting(image: MetadataImage, config: ControllerConfig, topic: str, key: str) -> InForce:
    """Return the value of a topic's setting that holds now; the topic need not exist."""
    own = image.config(TOPIC_RESOURCE, topic).get(key)
    if own is not None:
        return InForce(own, ConfigSource.TOPIC)
    return topic_default(image, config, key)


def topic_default(image: MetadataImage, config: ControllerConfig, key: str) -> InForce:
    """Return the value that holds for topics which do not say."""
    cluster = image.config(BROKER_RESOURCE, "")
    for broker_key in TOPIC_DEFINITIONS[key].broker_keys:
        if broker_key in cluster and broker_key in DEFAULT_DEFINITIONS:
            try:
                return InForce(as_topic_text(broker_key, cluster[broker_key]), ConfigSource.CLUSTER)
            except ConfigError:
                continue  # a release with other bounds accepted it
    if key in config.topic_defaults:
        return InForce(config.topic_defaults[key], ConfigSource.STATIC)
    return InForce(TOPIC_DEFINITIONS[key].default, ConfigSource.DEFAULT)


def min_insync_replicas(image: MetadataImage, config: ControllerConfig, topic: str) -> int:
    """Return the min.insync.replicas of a topic, before the replication factor bounds it."""
    value = topic_setting(image, config, topic, MIN_INSYNC_REPLICAS).value
    assert value is not None
    return int(value)


def allows_unclean_election(image: MetadataImage, config: ControllerConfig, topic: str) -> bool:
    """Return whether any live replica may lead the topic's partitions when no other can."""
    value = topic_setting(image, config, topic, UNCLEAN_LEADER_ELECTION).value
    return value is not None and value.strip().lower() == "true"


def is_elr_enabled(image: MetadataImage) -> bool:
    """Return whether eligible leader replicas are kept (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1
