"""The leader's checks of batches before an append, and the header fields that the leader sets.

The header is always checked. Records are decoded only in two cases:
- The topic requires it: `record.validation=full`, compaction, or a `compression.type` that differs
  from the batch's.
- The header contradicts itself. The header's maximum timestamp is then computed from the records,
  as in Kafka.

Otherwise the header is trusted: a wrong header affects only its own batch. Refusals have Kafka's
codes.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, TypeAlias

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import (
    BATCH_HEADER_BYTES,
    DECOMPRESSED_BATCH_BYTES_MAX,
    KIB,
    MIB,
)
from ottla.storage.disk.disk_seam import Chunk
from ottla.storage.segments.append_info import AppendOrigin
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    PREFIX,
    PREFIX_BYTES,
    BatchHeader,
    HeaderFields,
    header_of,
    parse_header,
    patch_max_timestamp,
    patched_header,
)
from ottla.wire.codec_types import Records
from ottla.wire.compression import Codec, UnpacksToTooMuchError, compress
from ottla.wire.crc import crc32c
from ottla.wire.records import read_varint, record_body, scan_body_as

INSPECTED_RECORDS_MAX = 100_000
"""Maximum number of records in a batch whose records the leader inspects; larger batches are
refused. A smaller number makes producers split legitimate batches (Java's producer splits at
MESSAGE_TOO_LARGE). With a larger one, a megabyte may cost seconds of processor time."""

UNPACKED_RATIO_MAX = 16
"""Maximum decompressed size of a batch whose records the leader inspects, as a multiple of
`max.message.bytes`. Producers limit a batch by approximately its decompressed size."""

UNPACKED_BYTES_MIN = 4 * MIB
"""Decompressed size in bytes up to which the leader inspects any batch, even if `max.message.bytes`
is small."""

NEEDS_KEY = "Compacted topic cannot accept message without key"

RECORD_ERRORS_MAX = 1_000
"""Maximum number of invalid records of one batch that the response to the producer lists. A
producer assumes that all other records are valid, so with a smaller number, it would treat invalid
records as valid. With a larger number, a small compressed batch could cause a large response."""
RECORD_ERRORS_SHOWN = 3
"""Number of invalid records that the message text of a refusal names, as in Kafka."""

RECORDS_INLINE, BYTES_INLINE = 500, MIB
"""Largest uncompressed batch whose records are inspected on the event loop, in records and bytes.
500 records take 1 ms, and 1 MiB takes 0.1 ms more. With smaller numbers, more batches are inspected
in a thread, which costs a batch of 120 records several times its inspection, and delays the next
request of its connection. With larger numbers, the event loop is blocked for longer."""
PACKED_RECORDS_INLINE, PACKED_BYTES_INLINE = 200, 4 * KIB
"""Largest compressed batch whose records are inspected on the event loop, in records and bytes. The
size after decompression is unknown before it."""

ATTRIBUTES_AT, RECORD_COUNT_AT = 21, 57

_NOT_FOR_CLIENTS: Final = CONTROL_FLAG | LOG_APPEND_TIME_FLAG
_CLIENT: Final = AppendOrigin.CLIENT
_LAST_CODEC: Final = int(Codec.ZSTD)
"""Number of the last compression codec. It is a constant because accessing an enum member costs as
much as the comparison."""

_BATCH_LENGTH: Final = 1
_ATTRIBUTES: Final = 5
"""Positions of two fields in a batch header."""

_unpack_header: Final = HEADER.unpack_from
_crc32c: Final = crc32c
_pack_prefix: Final = PREFIX.pack
_patch_prefix: Final = PREFIX.pack_into
_attributes: Final = Struct(">h").unpack_from
_record_count: Final = Struct(">i").unpack_from
_BEFORE_CRC: Final = Struct(">qiib")
_AFTER_CRC: Final = Struct(">hiqqqhii")


Accepted: TypeAlias = tuple[HeaderFields, memoryview, int]
"""A batch that may be appended: header fields, bytes in the topic's codec, and the size of the
batch in the request. Both tuples are plain because they are created for each append: a BatchHeader
takes as long as the check of all its fields, and most appends need four of them."""


class RecordsToInspectError(Exception):
    """Raised for a batch whose records must be inspected in a thread, because that takes too long
    for the event loop."""


def checked_header(
    records: memoryview, origin: AppendOrigin, config: LogConfig, now_ms: int
) -> tuple[HeaderFields, bool]:
    """Check the header of the first batch. Returns the header's fields, and whether its timestamps
    are suspect.

    The header's size, CRC and counts are valid. The broker's own coordinators may write
    some kinds of batches that clients may not write. Timestamps of a client are suspect if they
    contradict each other, or are too far from the leader's clock.
    """
    size = len(records)
    if size < BATCH_HEADER_BYTES:
        raise _refusal_of_start(records)
    fields: HeaderFields = _unpack_header(records)
    (
        base_offset,
        batch_length,
        _leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        earliest_ms,
        latest_ms,
        producer_id,
        _producer_epoch,
        base_sequence,
        count,
    ) = fields
    batch_size = batch_length + LENGTH_END
    if magic != MAGIC or not BATCH_HEADER_BYTES <= batch_size <= size:
        raise _refusal_of_start(records)
    is_client = origin is _CLIENT
    if is_client and not size == batch_size <= config.max_message_bytes:
        raise _refusal_of_size(batch_size, size, config)
    if _crc32c(records[CRC_START:batch_size]) != crc:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, "The record batch's CRC is wrong")
    if count <= 0 or count != last_offset_delta + 1 or attributes & CODEC_MASK > _LAST_CODEC:
        raise _refusal_of_records(header_of(fields))
    if not is_client:
        return fields, False
    if base_offset != 0 or attributes & _NOT_FOR_CLIENTS or (producer_id >= 0 > base_sequence):
        raise _refusal_of_client(header_of(fields))
    before_max_ms = config.message_timestamp_before_max_ms
    after_max_ms = config.message_timestamp_after_max_ms
    # The condition of almost every batch: no timestamp of it is suspect. The settings are not
    # operands of a sum, because their defaults do not fit into the small integers of compiled code.
    if (
        earliest_ms <= latest_ms
        and now_ms - earliest_ms <= before_max_ms
        and latest_ms - now_ms <= after_max_ms
    ):
        return fields, False
    if config.is_log_append_time:
        return fields, False
    # The base timestamp is that of the first record, so the maximum cannot be below it.
    is_suspect = (
        latest_ms < earliest_ms
        or (
            latest_ms != NO_TIMESTAMP
            and (latest_ms - now_ms > after_max_ms or now_ms - latest_ms > before_max_ms)
        )
        or (earliest_ms != NO_TIMESTAMP and now_ms - earliest_ms > before_max_ms)
    )
    return fields, is_suspect


def _refusal_of_start(records: memoryview) -> RefusedError:
    """Return the RefusedError for produced records that do not begin with a complete batch."""
    size = len(records)
    if size > MAGIC_AT and records[MAGIC_AT] != MAGIC:
        return RefusedError(
            ErrorCode.INVALID_RECORD, f"Only record batches of magic {MAGIC} are accepted"
        )
    if size == 0:
        return RefusedError(ErrorCode.INVALID_RECORD, "There is no record batch")
    try:
        parse_header(records)
    except CorruptDataError as error:
        return RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where)
    return RefusedError(ErrorCode.CORRUPT_MESSAGE, "The record batch is cut off")


def _refusal_of_size(batch_size: int, size: int, config: LogConfig) -> RefusedError:
    """Return the RefusedError for a producer's batch whose size is not permitted."""
    if batch_size < size:
        return RefusedError(
            ErrorCode.INVALID_RECORD, "A partition accepts exactly one record batch per request"
        )
    return RefusedError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {batch_size} bytes, which exceeds the maximum "
        f"configured value of {config.max_message_bytes}",
    )


def _refusal_of_records(header: BatchHeader) -> RefusedError:
    """Return the RefusedError for a batch header with a wrong record count or codec."""
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        return RefusedError(
            ErrorCode.INVALID_RECORD,
            f"The batch's record count {header.record_count} does not fit its last offset delta "
            f"{header.last_offset_delta}",
        )
    return RefusedError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no codec {header.codec}")


def _refusal_of_client(header: BatchHeader) -> RefusedError:
    """Return the RefusedError for a batch header that a producer must not send."""
    if header.base_offset != 0:
        return RefusedError(ErrorCode.INVALID_RECORD, "A produced batch's base offset is not 0")
    if header.is_control:
        return RefusedError(ErrorCode.INVALID_RECORD, "Clients do not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in a batch with a producer id",
        )
    return RefusedError(ErrorCode.INVALID_TIMESTAMP, "Producers do not set LogAppendTime")


def accepted(
    records: memoryview,
    origin: AppendOrigin,
    config: LogConfig,
    now_ms: int,
    *,
    is_in_thread: bool = False,
) -> Accepted:
    """Check the first batch of an append. Returns its header fields, its bytes in the topic's
    codec, and its size in the request.

    Uses no state of the log, so that records may be inspected outside the event loop
    (`is_in_thread`). Raises RefusedError with Kafka's code. On the event loop, raises
    RecordsToInspectError if the header of a large batch contradicts itself.
    """
    fields, is_suspect = checked_header(records, origin, config, now_ms)
    taken_bytes = fields[_BATCH_LENGTH] + LENGTH_END
    if not (is_suspect or config.inspects_batches):
        return fields, records, taken_bytes
    attributes = fields[_ATTRIBUTES]
    codec = attributes & CODEC_MASK
    if config.codec is not None and config.codec != codec and not attributes & CONTROL_FLAG:
        header = header_of(fields)
        max_timestamp = check_records(records, header, config, now_ms=now_ms)
        if not config.is_log_append_time:
            header = header._replace(max_timestamp=max_timestamp)
        records = recoded(records, header, config.codec, config.compression_level)
        fields, _ = checked_header(records, origin, config, now_ms)
    elif is_suspect or (
        origin is _CLIENT
        and (
            config.is_every_record_checked
            or config.is_compacted
            or (codec and config.max_decompressed_record_bytes is not None)
        )
    ):
        # If timestamps of the header are wrong, the refusal names the records that have them.
        if is_suspect and not is_in_thread and is_costly(records):
            raise RecordsToInspectError
        header = header_of(fields)
        max_timestamp = check_records(records, header, config, now_ms=now_ms)
        if max_timestamp != header.max_timestamp and not config.is_log_append_time:
            patched = bytearray(records[:taken_bytes])
            patch_max_timestamp(patched, 0, max_timestamp=max_timestamp)
            records = memoryview(patched)
            fields, _ = checked_header(records, origin, config, now_ms)
    return fields, records, taken_bytes


class InvalidRecordsError(RefusedError):
    """Error for records that violate the rules of their topic, each with its index in the batch
    (KIP-467).

    `record_errors` contains the first RECORD_ERRORS_MAX errors, as (batch index, message).
    """

    def __init__(
        self, code: ErrorCode, record_errors: Sequence[tuple[int, str]], *, error_count: int
    ) -> None:
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{message}')"
            for index, message in record_errors[:RECORD_ERRORS_SHOWN]
        )
        super().__init__(
            code,
            "One or more records have been rejected due to invalid timestamp"
            if code is ErrorCode.INVALID_TIMESTAMP
            else f"One or more records have been rejected due to {error_count} record errors in "
            f"total, and only showing the first three errors at most: [{shown}]",
        )
        self.record_errors = record_errors
        self._error_count = error_count

    def located(self, partition: str) -> "InvalidRecordsError":
        """Return a copy of the error with the partition's name in its message, at the same place as
        in Kafka's messages."""
        return InvalidRecordsError(
            self.code,
            [
                (
                    index,
                    f"{NEEDS_KEY} in topic partition {partition}" if text == NEEDS_KEY else text,
                )
                for index, text in self.record_errors
            ],
            error_count=self._error_count,
        )


def is_costly(records: Records) -> bool:
    """Return whether inspecting the records of a batch takes too long for the event loop."""
    assert isinstance(records, (memoryview, bytes, bytearray))
    if len(records) < BATCH_HEADER_BYTES:
        return False
    (attributes,) = _attributes(records, ATTRIBUTES_AT)
    (record_count,) = _record_count(records, RECORD_COUNT_AT)
    if attributes & CODEC_MASK:
        return bool(record_count > PACKED_RECORDS_INLINE or len(records) > PACKED_BYTES_INLINE)
    return bool(record_count > RECORDS_INLINE or len(records) > BYTES_INLINE)


def check_records(
    records: memoryview, header: BatchHeader, config: LogConfig, *, now_ms: int
) -> int:
    """Check every record of a batch: consecutive offsets, timestamps, and keys if the topic is
    compacted. Returns the largest timestamp of the records in ms."""
    if header.record_count > INSPECTED_RECORDS_MAX:
        raise RefusedError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"The batch has {header.record_count} records; if each must be checked, at most "
            f"{INSPECTED_RECORDS_MAX} are allowed",
        )
    wants_key = config.is_compacted and not header.is_control
    earliest, latest = 0, -1
    if not config.is_log_append_time:
        earliest = now_ms - config.message_timestamp_before_max_ms
        latest = now_ms + config.message_timestamp_after_max_ms
    expected = header.base_offset
    max_timestamp = NO_TIMESTAMP
    errors: list[tuple[int, str]] = []
    error_count, code = 0, ErrorCode.INVALID_RECORD
    try:
        body = record_body(records, 0, header, unpacked_bytes_max(config))
        if config.max_decompressed_record_bytes is not None and header.codec:
            _check_sizes(body, header.record_count, config.max_decompressed_record_bytes)
        for offset, timestamp_ms, has_key in scan_body_as(_checked_fields, body, header):
            if offset != expected:
                raise RefusedError(
                    ErrorCode.INVALID_RECORD, f"Offset delta of record {expected} is wrong"
                )
            if wants_key and not has_key:
                error_count += 1
                if len(errors) < RECORD_ERRORS_MAX:
                    errors.append((offset - header.base_offset, NEEDS_KEY))
            elif (
                latest >= 0
                and not earliest <= timestamp_ms <= latest
                and timestamp_ms != NO_TIMESTAMP
            ):
                code = ErrorCode.INVALID_TIMESTAMP
                error_count += 1
                if len(errors) < RECORD_ERRORS_MAX:
                    errors.append(
                        (
                            offset - header.base_offset,
                            _too_far(offset, timestamp_ms, earliest, latest),
                        )
                    )
            expected = Offset(expected + 1)
            if timestamp_ms > max_timestamp:
                max_timestamp = timestamp_ms
    except UnpacksToTooMuchError as excess:
        raise RefusedError(ErrorCode.MESSAGE_TOO_LARGE, excess.where) from None
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.INVALID_RECORD, error.where) from None
    if errors:
        raise InvalidRecordsError(code, errors, error_count=error_count)
    return max_timestamp


def _check_sizes(body: bytes, record_count: int, bound: int) -> None:
    """Refuse a decompressed batch if one of its records is larger than `bound` bytes, before that
    record is decoded. Raises CorruptDataError if the records do not fit into `body`, the
    decompressed bytes."""
    at = 0
    for _ in range(record_count):
        length, at = read_varint(body, at, len(body))
        if length > bound:
            raise RefusedError(
                ErrorCode.INVALID_RECORD,
                f"Invalid record size: {length} exceeds the configured maximum record size of "
                f"{bound}.",
            )
        at += max(length, 0)


def _too_far(offset: Offset, timestamp_ms: int, earliest: int, latest: int) -> str:
    return (
        f"Timestamp {timestamp_ms} of message with offset {offset} is out of range. "
        f"The timestamp should be within [{earliest}, {latest}]"
    )


def unpacked_bytes_max(config: LogConfig) -> int:
    """Return the largest decompressed size, in bytes, of a batch whose records the leader
    inspects."""
    bound = max(UNPACKED_BYTES_MIN, UNPACKED_RATIO_MAX * config.max_message_bytes)
    return min(bound, DECOMPRESSED_BATCH_BYTES_MAX)


def _checked_fields(
    offset: Offset, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: object
) -> tuple[Offset, int, bool]:
    """Return the offset and timestamp (ms) of a record, and whether the record has a key."""
    return offset, timestamp_ms, key is not None


def recoded(
    records: memoryview, header: BatchHeader, codec: Codec, level: int | None = None
) -> memoryview:
    """Return a copy of the batch whose records are compressed by `codec`. `level` is the
    compression level, or None for the default of the codec's library."""
    try:
        body = record_body(records, 0, header)
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.INVALID_RECORD, error.where) from None
    packed = body if codec is Codec.NONE else compress(codec, body, level)
    after_crc = _AFTER_CRC.pack(
        header.attributes & ~CODEC_MASK | codec,
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    before_crc = _BEFORE_CRC.pack(
        header.base_offset,
        HEADER.size - LENGTH_END + len(packed),
        header.partition_leader_epoch,
        MAGIC,
    )
    crc = _crc32c(packed, _crc32c(after_crc))
    return memoryview(b"".join((before_crc, crc.to_bytes(4, "big"), after_crc, packed)))


def gather(
    chunks: list[Chunk],
    records: memoryview,
    size: int,
    base_offset: Offset,
    leader_epoch: Epoch,
    log_append_time_ms: int,
) -> None:
    """Append to `chunks` the bytes to write for a batch of `size` bytes, with the header fields
    that the leader sets. Record bytes are not copied.

    A batch in writable memory is changed in place, because it is not read again. Any other batch
    becomes two chunks: a changed header and the untouched rest.
    """
    if log_append_time_ms != NO_TIMESTAMP:
        start = patched_header(
            records,
            0,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            log_append_time_ms=log_append_time_ms,
        )
        chunks.append(start)
        chunks.append(records[BATCH_HEADER_BYTES:size])
    elif records.readonly:
        chunks.append(_pack_prefix(base_offset, size - LENGTH_END, leader_epoch))
        chunks.append(records[PREFIX_BYTES:size])
    else:
        _patch_prefix(records, 0, base_offset, size - LENGTH_END, leader_epoch)
        chunks.append(records if len(records) == size else records[:size])
