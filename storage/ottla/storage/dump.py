"""Every file of a log directory as rows that can be shown: what `ottla log dump` is made of.

Pure iterators over a file's bytes.  They never raise on bytes that lie: the row before the damage
is followed by a `Problem` that says where and why, for looking at damage is what a dump is for.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.ids import Offset
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.storage.checkpoint_file import parse_checkpoint
from ottla.storage.checkpoint_topics import parse_topic_ids
from ottla.storage.epoch_cache import decode_epochs
from ottla.storage.meta_properties import uuid_to_text
from ottla.storage.partition_metadata import decode_partition_metadata
from ottla.storage.producer_batches import decode_batches
from ottla.storage.producer_snapshot import decode_snapshot
from ottla.wire.batch import (
    LENGTH_END,
    MAGIC,
    BatchHeader,
    Buffer,
    TimestampType,
    check_crc,
    parse_header,
)
from ottla.wire.batch_builder import ControlType
from ottla.wire.codec import decode_prefix
from ottla.wire.codec_types import Message
from ottla.wire.compression import codec_of
from ottla.wire.legacy import magic_at, messages
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.messages.voters_record import VotersRecord
from ottla.wire.records import Record, scan

_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")
_TRANSACTION_ENTRY = Struct(">hqqqq")
_CONTROL_KEY = Struct(">hh")
_END_MARKER = Struct(">hi")

RAFT_CONTROL_MESSAGES: dict[ControlType, type[Message]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


class Problem(NamedTuple):
    """Bytes that lie, or that are left over by preallocation and no damage."""

    position: int
    problem: str
    is_damage: bool = True


class BatchRow(NamedTuple):
    """One v2 batch."""

    position: int
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    leader_epoch: int
    codec: str
    timestamp_type: str
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    crc: int
    is_crc_valid: bool


class RecordRow(NamedTuple):
    """One record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control: str | None
    """What a control record says, None for data."""


class LegacyRow(NamedTuple):
    """One message of the formats before v2."""

    offset: int
    magic: int
    codec: str
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class OffsetIndexRow(NamedTuple):
    """An entry of `.index`."""

    offset: int
    position: int


class TimeIndexRow(NamedTuple):
    """An entry of `.timeindex`."""

    timestamp_ms: int
    offset: int


class AbortedTransactionRow(NamedTuple):
    """An entry of `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerRow(NamedTuple):
    """A producer of a `.snapshot`."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    transaction_first_offset: int


class ProducerBatchRow(NamedTuple):
    """A batch of `producer-batches`."""

    producer_id: int
    last_seen_ms: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CheckpointRow(NamedTuple):
    """A line of an offset checkpoint."""

    topic: str
    partition: int
    offset: int


class EpochRow(NamedTuple):
    """A line of `leader-epoch-checkpoint`."""

    leader_epoch: int
    start_offset: int


class FieldRow(NamedTuple):
    """A field of a small file."""

    field: str
    value: object


Row = (
    BatchRow
    | RecordRow
    | LegacyRow
    | OffsetIndexRow
    | TimeIndexRow
    | AbortedTransactionRow
    | ProducerRow
    | ProducerBatchRow
    | CheckpointRow
    | EpochRow
    | FieldRow
    | Problem
)


def dump_batches(data: Buffer, *, is_with_records: bool = False) -> Iterator[Row]:
    """Yield the batches of a `.log` or of a snapshot, each followed by its records if asked for."""
    at = 0
    while at < len(data):
        if not any(memoryview(data)[at : at + BATCH_HEADER_BYTES]):
            hole = f"{len(data) - at} zero bytes follow, as in a preallocated file"
            yield Problem(at, hole, is_damage=False)
            return
        try:
            if magic_at(data, at) < MAGIC:
                yield from _dump_legacy(data, at)
                return
            header = parse_header(data, at)
        except CorruptDataError as error:
            yield Problem(at, error.where)
            return
        if at + header.size_bytes > len(data):
            yield Problem(at, f"a batch of {header.size_bytes} bytes is cut off by the file's end")
            return
        yield _batch_row(data, at, header)
        if is_with_records:
            yield from dump_records(data, at, header)
        at += header.batch_length + LENGTH_END


def _batch_row(data: Buffer, at: int, header: BatchHeader) -> BatchRow:
    try:
        codec = codec_of(header.codec).name.lower()
    except CorruptDataError:
        codec = f"unknown ({header.codec})"
    is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return BatchRow(
        position=at,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=header.record_count,
        size_bytes=header.size_bytes,
        leader_epoch=header.partition_leader_epoch,
        codec=codec,
        timestamp_type="LogAppendTime" if is_append_time else "CreateTime",
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=header.last_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        crc=header.crc,
        is_crc_valid=check_crc(data, at, header),
    )


def _dump_legacy(data: Buffer, at: int) -> Iterator[Row]:
    try:
        for message in messages(memoryview(data)[at:]):
            yield LegacyRow(
                offset=message.offset,
                magic=message.magic,
                codec=message.codec.name.lower(),
                timestamp_ms=message.timestamp_ms,
                key=message.key,
                value=message.value,
            )
    except CorruptDataError as error:
        yield Problem(at, error.where)


def dump_records(data: Buffer, at: int, header: BatchHeader) -> Iterator[RecordRow | Problem]:
    """Yield the records of one batch; control records are read."""
    try:
        for record in scan(data, at, header):
            control = control_text(record) if header.is_control else None
            yield RecordRow(*record, control)
    except CorruptDataError as error:
        yield Problem(at, error.where)


def control_text(record: Record) -> str:
    """Return what a control record says: a transaction's end, or one of raft's own messages."""
    if record.key is None or len(record.key) < _CONTROL_KEY.size:
        return "control record without a type"
    _, number = _CONTROL_KEY.unpack_from(record.key)
    try:
        control_type = ControlType(number)
    except ValueError:
        return f"control record of unknown type {number}"
    value = record.value or b""
    if control_type in (ControlType.ABORT, ControlType.COMMIT):
        if len(value) < _END_MARKER.size:
            return f"{control_type.name} cut off"
        _, coordinator_epoch = _END_MARKER.unpack_from(value)
        return f"{control_type.name} coordinator_epoch={coordinator_epoch}"
    message = RAFT_CONTROL_MESSAGES[control_type]
    lowest, highest = message.VERSIONS[0], message.VERSIONS[-1]
    version = int.from_bytes(value[:2], "big")  # each begins with its own version
    try:
        said, _ = decode_prefix(message, min(max(version, lowest), highest), memoryview(value))
    except ProtocolError as error:
        return f"{control_type.name} unreadable: {error.where}"
    return f"{control_type.name} {said!r}"


def dump_offset_index(data: Buffer, base_offset: Offset) -> Iterator[OffsetIndexRow | Problem]:
    """Yield the entries of `.index`, whose file is named by `base_offset`."""
    last_offset = -1
    for at, (relative, position) in _entries(data, _OFFSET_ENTRY):
        if relative == 0 and position == 0:
            yield from _left_over(data, at)
            return
        if relative <= last_offset:
            yield Problem(at, f"relative offset {relative} follows {last_offset}")
        last_offset = relative
        yield OffsetIndexRow(base_offset + relative, position)
    yield from _cut_entry(data, _OFFSET_ENTRY)


def dump_time_index(data: Buffer, base_offset: Offset) -> Iterator[TimeIndexRow | Problem]:
    """Yield the entries of `.timeindex`, whose file is named by `base_offset`."""
    last_timestamp = -1
    for at, (timestamp_ms, relative) in _entries(data, _TIME_ENTRY):
        if timestamp_ms == 0 and relative == 0:
            yield from _left_over(data, at)
            return
        if timestamp_ms <= last_timestamp:
            yield Problem(at, f"timestamp {timestamp_ms} follows {last_timestamp}")
        last_timestamp = timestamp_ms
        yield TimeIndexRow(timestamp_ms, base_offset + relative)
    yield from _cut_entry(data, _TIME_ENTRY)


def dump_transaction_index(data: Buffer) -> Iterator[AbortedTransactionRow | Problem]:
    """Yield the entries of `.txnindex`."""
    for at, (version, *fields) in _entries(data, _TRANSACTION_ENTRY):
        if version != 0:
            yield Problem(at, f"version {version} is not 0")
            return
        yield AbortedTransactionRow(*fields)
    yield from _cut_entry(data, _TRANSACTION_ENTRY)


def _entries(data: Buffer, entry: Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    for at in range(0, len(data) - entry.size + 1, entry.size):
        yield at, entry.unpack_from(data, at)


def _left_over(data: Buffer, at: int) -> Iterator[Problem]:
    """Preallocated space is no damage; anything but zeros after an empty entry is."""
    if any(memoryview(data)[at:]):
        yield Problem(at, "an empty entry is followed by others")


def _cut_entry(data: Buffer, entry: Struct) -> Iterator[Problem]:
    rest = len(data) % entry.size
    if rest:
        yield Problem(len(data) - rest, f"{rest} bytes are no whole entry")


def dump_producer_snapshot(data: Buffer, end_offset: Offset) -> Iterator[ProducerRow]:
    """Yield the producers of a `.snapshot`; CorruptDataError when its CRC is wrong."""
    states = decode_snapshot(bytes(data), end_offset)
    for producer_id, producer in states.producers.items():
        last = producer.batches[-1] if producer.batches else None
        yield ProducerRow(
            producer_id=producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=producer.coordinator_epoch,
            last_timestamp_ms=producer.last_timestamp_ms,
            first_sequence=None if last is None else last.base_sequence,
            last_sequence=None if last is None else last.last_sequence,
            last_offset=None if last is None else last.last_offset,
            transaction_first_offset=producer.txn_first_offset,
        )


def dump_producer_batches(data: Buffer) -> Iterator[ProducerBatchRow]:
    """Yield the batches of `producer-batches`."""
    for producer_id, last_seen_ms, batches in decode_batches(bytes(data))[1]:
        for batch in batches:
            yield ProducerBatchRow(producer_id, last_seen_ms, *batch)


def dump_checkpoint_topics(data: Buffer) -> Iterator[FieldRow]:
    """Yield the topic ids of `checkpoint-topic-ids`."""
    for partition, topic_id in parse_topic_ids(bytes(data)).items():
        yield FieldRow(str(partition), uuid_to_text(topic_id))


def dump_checkpoint(data: Buffer) -> Iterator[CheckpointRow]:
    """Yield the lines of an offset checkpoint."""
    for (topic, partition), offset in parse_checkpoint(bytes(data)).items():
        yield CheckpointRow(topic, partition, offset)


def dump_epochs(data: Buffer) -> Iterator[EpochRow]:
    """Yield the lines of `leader-epoch-checkpoint`."""
    for epoch, start_offset in decode_epochs(bytes(data)).entries:
        yield EpochRow(epoch, start_offset)


def dump_partition_metadata(data: Buffer) -> Iterator[FieldRow]:
    """Yield the topic id of `partition.metadata`."""
    yield FieldRow("topic_id", uuid_to_text(decode_partition_metadata(bytes(data))))


def rows_or_problem(rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Yield rows; the CorruptDataError of a file read as a whole becomes a `Problem`."""
    try:
        yield from rows()
    except CorruptDataError as error:
        yield Problem(0, error.where)
