"""Ids, offsets and epochs. Each has its own type, so that a type checker detects mixed-up
integers."""

from base64 import urlsafe_b64encode
from typing import Final, NamedTuple, NewType
from uuid import UUID

NodeId = NewType("NodeId", int)
"""Id of a broker or a controller. In one cluster, a broker and a controller never have the same id,
unless they are the same process."""

Offset = NewType("Offset", int)
"""A logical position in a log, as an int64 that increases by one per record. Ranges are half-open:
`[base, end)`."""

Epoch = NewType("Epoch", int)
"""Leader epoch: the number of a leadership, as an int32 that only increases. -1 if no epoch is
known."""

ProducerId = NewType("ProducerId", int)
"""Id of an idempotent producer, as an int64. -1 for records without a producer id."""

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
"""Lower bound of the ids that may be assigned. Kafka reserves the ids whose numeric value is
smaller."""


def uuid_text(uuid: UUID) -> str:
    """Return a UUID as Kafka prints it: 22 characters of base64."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def parse_node_id(text: str) -> NodeId | None:
    """Return the node id in a text, or None if the text is not a node id.

    The text may be untrusted. Its length is checked before it is parsed, because Python raises an
    error for integers of thousands of digits.
    """
    if not text.isdecimal() or len(text) > len(str(NODE_ID_MAX)) or int(text) > NODE_ID_MAX:
        return None
    return NodeId(int(text))


class TopicPartition(NamedTuple):
    """A partition, identified by topic name, as in files and in old versions of requests."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition within its topic, counted from 0."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition, identified by topic id. A deleted topic and a new topic of the same name have
    different ids."""

    topic_id: UUID
    partition: int


class OffsetAndEpoch(NamedTuple):
    """A log position with its leader epoch: the end of a log, or the id of a snapshot."""

    offset: Offset
    epoch: Epoch
