"""Types of resources that have settings, and types of changes of a setting, with Kafka's numbers.

This module is fast to import. Commands that change settings use it without importing the
declarations of all settings.
"""

from enum import IntEnum


class ConfigKind(IntEnum):
    """Type of a resource with settings (Kafka's ConfigResource.Type, int8)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Source from which a setting has its effective value (Kafka's ConfigSource, int8)."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    CLUSTER = 3
    STATIC = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class AlterOperation(IntEnum):
    """Type of change of one setting in IncrementalAlterConfigs (Kafka's AlterConfigOp.OpType,
    int8)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
