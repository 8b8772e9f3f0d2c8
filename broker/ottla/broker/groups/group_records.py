"""The records of `__consumer_offsets`, in Kafka's own formats.  Pure.

A key is an int16 that says which kind it is, then the body; a value an int16 that is its version,
then the body.  A null value takes away what its key named.  Kinds of later or other coordinators
(share groups, streams groups) are passed over when a log is read.  What the kinds of consumer
groups (3 to 8 and 16) say of a group is in `consumer_records.py`.
"""

from struct import Struct
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.wire.codec import decode, encode
from ottla.wire.codec_runtime import write_uvarint
from ottla.wire.codec_types import ZERO_UUID, Message
from ottla.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from ottla.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from ottla.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from ottla.wire.messages.consumer_group_member_metadata_value import (
    ConsumerGroupMemberMetadataValue,
)
from ottla.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from ottla.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from ottla.wire.messages.consumer_group_partition_metadata_key import (
    ConsumerGroupPartitionMetadataKey,
)
from ottla.wire.messages.consumer_group_partition_metadata_value import (
    ConsumerGroupPartitionMetadataValue,
)
from ottla.wire.messages.consumer_group_regular_expression_key import (
    ConsumerGroupRegularExpressionKey,
)
from ottla.wire.messages.consumer_group_regular_expression_value import (
    ConsumerGroupRegularExpressionValue,
)
from ottla.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from ottla.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from ottla.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from ottla.wire.messages.group_metadata_key import GroupMetadataKey
from ottla.wire.messages.group_metadata_value import GroupMetadataValue
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue

OFFSET_COMMIT_BEFORE_KIP_211 = 0
"""Offsets had a key of kind 0 once; its body is the same."""
OFFSET_COMMIT = 1
GROUP_METADATA = 2

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The one version with an expiry of its own (OffsetCommit 2-4 may ask for it)."""
GROUP_VERSION = 3

NO_EXPIRY = -1

TEXT_LENGTH_MAX = 8_191
"""Characters of a text in a record: four bytes each, they fill the 32,767 it may have there."""

INSTANCE_ID_LENGTH_MAX = 249
"""Characters of a group.instance.id, as in Kafka's clients.  It begins the ids that members get,
and these are texts of a record too: a longer one makes an id that no record can hold."""

LISTED_COUNT_MAX = 10_000
"""Members, protocols or topics that one request of a member may list: no group's record holds more,
and to look at a hundred times as many holds the loop for a second."""

_int16 = Struct(">h")
_key_start = Struct(">hh").pack
_length = _int16.pack
_index = Struct(">i").pack
offset_key_end = _index
"""Returns the rest of an offset's key: its partition."""
_value_start = Struct(">hqi").pack
_instant = Struct(">q").pack
_value_without_metadata = Struct(">hqiBq").pack
NO_TAGS = b"\0"
TOPIC_ID_TAG = b"\1\0\x10"
"""One tagged field: its tag, 0, and its size."""
_GROUP_METADATA_PREFIX = _int16.pack(GROUP_METADATA)

KINDS: dict[int, tuple[type[Message], type[Message]]] = {
    OFFSET_COMMIT_BEFORE_KIP_211: (OffsetCommitKey, OffsetCommitValue),
    OFFSET_COMMIT: (OffsetCommitKey, OffsetCommitValue),
    GROUP_METADATA: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""What the key and the value of each kind are."""

KIND_OF = {key: kind for kind, (key, _) in KINDS.items()}
"""The kind that is written for a key; of two, the later."""

Key: TypeAlias = Message
Value: TypeAlias = Message


class GroupRecord(NamedTuple):
    """One record as bytes; a value of None takes its key away."""

    key: bytes
    value: bytes | None


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset.

    It is put together by hand, as most values are: every commit has one of each.
    """
    return offset_key_start(group, topic) + _index(partition)


def offset_key_start(group: str, topic: str) -> bytes:
    """Return the keys of all offsets of a group and a topic, without their partitions."""
    raw_group, raw_topic = group.encode(), topic.encode()
    return b"".join(
        (
            _key_start(OFFSET_COMMIT, len(raw_group)),
            raw_group,
            _length(len(raw_topic)),
            raw_topic,
        )
    )


def offset_value(value: OffsetCommitValue) -> bytes:
    """Return a committed offset as bytes, in the version that has room for what is set."""
    if value.expire_timestamp != NO_EXPIRY:
        version = OFFSET_VERSION_WITH_EXPIRY
        return _int16.pack(version) + encode(value, version)
    return lasting_offset_value(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.topic_id
    )


def lasting_offset_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, topic_id: UUID
) -> bytes:
    """Return a committed offset without an expiry of its own as bytes."""
    return lasting_value(offset, leader_epoch, metadata, commit_timestamp_ms, tags_of(topic_id))


def lasting_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, tags: bytes
) -> bytes:
    """Return the same of a topic whose tagged fields are at hand."""
    if not metadata:
        return (
            _value_without_metadata(OFFSET_VERSION, offset, leader_epoch, 1, commit_timestamp_ms)
            + tags
        )
    raw = metadata.encode()
    start = _value_start(OFFSET_VERSION, offset, leader_epoch)
    return b"".join((start, write_uvarint(len(raw) + 1), raw, _instant(commit_timestamp_ms), tags))


def tags_of(topic_id: UUID) -> bytes:
    """Return the tagged fields of the values of a topic's offsets."""
    return _tags_of.get(topic_id) or _keep_tags(topic_id)


def _keep_tags(topic_id: UUID) -> bytes:
    """Return the tagged fields of a committed offset, and remember them."""
    if len(_tags_of) >= TOPICS_KEPT_MAX:
        _tags_of.clear()
    tags = _tags_of[topic_id] = NO_TAGS if topic_id == ZERO_UUID else TOPIC_ID_TAG + topic_id.bytes
    return tags


TOPICS_KEPT_MAX = 1_024
"""Topics whose tagged fields are remembered.  Lower makes some again for each commit."""

_tags_of: dict[UUID, bytes] = {}


def group_key(group: str) -> bytes:
    """Return the key of a group."""
    return _GROUP_METADATA_PREFIX + encode(GroupMetadataKey(group=group), 0)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return a group as bytes."""
    return _int16.pack(GROUP_VERSION) + encode(value, GROUP_VERSION)


def record(key: Message, value: Message | None) -> GroupRecord:
    """Return a record of a consumer group; all of its parts are in their version 0."""
    kind = KIND_OF[type(key)]
    return GroupRecord(
        _int16.pack(kind) + encode(key, 0),
        None if value is None else _int16.pack(0) + encode(value, 0),
    )


def read_record(key: bytes | None, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Return what a record says; None for a kind that is not ours.

    CorruptDataError when its bytes are not what its kind and version say.
    """
    if key is None:
        raise CorruptDataError("a record of __consumer_offsets has no key")
    try:
        known = KINDS.get(_prefix_of(key))
        if known is None:
            return None
        return decode(known[0], 0, key, 2), _read_value(known[1], value)
    except ProtocolError as error:
        raise CorruptDataError(f"a record of __consumer_offsets: {error}") from None


def _read_value(kind: type[Message], value: bytes | None) -> Value | None:
    if value is None:
        return None
    version = _prefix_of(value)
    if version not in kind.VERSIONS:
        raise CorruptDataError(f"version {version} of {kind.__name__}")
    return decode(kind, version, value, 2)


def _prefix_of(data: bytes) -> int:
    if len(data) < _int16.size:
        raise CorruptDataError(f"{len(data)} bytes as key or value in __consumer_offsets")
    prefix: int = _int16.unpack_from(data)[0]
    return prefix
