"""Encodes and decodes records of `__consumer_offsets`, in Kafka's formats. Pure.

A key consists of an int16 with its kind, and a body. A value consists of an int16 with its version,
and a body. A null value is a tombstone. Kinds of other coordinators (streams groups) are skipped
when a log is read. The kinds of consumer groups (3 to 8 and 16) are in `consumer_records.py`, and
the kinds of share groups (10 to 15) in `share_records.py`.
"""

from struct import Struct
from typing import TypeAlias
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord
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
from ottla.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from ottla.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
)
from ottla.wire.messages.share_group_member_metadata_key import (
    ShareGroupMemberMetadataKey,
)
from ottla.wire.messages.share_group_member_metadata_value import (
    ShareGroupMemberMetadataValue,
)
from ottla.wire.messages.share_group_metadata_key import (
    ShareGroupMetadataKey,
)
from ottla.wire.messages.share_group_metadata_value import (
    ShareGroupMetadataValue,
)
from ottla.wire.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from ottla.wire.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
)
from ottla.wire.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from ottla.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
)
from ottla.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from ottla.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

OFFSET_COMMIT_BEFORE_KIP_211 = 0
"""Old kind number of the record key of a committed offset. The format of the key's body is the same
under the current kind number."""
OFFSET_COMMIT = 1
GROUP_METADATA = 2

OFFSET_VERSION = 4
OFFSET_VERSION_WITH_EXPIRY = 1
"""The only version of the record value of a committed offset that contains an expiry time. Versions
2 to 4 of OffsetCommit may request an expiry."""
GROUP_VERSION = 3

NO_EXPIRY = -1

TEXT_LENGTH_MAX = 8_191
"""Maximum number of characters of a text in a record of `__consumer_offsets`. At four bytes for
each character, a text of this length fits into the 32,767 bytes of a string."""

INSTANCE_ID_LENGTH_MAX = 249
"""Maximum number of characters of a group.instance.id, as in Kafka's clients. A member id begins
with the instance id, and must also fit into a record."""

LISTED_COUNT_MAX = 10_000
"""Maximum number of members, protocols or topics in one request of a group member. The limit also
applies to each record of a group. The check of a request that is a hundred times larger would block
the event loop for a second."""

_int16 = Struct(">h")
_key_start = Struct(">hh").pack
_length = _int16.pack
_index = Struct(">i").pack
offset_key_end = _index
"""Function that encodes a partition index, the last field in the record key of a committed
offset."""
_value_start = Struct(">hqi").pack
_instant = Struct(">q").pack
_value_without_metadata = Struct(">hqiBq").pack
NO_TAGS = b"\0"
TOPIC_ID_TAG = b"\1\0\x10"
"""Encoded header of the topic id, the only tagged field in the record value of a committed offset:
number of fields, tag 0, and size."""
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
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""Key class and value class of each kind of record in `__consumer_offsets`, by kind number."""

KIND_OF = {key: kind for kind, (key, _) in KINDS.items()}
"""Kind number in `__consumer_offsets` of the records with each key class. If two kinds have the
same class, the newer kind is written."""

Key: TypeAlias = Message
Value: TypeAlias = Message


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the encoded record key of a committed offset.

    It is encoded by hand for speed, like most values, because every commit writes one key and one
    value.
    """
    return offset_key_start(group, topic) + _index(partition)


def offset_key_start(group: str, topic: str) -> bytes:
    """Return the common start of the record keys of a group's committed offsets in one topic: all
    fields before the partition."""
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
    """Return the encoded record value of a committed offset. The version of the value supports all
    fields that are set."""
    if value.expire_timestamp != NO_EXPIRY:
        version = OFFSET_VERSION_WITH_EXPIRY
        return _int16.pack(version) + encode(value, version)
    return lasting_offset_value(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.topic_id
    )


def lasting_offset_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, topic_id: UUID
) -> bytes:
    """Return the encoded record value of a committed offset without an explicit expiry time."""
    return lasting_value(offset, leader_epoch, metadata, commit_timestamp_ms, tags_of(topic_id))


def lasting_value(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp_ms: int, tags: bytes
) -> bytes:
    """Return the encoded record value of a committed offset without an explicit expiry time. `tags`
    are its encoded tagged fields."""
    if not metadata:
        return (
            _value_without_metadata(OFFSET_VERSION, offset, leader_epoch, 1, commit_timestamp_ms)
            + tags
        )
    raw = metadata.encode()
    start = _value_start(OFFSET_VERSION, offset, leader_epoch)
    return b"".join((start, write_uvarint(len(raw) + 1), raw, _instant(commit_timestamp_ms), tags))


def tags_of(topic_id: UUID) -> bytes:
    """Return the encoded tagged fields at the end of the record values that store a topic's
    committed offsets."""
    return _tags_of.get(topic_id) or _keep_tags(topic_id)


def _keep_tags(topic_id: UUID) -> bytes:
    """Encode the tagged fields in the record values of a topic's committed offsets. Caches and
    returns the bytes."""
    if len(_tags_of) >= TOPICS_KEPT_MAX:
        _tags_of.clear()
    tags = _tags_of[topic_id] = NO_TAGS if topic_id == ZERO_UUID else TOPIC_ID_TAG + topic_id.bytes
    return tags


TOPICS_KEPT_MAX = 1_024
"""Maximum number of topics whose encoded tagged fields are cached. With a smaller value, the fields
of some topics are encoded again for each commit."""

_tags_of: dict[UUID, bytes] = {}


def group_key(group: str) -> bytes:
    """Return the encoded record key of a classic group."""
    return _GROUP_METADATA_PREFIX + encode(GroupMetadataKey(group=group), 0)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return the encoded record value of a classic group."""
    return _int16.pack(GROUP_VERSION) + encode(value, GROUP_VERSION)


def record(key: Message, value: Message | None) -> CoordinatorRecord:
    """Return a record of a consumer or share group, for `__consumer_offsets`. Both key and value
    have version 0."""
    kind = KIND_OF[type(key)]
    return CoordinatorRecord(
        _int16.pack(kind) + encode(key, 0),
        None if value is None else _int16.pack(0) + encode(value, 0),
    )


def read_record(key: bytes | None, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Decode the key and the value of a record in `__consumer_offsets`. Returns None if its kind is
    unknown.

    Raises CorruptDataError if the bytes do not match their kind and version.
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
