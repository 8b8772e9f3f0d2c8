"""Effective value of a topic's setting, and its source.

The value is read from the first source that has one: the topic's own value, the dynamic value of
the cluster, the settings file of this controller, the declared default.
"""

from typing import NamedTuple

from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.errors import ConfigError
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.resources import ConfigSource
from ottla.model.settings.storage.topic import DEFAULT_DEFINITIONS, TOPIC_DEFINITIONS, as_topic_text

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_LEADER_ELECTION = "unclean.leader.election.enable"


class EffectiveSetting(NamedTuple):
    """Value of a setting as text (None if the setting has no value), and the source of the
    value."""

    value: str | None
    source: ConfigSource


def topic_setting(
    image: MetadataImage, config: ControllerConfig, topic: str, key: str
) -> EffectiveSetting:
    """Return the effective value of a topic's setting.  The topic need not exist."""
    own = image.config(TOPIC_RESOURCE, topic).get(key)
    if own is not None:
        return EffectiveSetting(own, ConfigSource.TOPIC)
    return topic_default(image, config, key)


def topic_default(image: MetadataImage, config: ControllerConfig, key: str) -> EffectiveSetting:
    """Return the effective value of a setting for a topic that does not set it."""
    cluster = image.config(BROKER_RESOURCE, "")
    for broker_key in TOPIC_DEFINITIONS[key].broker_keys:
        if broker_key in cluster and broker_key in DEFAULT_DEFINITIONS:
            try:
                return EffectiveSetting(
                    as_topic_text(broker_key, cluster[broker_key]), ConfigSource.CLUSTER
                )
            except ConfigError:
                continue  # The value was accepted by a release with other limits.
    if key in config.topic_defaults:
        return EffectiveSetting(config.topic_defaults[key], ConfigSource.STATIC)
    return EffectiveSetting(TOPIC_DEFINITIONS[key].default, ConfigSource.DEFAULT)


def topic_defaults(image: MetadataImage, config: ControllerConfig) -> dict[str, str]:
    """Return the effective settings, by key, of a topic without settings of its own."""
    found = {key: topic_default(image, config, key).value for key in TOPIC_DEFINITIONS}
    return {key: text for key, text in found.items() if text is not None}


def min_insync_replicas(image: MetadataImage, config: ControllerConfig, topic: str) -> int:
    """Return the min.insync.replicas of a topic, not yet limited by the replication factor."""
    value = topic_setting(image, config, topic, MIN_INSYNC_REPLICAS).value
    assert value is not None
    return int(value)


def allows_unclean_election(image: MetadataImage, config: ControllerConfig, topic: str) -> bool:
    """Return whether unclean elections are allowed for a topic. If no other replica can lead a
    partition, any live replica may then lead it."""
    value = topic_setting(image, config, topic, UNCLEAN_LEADER_ELECTION).value
    return value is not None and value.strip().lower() == "true"


def is_elr_enabled(image: MetadataImage) -> bool:
    """Return whether eligible leader replicas are enabled (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) >= 1
