"""Encodes and decodes records of `__share_group_state`, in Kafka's formats. Pure.

A key consists of an int16 (0 for a snapshot, 1 for an update) and the share partition. A value
consists of the int16 0 and a body. A snapshot without a value is a tombstone.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Any

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.coordinators.share_persister import SharePartitionKey, StateBatch
from ottla.broker.share_state.share_partition_state import Snapshot, Update
from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.wire.codec import decode, encode
from ottla.wire.messages import share_snapshot_value, share_update_value
from ottla.wire.messages.share_snapshot_key import ShareSnapshotKey
from ottla.wire.messages.share_snapshot_value import ShareSnapshotValue
from ottla.wire.messages.share_update_key import ShareUpdateKey
from ottla.wire.messages.share_update_value import ShareUpdateValue

SNAPSHOT_KEY, UPDATE_KEY = 0, 1
VALUE_VERSION = 0

STATE_BYTES = 192
"""Upper bound of the bytes of a `__share_group_state` record without its batches and its group
id."""
BATCH_BYTES = 20
"""Encoded size in bytes of one state batch: two int64, an int8, an int16 and the number of tags."""

_int16 = Struct(">h")
_PREFIX = {number: _int16.pack(number) for number in (SNAPSHOT_KEY, UPDATE_KEY)}


def record_bytes_of(key: SharePartitionKey, batch_count: int) -> int:
    """Return an upper bound of the bytes of a `__share_group_state` record with `batch_count` state
    batches."""
    return STATE_BYTES + len(key.group_id.encode()) + BATCH_BYTES * batch_count


def snapshot_record(key: SharePartitionKey, snapshot: Snapshot | None) -> CoordinatorRecord:
    """Return the record that stores a snapshot of a share partition, or a tombstone if `snapshot`
    is None."""
    group_id, topic_id, partition = key
    body = encode(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition), 0)
    encoded_key = _PREFIX[SNAPSHOT_KEY] + body
    if snapshot is None:
        return CoordinatorRecord(encoded_key, None)
    value = ShareSnapshotValue(
        snapshot_epoch=snapshot.snapshot_epoch,
        state_epoch=snapshot.state_epoch,
        leader_epoch=snapshot.leader_epoch,
        start_offset=snapshot.start_offset,
        delivery_complete_count=snapshot.delivery_complete_count,
        create_timestamp=snapshot.create_ms,
        write_timestamp=snapshot.write_ms,
        state_batches=[
            share_snapshot_value.StateBatch(**batch._asdict()) for batch in snapshot.batches
        ],
    )
    return CoordinatorRecord(encoded_key, _int16.pack(VALUE_VERSION) + encode(value, VALUE_VERSION))


def update_record(key: SharePartitionKey, update: Update) -> CoordinatorRecord:
    """Return the record that stores an update (changed batches) of a share partition."""
    group_id, topic_id, partition = key
    body = encode(ShareUpdateKey(group_id=group_id, topic_id=topic_id, partition=partition), 0)
    value = ShareUpdateValue(
        snapshot_epoch=update.snapshot_epoch,
        leader_epoch=update.leader_epoch,
        start_offset=update.start_offset,
        delivery_complete_count=update.delivery_complete_count,
        state_batches=[
            share_update_value.StateBatch(**batch._asdict()) for batch in update.batches
        ],
    )
    return CoordinatorRecord(
        _PREFIX[UPDATE_KEY] + body, _int16.pack(VALUE_VERSION) + encode(value, VALUE_VERSION)
    )


def read_share_record(
    key: bytes | None, value: bytes | None
) -> tuple[SharePartitionKey, Snapshot | Update | None] | None:
    """Decode a record of `__share_group_state`. Returns its share partition and content; the
    content of a tombstone is None.

    Returns None if the key has a later version. Raises CorruptDataError if the bytes do not match
    their version.
    """
    if key is None:
        raise CorruptDataError("a record of __share_group_state has no key")
    try:
        number = _prefix_of(key)
        if number not in _PREFIX:
            return None
        kind = ShareSnapshotKey if number == SNAPSHOT_KEY else ShareUpdateKey
        named: Any = decode(kind, 0, key, _int16.size)
        share_partition = SharePartitionKey(named.group_id, named.topic_id, named.partition)
        if value is None:
            return share_partition, None
        if _prefix_of(value) != VALUE_VERSION:
            raise CorruptDataError(f"version {_prefix_of(value)} of a value in __share_group_state")
        if number == SNAPSHOT_KEY:
            return share_partition, _read_snapshot(value)
        return share_partition, _read_update(value)
    except ProtocolError as error:
        raise CorruptDataError(f"a record of __share_group_state: {error}") from None


def _read_snapshot(data: bytes) -> Snapshot:
    value = decode(ShareSnapshotValue, VALUE_VERSION, data, _int16.size)
    return Snapshot(
        snapshot_epoch=value.snapshot_epoch,
        state_epoch=value.state_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        create_ms=value.create_timestamp,
        write_ms=value.write_timestamp,
        batches=_stored_batches_of(value.state_batches),
    )


def _read_update(data: bytes) -> Update:
    value = decode(ShareUpdateValue, VALUE_VERSION, data, _int16.size)
    return Update(
        snapshot_epoch=value.snapshot_epoch,
        leader_epoch=value.leader_epoch,
        start_offset=value.start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=_stored_batches_of(value.state_batches),
    )


def state_batches_of(batches: Sequence[Any]) -> tuple[StateBatch, ...]:
    """Return the state batches that a decoded record value contains."""
    return tuple(
        StateBatch(
            batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count
        )
        for batch in batches
    )


def _stored_batches_of(batches: Sequence[Any]) -> tuple[StateBatch, ...]:
    found = state_batches_of(batches)
    for batch in found:
        if batch.last_offset < batch.first_offset:
            raise CorruptDataError(f"a state batch ends at {batch.last_offset}, before its start")
    return found


def _prefix_of(data: bytes) -> int:
    if len(data) < _int16.size:
        raise CorruptDataError(f"{len(data)} bytes as key or value in __share_group_state")
    prefix: int = _int16.unpack_from(data)[0]
    return prefix
