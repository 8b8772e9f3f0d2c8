"""What a leader checks before it appends, and the bytes it writes in front of the records.

The header is always checked; records are looked at only where the topic demands it
(`record.validation=full`, compaction, a codec of its own).  Refusals carry Kafka's codes.
"""

from struct import Struct

from crc32c import crc32c

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import BATCH_HEADER_BYTES, INT64_MAX
from ottla.storage.append_info import AppendOrigin
from ottla.storage.log_config import LogConfig
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
    PREFIX_BYTES,
    BatchHeader,
    parse_header,
    patched_header,
    patched_prefix,
)
from ottla.wire.compression import Codec, compress
from ottla.wire.records import record_body, scan

_BEFORE_CRC = Struct(">qiib")
_AFTER_CRC = Struct(">hiqqqhii")


def first_header(records: memoryview, origin: AppendOrigin, config: LogConfig) -> BatchHeader:
    """Read and check the frame of the batch at the start: size, magic, CRC."""
    size = len(records)
    if size > MAGIC_AT and records[MAGIC_AT] != MAGIC:
        raise RefusedError(
            ErrorCode.INVALID_RECORD, f"Only record batches of magic {MAGIC} are accepted"
        )
    if size == 0:
        raise RefusedError(ErrorCode.INVALID_RECORD, "There is no record batch")
    try:
        header = parse_header(records)
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
    batch_size = header.batch_length + LENGTH_END
    if batch_size > size:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, "The record batch is cut off")
    if origin is AppendOrigin.CLIENT:
        if batch_size < size:
            raise RefusedError(
                ErrorCode.INVALID_RECORD, "A partition takes exactly one record batch a request"
            )
        if batch_size > config.max_message_bytes:
            raise RefusedError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size is {batch_size} bytes, which exceeds the maximum "
                f"configured value of {config.max_message_bytes}",
            )
    if crc32c(records[CRC_START:batch_size]) != header.crc:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, "The record batch's CRC is wrong")
    return header


def check_header(
    header: BatchHeader, config: LogConfig, origin: AppendOrigin, *, now_ms: int
) -> None:
    """Check what a header says of its records; what a coordinator of ours may do, a client not."""
    count = header.record_count
    if count <= 0 or count != header.last_offset_delta + 1:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"The batch's record count {count} does not fit its last offset delta "
            f"{header.last_offset_delta}",
        )
    attributes = header.attributes
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"There is no codec {attributes & CODEC_MASK}"
        )
    if origin is not AppendOrigin.CLIENT:
        return
    if header.base_offset != 0:
        raise RefusedError(ErrorCode.INVALID_RECORD, "A produced batch's base offset is not 0")
    if attributes & CONTROL_FLAG:
        raise RefusedError(ErrorCode.INVALID_RECORD, "Clients do not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise RefusedError(
            ErrorCode.INVALID_RECORD,
            f"Invalid sequence number {header.base_sequence} in a batch with a producer id",
        )
    if attributes & LOG_APPEND_TIME_FLAG:
        raise RefusedError(ErrorCode.INVALID_TIMESTAMP, "Producers do not set LogAppendTime")
    if not config.is_log_append_time:
        check_timestamp(header.max_timestamp, config, now_ms=now_ms)
        if config.message_timestamp_before_max_ms != INT64_MAX:
            check_timestamp(header.base_timestamp, config, now_ms=now_ms)


def check_timestamp(timestamp_ms: int, config: LogConfig, *, now_ms: int) -> None:
    """Refuse a timestamp too far from the leader's clock; -1 stands for none."""
    if timestamp_ms == NO_TIMESTAMP:
        return
    if (
        timestamp_ms - now_ms > config.message_timestamp_after_max_ms
        or now_ms - timestamp_ms > config.message_timestamp_before_max_ms
    ):
        raise RefusedError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamp {timestamp_ms} is out of range: it should be within "
            f"[{now_ms - config.message_timestamp_before_max_ms}, "
            f"{now_ms + config.message_timestamp_after_max_ms}]",
        )


def check_records(
    records: memoryview, header: BatchHeader, config: LogConfig, *, now_ms: int
) -> None:
    """Look at every record: dense offsets, timestamps, and keys where the topic keeps by key."""
    expected = header.base_offset
    try:
        for record in scan(records, 0, header):
            if record.offset != expected:
                raise RefusedError(
                    ErrorCode.INVALID_RECORD, f"Offset delta of record {expected} is wrong"
                )
            if config.is_compacted and record.key is None and not header.is_control:
                raise RefusedError(
                    ErrorCode.INVALID_RECORD, "Compacted topic cannot accept message without key"
                )
            if not config.is_log_append_time:
                check_timestamp(record.timestamp_ms, config, now_ms=now_ms)
            expected = Offset(expected + 1)
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.INVALID_RECORD, error.where) from None


def recoded(records: memoryview, header: BatchHeader, codec: Codec) -> memoryview:
    """Return the batch with its records compressed by another codec."""
    try:
        body = record_body(records, 0, header)
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.INVALID_RECORD, error.where) from None
    packed = body if codec is Codec.NONE else compress(codec, body)
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
    crc = crc32c(packed, crc32c(after_crc))
    return memoryview(b"".join((before_crc, crc.to_bytes(4, "big"), after_crc, packed)))


def gathered(
    records: memoryview,
    header: BatchHeader,
    *,
    base_offset: Offset,
    leader_epoch: Epoch,
    log_append_time_ms: int,
) -> tuple[bytes, memoryview]:
    """Return what is written: a patched start and the untouched rest, no record byte copied."""
    if log_append_time_ms == NO_TIMESTAMP:
        prefix = patched_prefix(header, base_offset=base_offset, leader_epoch=leader_epoch)
        return prefix, records[PREFIX_BYTES : header.batch_length + LENGTH_END]
    start = patched_header(
        records,
        0,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        log_append_time_ms=log_append_time_ms,
    )
    return start, records[BATCH_HEADER_BYTES : header.batch_length + LENGTH_END]
