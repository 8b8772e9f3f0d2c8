"""The records of `__consumer_offsets`, in Kafka's own formats.  Pure.

A key is an int16 that says which kind it is, then the body; a value an int16 that is its version,
then the body.  A null value takes away what its key named.  Kinds of later or other coordinators
(share groups, streams groups) are passed over when a log is read.
"""

from struct import Struct
from typing import NamedTuple, TypeAlias

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.wire.codec import decode, encode
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

_int16 = Struct(">h")
_OFFSET_COMMIT_PREFIX = _int16.pack(OFFSET_COMMIT)
_GROUP_METADATA_PREFIX = _int16.pack(GROUP_METADATA)

Key: TypeAlias = OffsetCommitKey | GroupMetadataKey
Value: TypeAlias = OffsetCommitValue | GroupMetadataValue


class GroupRecord(NamedTuple):
    """One record as bytes; a value of None takes its key away."""

    key: bytes
    value: bytes | None


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset."""
    return _OFFSET_COMMIT_PREFIX + encode(
        OffsetCommitKey(group=group, topic=topic, partition=partition), 0
    )


def offset_value(value: OffsetCommitValue) -> bytes:
    """Return a committed offset as bytes, in the version that has room for what is set."""
    has_expiry = value.expire_timestamp != NO_EXPIRY
    version = OFFSET_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VERSION
    return _int16.pack(version) + encode(value, version)


def group_key(group: str) -> bytes:
    """Return the key of a group."""
    return _GROUP_METADATA_PREFIX + encode(GroupMetadataKey(group=group), 0)


def group_value(value: GroupMetadataValue) -> bytes:
    """Return a group as bytes."""
    return _int16.pack(GROUP_VERSION) + encode(value, GROUP_VERSION)


def read_record(key: bytes | None, value: bytes | None) -> tuple[Key, Value | None] | None:
    """Return what a record says; None for a kind that is not ours.

    CorruptDataError when its bytes are not what its kind and version say.
    """
    if key is None:
        raise CorruptDataError("a record of __consumer_offsets has no key")
    try:
        kind = _prefix_of(key)
        if kind in (OFFSET_COMMIT, OFFSET_COMMIT_BEFORE_KIP_211):
            return decode(OffsetCommitKey, 0, key, 2), _read_value(OffsetCommitValue, value)
        if kind == GROUP_METADATA:
            return decode(GroupMetadataKey, 0, key, 2), _read_value(GroupMetadataValue, value)
    except ProtocolError as error:
        raise CorruptDataError(f"a record of __consumer_offsets: {error}") from None
    return None


def _read_value(
    kind: type[OffsetCommitValue] | type[GroupMetadataValue], value: bytes | None
) -> Value | None:
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
