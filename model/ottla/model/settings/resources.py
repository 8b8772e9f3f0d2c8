"""What settings belong to and how one is changed, by Kafka's numbers.

Light to import: a command that changes a setting needs no definition of any.
"""

from enum import IntEnum


class ResourceType(IntEnum):
    """What a config record belongs to (Kafka's ConfigResource.Type, int8)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class AlterOperation(IntEnum):
    """How IncrementalAlterConfigs changes one setting (Kafka's AlterConfigOp.OpType, int8)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3
