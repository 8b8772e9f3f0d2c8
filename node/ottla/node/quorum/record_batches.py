"""Converts metadata records to batches of the log, and batches to changes of an image.

Pure. One append is one batch of protobuf values. Control batches belong to raft. In an image, they
change only the provenance.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import Provenance
from ottla.metadata.records import Record, decode_record, encode_record
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import METADATA_BATCH_BYTES_MAX
from ottla.wire.batch import BatchHeader, batches, check_crc
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

SNAPSHOT_BATCH_BYTES = 1 << 20
"""Number of bytes of records in one batch of a metadata snapshot. A larger batch costs more memory;
smaller batches cost more fsyncs."""


SLICE_RECORDS = 100
"""Number of metadata records that are applied before other tasks may run (a few ms). With a larger
number, all other tasks are delayed for longer."""


def batch_of(records: Sequence[Record], *, timestamp_ms: int) -> bytes:
    """Return metadata records encoded as one batch, which is atomic in the metadata log.

    Raises RefusedError(POLICY_VIOLATION) if the batch is too large.
    """
    assert records
    builder = BatchBuilder()
    for record in records:
        builder.append(timestamp_ms, None, encode_record(record))
    if builder.size_bytes > METADATA_BATCH_BYTES_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION,
            f"the change needs {builder.size_bytes} bytes of records;"
            f" at most {METADATA_BATCH_BYTES_MAX} fit into one batch",
        )
    return builder.build()


def snapshot_data_batches(
    records: Iterable[Record], *, timestamp_ms: int, epoch: Epoch, base_offset: Offset
) -> Iterator[bytes]:
    """Yield metadata records encoded as batches of a snapshot, with offsets from `base_offset` on.

    Yields b"" after each `SLICE_RECORDS` records, so that other tasks may run before a batch is
    complete.
    """
    builder = BatchBuilder()
    for count, record in enumerate(records, 1):
        builder.append(timestamp_ms, None, encode_record(record))
        if count % SLICE_RECORDS == 0:
            yield b""
        if builder.size_bytes >= SNAPSHOT_BATCH_BYTES:
            yield builder.build(base_offset=base_offset, leader_epoch=epoch)
            base_offset = Offset(base_offset + builder.record_count)
            builder = BatchBuilder()
    if builder.record_count:
        yield builder.build(base_offset=base_offset, leader_epoch=epoch)


def read_records(data: bytes) -> tuple[Record, ...]:
    """Return the metadata records in whole batches, without raft's control records. For short
    files.

    Raises CorruptDataError if a batch or record is damaged.
    """
    found: list[Record] = []
    for at, header in batches(memoryview(data)):
        _check(data, at, header)
        if not header.is_control:
            found.extend(_records_of(data, at, header))
    return tuple(found)


def replay(delta: MetadataDelta, data: bytes) -> Provenance | None:
    """Apply the metadata records of the whole batches in `data` to a delta of an image. Returns
    the provenance (offset, epoch and timestamp) of the last record, or None if `data` has no
    records."""
    last: Provenance | None = None
    for provenance in replay_in_slices(delta, data):
        last = provenance
    return last


def replay_in_slices(delta: MetadataDelta, data: bytes) -> Iterator[Provenance]:
    """Apply the metadata records of the whole batches in `data` to a delta of an image, about
    `SLICE_RECORDS` records at a time.

    Yields the provenance (offset, epoch and timestamp) of the current batch after each slice and at
    the end. A provenance is valid once its batch is applied completely.
    """
    provenance: Provenance | None = None
    folded_count = 0
    for at, header in batches(memoryview(data)):
        _check(data, at, header)
        provenance = Provenance(
            header.last_offset, header.partition_leader_epoch, header.max_timestamp
        )
        if header.is_control:
            continue
        records = _records_of(data, at, header)
        while piece := list(islice(records, SLICE_RECORDS)):
            delta.replay_all(piece)
            folded_count += len(piece)
            if folded_count >= SLICE_RECORDS:
                folded_count = 0
                yield provenance
    if provenance is not None:
        yield provenance


def _check(data: bytes, at: int, header: BatchHeader) -> None:
    if not check_crc(data, at, header):
        raise CorruptDataError(f"metadata log: the batch at offset {header.base_offset}")


def _records_of(data: bytes, at: int, header: BatchHeader) -> Iterator[Record]:
    for record in scan(data, at, header):
        yield decode_record(_value_of(record.value, record.offset))


def _value_of(value: bytes | None, offset: int) -> bytes:
    if value is None:
        raise CorruptDataError(f"metadata log: no value at offset {offset}")
    return value
