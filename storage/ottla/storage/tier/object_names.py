"""Keys of the objects of copied segments, and of the other objects of a cluster. Pure.

    <cluster id>/<topic>-<topic id>/<partition>/<20 digits>-<segment id>.log
                                                                        .indexes
                                                                        .manifest.json

    <cluster id>/group-offsets/<partition>-<10 digits>.offsets
    <cluster id>/heartbeat.json

The prefix of the store's URI precedes these keys. Ids are in Kafka's base64 form (22 characters).
The 20 digits are the segment's start offset. Each upload has a new segment id, so two leaders never
write the same key. Each topic has its own topic id, so the objects of a deleted topic never belong
to a new topic with the same name.
"""

import re
from base64 import urlsafe_b64decode
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from ottla.model.ids import Offset, uuid_text
from ottla.model.limits import TOPIC_NAME_LENGTH_MAX
from ottla.model.values import frozen
from ottla.storage.tier.store_seam import is_plain_key

CLUSTER_ID_CHARS_MAX = 64
PARTITION_MAX = (1 << 31) - 1
OFFSET_MAX = (1 << 63) - 1

_ID = r"[A-Za-z0-9_-]{22}"
_KEY = re.compile(
    r"([A-Za-z0-9._-]+)/"  # cluster id
    rf"([A-Za-z0-9._-]+)-({_ID})/"  # topic and its id
    r"(0|[1-9][0-9]{0,9})/"  # partition
    rf"([0-9]{{20}})-({_ID})"  # start offset and segment id
    r"(\.log|\.indexes|\.manifest\.json)"
)

HEARTBEAT = "heartbeat.json"
GROUP_OFFSETS = "group-offsets"
"""Folder of a cluster's committed offsets. No topic's folder has this name, because topic folders
end with an id."""
_OFFSETS_NAME = re.compile(r"(0|[1-9][0-9]{0,5})-([0-9]{10})\.offsets")


class SegmentObject(StrEnum):
    """Kind of an object in which a copied segment is stored. The value is the suffix of the
    object's key. The objects are uploaded in the order of this enum, so that a manifest exists only
    if the other objects are complete."""

    LOG = ".log"
    INDEXES = ".indexes"
    MANIFEST = ".manifest.json"


@frozen(kw_only=True)
class SegmentNames:
    """Identity of one upload of a segment. The keys of the segment's objects are derived from
    it."""

    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int
    start_offset: Offset
    segment_id: UUID

    def key(self, kind: SegmentObject) -> str:
        """Return the key of one of the segment's objects, selected by its kind."""
        prefix = partition_prefix(self.cluster_id, self.topic, self.topic_id, self.partition)
        return f"{prefix}{self.start_offset:020d}-{uuid_text(self.segment_id)}{kind.value}"

    def keys(self) -> tuple[str, ...]:
        """Return the keys of all objects of the segment, in the order of their upload."""
        return tuple(self.key(kind) for kind in SegmentObject)


class ObjectName(NamedTuple):
    """Result of parsing a key: the kind of the object, and the upload to which the object
    belongs."""

    names: SegmentNames
    kind: SegmentObject


def is_cluster_id(text: str) -> bool:
    """Return whether a text may be used as the cluster id in a key."""
    return len(text) <= CLUSTER_ID_CHARS_MAX and "/" not in text and is_plain_key(text)


def cluster_prefix(cluster_id: str) -> str:
    """Return the prefix of the keys of all segments of a cluster. The caller must have checked the
    cluster id with `is_cluster_id`."""
    return f"{cluster_id}/"


def heartbeat_key(cluster_id: str) -> str:
    """Return the key of the object whose age shows whether a cluster is in use."""
    return f"{cluster_prefix(cluster_id)}{HEARTBEAT}"


def group_offsets_prefix(cluster_id: str) -> str:
    """Return the key prefix of all committed offsets of a cluster's groups."""
    return f"{cluster_prefix(cluster_id)}{GROUP_OFFSETS}/"


def group_offsets_key(cluster_id: str, partition: int, leader_epoch: int) -> str:
    """Return the key of the committed offsets that a partition of `__consumer_offsets` had in a
    leader epoch. A deposed leader never writes to the key of its successor."""
    return f"{group_offsets_prefix(cluster_id)}{partition}-{leader_epoch:010d}.offsets"


def parse_group_offsets_key(cluster_id: str, key: str) -> tuple[int, int] | None:
    """Return the partition of `__consumer_offsets` and the leader epoch in a key of committed
    offsets, or None for any other key."""
    found = _OFFSETS_NAME.fullmatch(key.removeprefix(group_offsets_prefix(cluster_id)))
    if found is None:
        return None
    partition, epoch = int(found[1]), int(found[2])
    is_own = key == group_offsets_key(cluster_id, partition, epoch)
    return (partition, epoch) if is_own and epoch <= PARTITION_MAX else None


def topic_prefix(cluster_id: str, topic: str, topic_id: UUID) -> str:
    """Return the key prefix of all segments of a topic."""
    return f"{cluster_prefix(cluster_id)}{topic}-{uuid_text(topic_id)}/"


def partition_prefix(cluster_id: str, topic: str, topic_id: UUID, partition: int) -> str:
    """Return the key prefix of all segments of a partition."""
    return f"{topic_prefix(cluster_id, topic, topic_id)}{partition}/"


def parse_object_key(key: str) -> ObjectName | None:
    """Parse a key in a bucket, and return the upload and the kind of the object. Returns None for
    any key that `SegmentNames` cannot create, because a bucket may contain other objects."""
    found = _KEY.fullmatch(key) if is_plain_key(key) else None
    if found is None:
        return None
    cluster_id, topic, topic_id, partition, start_offset, segment_id, suffix = found.groups()
    if not is_cluster_id(cluster_id) or len(topic) > TOPIC_NAME_LENGTH_MAX:
        return None
    if int(partition) > PARTITION_MAX or int(start_offset) > OFFSET_MAX:
        return None
    names = SegmentNames(
        cluster_id=cluster_id,
        topic=topic,
        topic_id=UUID(bytes=urlsafe_b64decode(f"{topic_id}==")),
        partition=int(partition),
        start_offset=Offset(int(start_offset)),
        segment_id=UUID(bytes=urlsafe_b64decode(f"{segment_id}==")),
    )
    kind = SegmentObject(suffix)
    # Two texts of 22 characters may stand for the same id: only one of them is canonical.
    return ObjectName(names, kind) if names.key(kind) == key else None
