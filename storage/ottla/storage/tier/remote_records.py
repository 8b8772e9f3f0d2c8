"""Encodes and decodes records of `__remote_log_metadata`. Pure.

Values have Kafka's format (RemoteLogMetadataSerde): three unsigned varints, which are the version
of the frame (1), the kind of the record and its version (0), then the body. The first record of a
segment has kind 0; its later states are records of kind 1.

Kafka writes no keys, and its topic therefore grows permanently. Ottla writes keys, so that the
topic can be compacted. A key is the int16 0, the topic id, the int32 partition, the segment id and
the int8 state. A segment is removed by tombstones for all of its keys.

The state is part of the key because the last record of a segment may be a refused one: a deposed
leader may write COPY_FINISHED after DELETE_STARTED. With one key per segment, compaction would
retain only that record. With a key for each state, the retained records lead to the same states.
"""

from struct import Struct
from typing import NamedTuple
from uuid import UUID

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.remote_segment import (
    RemoteRecord,
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentRemoval,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)
from ottla.wire.codec import decode, encode
from ottla.wire.messages import (
    remote_log_segment_metadata_record,
    remote_log_segment_metadata_update_record,
)
from ottla.wire.messages.remote_log_segment_metadata_record import RemoteLogSegmentMetadataRecord
from ottla.wire.messages.remote_log_segment_metadata_update_record import (
    RemoteLogSegmentMetadataUpdateRecord,
)

FRAME_VERSION, RECORD_VERSION, KEY_VERSION = 1, 0, 0
SEGMENT, UPDATE, PARTITION_DELETION, SNAPSHOT = range(4)
"""Numbers of the kinds of records that the value of a record of the metadata topic may contain.
Kafka never writes the last two into the topic."""

_KEY = Struct(">h16si16sb")
_STATES_IN_TOPIC = (
    RemoteSegmentState.COPY_STARTED,
    RemoteSegmentState.COPY_FINISHED,
    RemoteSegmentState.DELETE_STARTED,
)


class RemoteLogEntry(NamedTuple):
    """Key and value of a record of the metadata topic. A value of None is a tombstone."""

    key: bytes
    value: bytes | None


def encode_record(topic: str, record: RemoteRecord) -> list[RemoteLogEntry]:
    """Return the records to write to the metadata topic for one change of a copied segment. `topic`
    is the name of the segment's topic. The removal of a segment results in several tombstones,
    which must be written in one batch."""
    match record:
        case RemoteSegmentRemoval():
            return [RemoteLogEntry(_key_of(record.id, state), None) for state in _STATES_IN_TOPIC]
        case RemoteSegment():
            body = encode(_segment_message(topic, record), RECORD_VERSION)
            kind = SEGMENT
        case RemoteSegmentUpdate():
            body = encode(_update_message(topic, record), RECORD_VERSION)
            kind = UPDATE
    value = bytes((FRAME_VERSION, kind, RECORD_VERSION)) + body
    return [RemoteLogEntry(_key_of(record.id, record.state), value)]


def decode_record(key: bytes | None, value: bytes | None) -> RemoteRecord | None:
    """Decode a record of the metadata topic, and return its content: a copied segment, or a change
    of one. Records without a key, as Kafka writes them, are accepted.

    Returns None for a tombstone that does not remove a segment, and for kinds and versions of later
    releases. Raises CorruptDataError if the bytes do not match their version, or if key and value
    contradict each other.
    """
    named = None if key is None else _read_key(key)
    if key is not None and named is None:
        return None  # a key of a later version
    if value is None:
        if named is None:
            raise CorruptDataError("a record of __remote_log_metadata has neither key nor value")
        is_removal = named[1] is RemoteSegmentState.COPY_STARTED
        return RemoteSegmentRemoval(named[0]) if is_removal else None
    record = _read_value(value)
    if record is not None and named is not None and named != (record.id, record.state):
        raise CorruptDataError(f"a record of segment {record.id.segment_id} has another key")
    return record


def _key_of(segment_id: RemoteSegmentId, state: RemoteSegmentState) -> bytes:
    topic_id, partition, uuid = segment_id
    return _KEY.pack(KEY_VERSION, topic_id.bytes, partition, uuid.bytes, state)


def _read_key(data: bytes) -> tuple[RemoteSegmentId, RemoteSegmentState] | None:
    if len(data) >= 2 and int.from_bytes(data[:2], "big", signed=True) > KEY_VERSION:
        return None
    if len(data) != _KEY.size:
        raise CorruptDataError(f"a key of {len(data)} bytes in __remote_log_metadata")
    _, topic_id, partition, uuid, state = _KEY.unpack(data)
    segment_id = RemoteSegmentId(UUID(bytes=topic_id), partition, UUID(bytes=uuid))
    return segment_id, _state_of(state)


def _read_value(data: bytes) -> RemoteSegment | RemoteSegmentUpdate | None:
    # All known numbers are below 128, so that their varints have one byte.
    if len(data) < 3 or data[0] == 0:
        raise CorruptDataError("a value of __remote_log_metadata has no frame")
    frame_version, kind, version = data[:3]
    if frame_version > FRAME_VERSION or kind > UPDATE or version > RECORD_VERSION:
        return None
    try:
        if kind == SEGMENT:
            return _segment_of(decode(RemoteLogSegmentMetadataRecord, version, data, 3))
        return _update_of(decode(RemoteLogSegmentMetadataUpdateRecord, version, data, 3))
    except ProtocolError as error:
        raise CorruptDataError(f"a value of __remote_log_metadata: {error}") from None


def _segment_message(topic: str, segment: RemoteSegment) -> RemoteLogSegmentMetadataRecord:
    module = remote_log_segment_metadata_record
    return RemoteLogSegmentMetadataRecord(
        remote_log_segment_id=module.RemoteLogSegmentIdEntry(
            topic_id_partition=module.TopicIdPartitionEntry(
                name=topic, id=segment.id.topic_id, partition=segment.id.partition
            ),
            id=segment.id.segment_id,
        ),
        start_offset=segment.start_offset,
        end_offset=segment.end_offset,
        broker_id=segment.broker_id,
        max_timestamp_ms=segment.max_timestamp_ms,
        event_timestamp_ms=segment.event_timestamp_ms,
        segment_leader_epochs=[
            module.SegmentLeaderEpochEntry(leader_epoch=entry.epoch, offset=entry.start_offset)
            for entry in segment.leader_epochs
        ],
        segment_size_in_bytes=segment.size_bytes,
        custom_metadata=segment.custom_metadata,
        remote_log_segment_state=segment.state,
        txn_index_empty=segment.has_empty_transaction_index,
    )


def _update_message(
    topic: str, update: RemoteSegmentUpdate
) -> RemoteLogSegmentMetadataUpdateRecord:
    module = remote_log_segment_metadata_update_record
    return RemoteLogSegmentMetadataUpdateRecord(
        remote_log_segment_id=module.RemoteLogSegmentIdEntry(
            topic_id_partition=module.TopicIdPartitionEntry(
                name=topic, id=update.id.topic_id, partition=update.id.partition
            ),
            id=update.id.segment_id,
        ),
        broker_id=update.broker_id,
        event_timestamp_ms=update.event_timestamp_ms,
        custom_metadata=update.custom_metadata,
        remote_log_segment_state=update.state,
    )


def _segment_of(message: RemoteLogSegmentMetadataRecord) -> RemoteSegment:
    return RemoteSegment(
        id=_id_of(message),
        start_offset=Offset(message.start_offset),
        end_offset=Offset(message.end_offset),
        broker_id=NodeId(message.broker_id),
        max_timestamp_ms=message.max_timestamp_ms,
        event_timestamp_ms=message.event_timestamp_ms,
        size_bytes=message.segment_size_in_bytes,
        leader_epochs=tuple(
            EpochEntry(Epoch(entry.leader_epoch), Offset(entry.offset))
            for entry in message.segment_leader_epochs
        ),
        custom_metadata=_bytes_of(message.custom_metadata),
        state=_state_of(message.remote_log_segment_state),
        has_empty_transaction_index=message.txn_index_empty,
    )


def _update_of(message: RemoteLogSegmentMetadataUpdateRecord) -> RemoteSegmentUpdate:
    return RemoteSegmentUpdate(
        id=_id_of(message),
        event_timestamp_ms=message.event_timestamp_ms,
        custom_metadata=_bytes_of(message.custom_metadata),
        state=_state_of(message.remote_log_segment_state),
        broker_id=NodeId(message.broker_id),
    )


def _id_of(
    message: RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord,
) -> RemoteSegmentId:
    segment_id = message.remote_log_segment_id
    partition = segment_id.topic_id_partition
    return RemoteSegmentId(partition.id, partition.partition, segment_id.id)


def _bytes_of(data: bytes | memoryview | None) -> bytes | None:
    return None if data is None else bytes(data)


def _state_of(number: int) -> RemoteSegmentState:
    try:
        return RemoteSegmentState(number)
    except ValueError:
        raise CorruptDataError(f"{number} is no state of a copied segment") from None
