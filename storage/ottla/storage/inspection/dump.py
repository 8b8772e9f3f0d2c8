"""Rows for every kind of file in a log directory: the content of `ottla log dump`.

The functions are pure iterators over a file, which is read in blocks. Corrupt data never raises an
error, because a dump exists to show damage: the row before the damage is followed by a `Problem`
with position and reason. Rows of index entries report violations of their order; `index_checks.py`
compares the entries with the log.
"""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.ids import Offset
from ottla.storage.directories.checkpoint_file import parse_checkpoint
from ottla.storage.directories.checkpoint_topics import parse_topic_ids
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.inspection.batch_walk import BatchRow, Problem, records_of, walk
from ottla.storage.inspection.readable import Readable, Window, entries, readable
from ottla.storage.producers.producer_batches import decode_batches
from ottla.storage.producers.producer_snapshot import decode_snapshot
from ottla.storage.segments.epoch_cache import decode_epochs
from ottla.storage.segments.partition_metadata import decode_partition_metadata
from ottla.wire.batch import Buffer
from ottla.wire.batch_builder import ControlType
from ottla.wire.codec import decode_prefix
from ottla.wire.codec_types import Message
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.messages.voters_record import VotersRecord
from ottla.wire.records import Record

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


class RecordRow(NamedTuple):
    """Row of a dump for one record of a batch."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    control: str | None
    """Meaning of a control record as text (for example, the end of a transaction). None for a data
    record."""


class OffsetIndexRow(NamedTuple):
    """Row of a dump for one entry of an offset index (`.index`)."""

    offset: int
    position: int


class TimeIndexRow(NamedTuple):
    """Row of a dump for one entry of a time index (`.timeindex`)."""

    timestamp_ms: int
    offset: int


class AbortedTransactionRow(NamedTuple):
    """Row of a dump for one entry of a transaction index (`.txnindex`)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class ProducerRow(NamedTuple):
    """Row of a dump for one producer in a producer snapshot (`.snapshot`)."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp_ms: int
    first_sequence: int | None
    last_sequence: int | None
    last_offset: int | None
    transaction_first_offset: int


class ProducerBatchRow(NamedTuple):
    """Row of a dump for one batch in a `producer-batches` file."""

    producer_id: int
    last_seen_ms: int
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp_ms: int


class CheckpointRow(NamedTuple):
    """Row of a dump for one line of an offset checkpoint file."""

    topic: str
    partition: int
    offset: int
    topic_id: str | None = None
    """The topic id of the checkpoint line, or None if the log directory has no
    `checkpoint-topic-ids` file."""


class EpochRow(NamedTuple):
    """Row of a dump for one line of `leader-epoch-checkpoint`."""

    leader_epoch: int
    start_offset: int


class FieldRow(NamedTuple):
    """Row of a dump for one field of a small file such as `partition.metadata`."""

    field: str
    value: object


Row = (
    BatchRow
    | RecordRow
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


def dump_batches(file: Readable | Buffer, *, is_with_records: bool = False) -> Iterator[Row]:
    """Yield a row for each batch of a `.log` or of a metadata snapshot, followed by rows of its
    records if `is_with_records`."""
    source = readable(file)
    for row in walk(source):
        yield row
        if is_with_records and isinstance(row, BatchRow):
            yield from dump_records(source, row)


def dump_records(file: Readable, batch: BatchRow) -> Iterator[RecordRow | Problem]:
    """Yield a row for each record of one batch. The row of a control record includes the meaning of
    the record."""
    try:
        for record in records_of(file, batch):
            control = control_text(record) if batch.is_control else None
            yield RecordRow(*record, control)
    except CorruptDataError as error:
        yield Problem(batch.position, error.where)


def control_text(record: Record) -> str:
    """Return the meaning of a control record as text: the end of a transaction, or a message of
    raft."""
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
    version = int.from_bytes(value[:2], "big")  # each value begins with its own version
    try:
        said, _ = decode_prefix(message, min(max(version, lowest), highest), memoryview(value))
    except ProtocolError as error:
        return f"{control_type.name} unreadable: {error.where}"
    return f"{control_type.name} {said!r}"


class Entry(NamedTuple):
    """An entry of an index file, with its position in the file in bytes."""

    position: int
    row: OffsetIndexRow | TimeIndexRow | AbortedTransactionRow
    problem: str | None
    """Description of the damage to an index entry, or None if the entry is valid."""


def offset_entries(file: Readable, base_offset: int) -> Iterator[Entry | Problem]:
    """Yield the entries of an offset index (`.index`) whose file name is `base_offset`."""
    last_offset = last_position = -1
    for at, (relative, position) in entries(file, _OFFSET_ENTRY):
        if relative == 0 and position == 0:
            yield from _left_over(file, at)
            return
        problem = None
        if relative <= last_offset:
            problem = f"relative offset {relative} follows {last_offset}"
        elif position <= last_position:
            problem = f"position {position} follows {last_position}"
        last_offset, last_position = relative, position
        yield Entry(at, OffsetIndexRow(base_offset + relative, position), problem)
    yield from _cut_entry(file, _OFFSET_ENTRY)


def time_entries(file: Readable, base_offset: int) -> Iterator[Entry | Problem]:
    """Yield the entries of a time index (`.timeindex`) whose file name is `base_offset`."""
    last_timestamp = last_offset = -1
    for at, (timestamp_ms, relative) in entries(file, _TIME_ENTRY):
        if timestamp_ms == 0 and relative == 0:
            yield from _left_over(file, at)
            return
        problem = None
        if timestamp_ms <= last_timestamp:
            problem = f"timestamp {timestamp_ms} follows {last_timestamp}"
        elif relative < 0 or relative < last_offset:
            problem = f"relative offset {relative} follows {last_offset}"
        last_timestamp, last_offset = timestamp_ms, relative
        yield Entry(at, TimeIndexRow(timestamp_ms, base_offset + relative), problem)
    yield from _cut_entry(file, _TIME_ENTRY)


def transaction_entries(file: Readable) -> Iterator[Entry | Problem]:
    """Yield the entries of a transaction index (`.txnindex`)."""
    last_offset = -1
    for at, (version, *fields) in entries(file, _TRANSACTION_ENTRY):
        if version != 0:
            yield Problem(at, f"version {version} is not 0")
            return
        row = AbortedTransactionRow(*fields)
        problem = None
        if row.last_offset <= last_offset:
            problem = f"last offset {row.last_offset} follows {last_offset}"
        elif row.first_offset > row.last_offset:
            problem = f"its first offset is above its last offset {row.last_offset}"
        last_offset = row.last_offset
        yield Entry(at, row, problem)
    yield from _cut_entry(file, _TRANSACTION_ENTRY)


def dump_offset_index(file: Readable | Buffer, base_offset: Offset) -> Iterator[Row]:
    """Yield a row for each entry of an offset index (`.index`) whose file name is `base_offset`."""
    yield from _rows(offset_entries(readable(file), base_offset))


def dump_time_index(file: Readable | Buffer, base_offset: Offset) -> Iterator[Row]:
    """Yield a row for each entry of a time index (`.timeindex`) whose file name is
    `base_offset`."""
    yield from _rows(time_entries(readable(file), base_offset))


def dump_transaction_index(file: Readable | Buffer) -> Iterator[Row]:
    """Yield a row for each entry of a transaction index (`.txnindex`)."""
    yield from _rows(transaction_entries(readable(file)))


def _rows(found: Iterator[Entry | Problem]) -> Iterator[Row]:
    for each in found:
        if isinstance(each, Problem):
            yield each
            continue
        if each.problem is not None:
            yield Problem(each.position, each.problem)
        yield each.row


def _left_over(file: Readable, at: int) -> Iterator[Problem]:
    """Yield a problem if nonzero bytes follow an empty entry of an index file. Preallocated zeros
    are not damage."""
    if Window(file).first_nonzero(at) is not None:
        yield Problem(at, "an empty entry is followed by others")


def _cut_entry(file: Readable, entry: Struct) -> Iterator[Problem]:
    rest = file.size_bytes % entry.size
    if rest:
        yield Problem(file.size_bytes - rest, f"{rest} bytes are no whole entry")


def dump_producer_snapshot(data: Buffer, end_offset: Offset) -> Iterator[ProducerRow]:
    """Yield a row for each producer of a producer snapshot (`.snapshot`). Raises CorruptDataError
    if the CRC of the file is wrong."""
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
    """Yield a row for each batch of a `producer-batches` file."""
    for producer_id, last_seen_ms, batches in decode_batches(bytes(data))[1]:
        for batch in batches:
            yield ProducerBatchRow(producer_id, last_seen_ms, *batch)


def dump_checkpoint_topics(data: Buffer) -> Iterator[FieldRow]:
    """Yield a row for each topic id of a `checkpoint-topic-ids` file."""
    for partition, topic_id in parse_topic_ids(bytes(data)).items():
        yield FieldRow(str(partition), uuid_to_text(topic_id))


def dump_checkpoint(data: Buffer) -> Iterator[CheckpointRow]:
    """Yield a row for each line of an offset checkpoint. An empty file, as Kafka first creates it,
    has no lines."""
    if not data:
        return
    for (topic, partition), offset in parse_checkpoint(bytes(data)).items():
        yield CheckpointRow(topic, partition, offset)


def dump_epochs(data: Buffer) -> Iterator[EpochRow]:
    """Yield a row for each line of a `leader-epoch-checkpoint` file."""
    for epoch, start_offset in decode_epochs(bytes(data)).entries:
        yield EpochRow(epoch, start_offset)


def dump_partition_metadata(data: Buffer) -> Iterator[FieldRow]:
    """Yield a row for the topic id of a `partition.metadata` file."""
    yield FieldRow("topic_id", uuid_to_text(decode_partition_metadata(bytes(data))))


def rows_or_problem(rows: Callable[[], Iterator[Row]]) -> Iterator[Row]:
    """Yield the rows of a file's dump. If the file is corrupt as a whole, yield a `Problem` instead
    of raising CorruptDataError."""
    try:
        yield from rows()
    except CorruptDataError as error:
        yield Problem(0, error.where)
