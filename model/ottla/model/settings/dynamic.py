"""Checks for settings that are changed while the cluster runs (IncrementalAlterConfigs)."""

from collections.abc import Mapping
from enum import IntEnum

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import Definition, definitions
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.topic import check_topic_texts, default_definitions


class ResourceType(IntEnum):
    """What a config record belongs to (Kafka's ConfigResource.Type, int8)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def broker_definitions() -> dict[str, Definition]:
    """Return every broker setting by key: its own, those of groups and the topic defaults."""
    return {**definitions(BrokerConfig), **definitions(GroupConfig), **default_definitions()}


def check_texts(resource_type: ResourceType, texts: Mapping[str, str | None]) -> None:
    """Refuse (INVALID_CONFIG) a setting the resource does not have or a value not allowed.

    A None value means that the key's override goes away; only its key is checked.
    """
    if resource_type is ResourceType.TOPIC:
        check_topic_texts(texts)
        return
    known = broker_definitions()
    for key, text in texts.items():
        definition = known.get(key)
        if definition is None:
            raise RefusedError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {key}")
        if not definition.is_dynamic:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot update these configs dynamically: {key}; set it in the broker's file",
            )
        if text is not None:
            try:
                definition.value_of(text)
            except ConfigError as error:
                raise RefusedError(ErrorCode.INVALID_CONFIG, str(error)) from None
