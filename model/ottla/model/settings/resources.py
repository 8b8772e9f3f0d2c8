"""What settings belong to and how one is changed, by Kafka's numbers.

Light to import: a command that changes a setting needs no definition of any.
"""

from enum import IntEnum


class ConfigKind(IntEnum):
    """What settings belong to (Kafka's ConfigResource.Type, int8)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a value comes from (Kafka's ConfigSource, int8)."""

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
    """How IncrementalAlterConfigs changes one setting (Kafka's AlterConfigOp.OpType, int8)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
