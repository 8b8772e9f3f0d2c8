"""The nouns of the log: distinct types for integers that must never be mixed up."""

from base64 import urlsafe_b64encode
from typing import Final, NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
"""A broker's or a controller's id; the two sets never overlap in one cluster."""

Offset = NewType("Offset", int)
"""A logical position in a log: int64, +1 per record.  Ranges are half-open `[base, end)`."""

Epoch = NewType("Epoch", int)
"""A leadership number: int32, only ever grows; -1 where none is known."""

ProducerId = NewType("ProducerId", int)
"""An idempotent producer's identity: int64, -1 for none."""

NODE_ID_MAX: Final = (1 << 31) - 1
NO_NODE: Final = NodeId(-1)
NO_OFFSET: Final = Offset(-1)
NO_EPOCH: Final = Epoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
ZERO_UUID = UUID(int=0)

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = UUID(int=1)
"""The reserved topic id of the metadata log (Kafka's `Uuid.METADATA_TOPIC_ID`)."""

RESERVED_UUIDS_BELOW = 100
"""Kafka gives no ids whose number is below this one."""


def uuid_text(uuid: UUID) -> str:
    """Return an id as Kafka writes it: 22 characters of base64."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def parse_node_id(text: str) -> NodeId | None:
    """Return the node id that a stranger's text names; None where it can be none.

    Its length is looked at first: Python refuses to read integers of thousands of digits.
    """
    if not text.isdecimal() or len(text) > len(str(NODE_ID_MAX)) or int(text) > NODE_ID_MAX:
        return None
    return NodeId(int(text))


class TopicPartition(NamedTuple):
    """One partition by its topic's name, as files and old requests know it."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """One partition by its topic's id, which survives delete-and-create of the same name."""

    topic_id: UUID
    partition: int


class OffsetAndEpoch(NamedTuple):
    """A log position with the leader epoch it belongs to: an end of log, or a snapshot's id."""

    offset: Offset
    epoch: Epoch
