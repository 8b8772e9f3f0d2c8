"""Builder of v2 record batches, with data or control records.

A builder collects the records of one batch; `build` compresses them, adds the header and sets the
CRC. `batch.py` and `records.py` are the corresponding readers.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from ottla.model.ids import NO_EPOCH, NO_PRODUCER_ID, Epoch, Offset, ProducerId
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.batch import (
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    LENGTH_END,
    LOG_APPEND_TIME_FLAG,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    Buffer,
)
from ottla.wire.compression import Codec, compress
from ottla.wire.crc import crc32c

Headers = Sequence[tuple[str, bytes | None]]
EncodedHeaders = bytes
"""Record headers that `encode_headers` has encoded, for callers that add nearly the same headers to
every record."""

_CONTROL_KEY = Struct(">hh")
_END_TRANSACTION_VALUE = Struct(">hi")
_AFTER_CRC = Struct(">hiqqqhii")
_BEFORE_CRC = Struct(">qiib")

CONTROL_KEY_VERSION = 0
NO_ATTRIBUTES = b"\x00"
NO_HEADERS = b"\x00"
NULL = b"\x01"
"""Encoded length of a null key or value: the varint of -1."""
RUN_BYTES_MIN = 4_096
"""Size in bytes from which encoded records are kept as they are until the batch is built. Fewer
bytes are copied at once, since an object for each run would cost more."""
NAME_COUNT_MAX = 1_024
"""Maximum number of record header names whose encoding is cached. Only a few names are in use at a
time, so a larger number only uses memory."""

assert _BEFORE_CRC.size + 4 == CRC_START
assert _BEFORE_CRC.size + 4 + _AFTER_CRC.size == HEADER.size == BATCH_HEADER_BYTES


class ControlType(IntEnum):
    """Type of a control record, such as COMMIT or ABORT. It is the second half of the record's
    key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class RecordToBuild(NamedTuple):
    """One record to be added to a batch. The builder assigns its offset."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class BatchBuilder:
    """Builder of one v2 record batch from single records."""

    __slots__ = (
        "_base_timestamp",
        "_body",
        "_count",
        "_last_offset_delta",
        "_max_timestamp",
        "_runs",
        "_runs_bytes",
    )

    def __init__(self) -> None:
        self._runs: list[bytes | bytearray] = []
        """Encoded records before those in `_body`. Records that were encoded together are copied
        only when the batch is built."""
        self._runs_bytes = 0
        self._body = bytearray()
        self._count = 0
        self._last_offset_delta = -1
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP

    @property
    def record_count(self) -> int:
        """Number of records that were added to the batch."""
        return self._count

    @property
    def size_bytes(self) -> int:
        """Size in bytes of the batch if it were built now without compression."""
        return BATCH_HEADER_BYTES + self._runs_bytes + len(self._body)

    @property
    def next_delta(self) -> int:
        """Offset of the next record relative to the base offset of the batch."""
        return self._last_offset_delta + 1

    def timestamp_delta(self, timestamp_ms: int) -> int:
        """Return the difference between a timestamp and the timestamp of the batch's first record,
        in ms."""
        return timestamp_ms - self._base_timestamp if self._count else 0

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | EncodedHeaders = NO_HEADERS,
        *,
        offset_delta: int | None = None,
    ) -> None:
        """Append a record to the batch. If `offset_delta` is above `next_delta`, the offsets in
        between are skipped, as compaction does."""
        delta = self._last_offset_delta + 1 if offset_delta is None else offset_delta
        assert delta > self._last_offset_delta
        if not self._count:
            self._base_timestamp = timestamp_ms
        # Small numbers are looked up here, because a call of `varint` for each costs a tenth more.
        since_ms = timestamp_ms - self._base_timestamp
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        record = b"".join(
            (
                NO_ATTRIBUTES,
                VARINTS[since_ms] if 0 <= since_ms < VARINT_COUNT else _encode_varint(since_ms),
                VARINTS[delta] if delta < VARINT_COUNT else _encode_varint(delta),
                VARINTS[key_size] if 0 <= key_size < VARINT_COUNT else _encode_varint(key_size),
                key or b"",
                VARINTS[value_size]
                if 0 <= value_size < VARINT_COUNT
                else _encode_varint(value_size),
                value or b"",
                headers if isinstance(headers, bytes) else encode_headers(headers),
            )
        )
        size = len(record)
        body = self._body
        body += VARINTS[size] if size < VARINT_COUNT else _encode_varint(size)
        body += record
        self._count += 1
        self._last_offset_delta = delta
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms

    def extend(self, timestamp_ms: int, body: Buffer, record_count: int) -> None:
        """Append encoded records that have the same timestamp to the batch. Their offset deltas
        start at `next_delta`."""
        assert record_count > 0
        if not self._count:
            self._base_timestamp = timestamp_ms
        if isinstance(body, bytes) and len(body) >= RUN_BYTES_MIN:
            if self._body:
                self._runs.append(self._body)
                self._runs_bytes += len(self._body)
                self._body = bytearray()
            self._runs.append(body)
            self._runs_bytes += len(body)
        else:
            self._body += body
        self._count += record_count
        self._last_offset_delta += record_count
        if timestamp_ms > self._max_timestamp:
            self._max_timestamp = timestamp_ms

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        base_offset: Offset = Offset(0),  # noqa: B008 - a NewType's call is the value itself
        leader_epoch: Epoch = NO_EPOCH,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        log_append_time_ms: int | None = None,
    ) -> bytes:
        """Return the bytes of the finished batch. The builder can be extended and built again."""
        assert self._count > 0
        attributes = int(codec)
        if is_transactional:
            attributes |= TRANSACTIONAL_FLAG
        if is_control:
            attributes |= CONTROL_FLAG
        max_timestamp = self._max_timestamp
        if log_append_time_ms is not None:
            attributes |= LOG_APPEND_TIME_FLAG
            max_timestamp = log_append_time_ms
        runs: list[bytes | bytearray] = [*self._runs, self._body] if self._body else self._runs
        if codec is not Codec.NONE:
            runs = [compress(codec, runs[0] if len(runs) == 1 else b"".join(runs))]
        after_crc = _AFTER_CRC.pack(
            attributes,
            self._last_offset_delta,
            self._base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self._count,
        )
        crc = crc32c(after_crc)
        batch_length = BATCH_HEADER_BYTES - LENGTH_END
        for run in runs:
            crc = crc32c(run, crc)
            batch_length += len(run)
        before_crc = _BEFORE_CRC.pack(base_offset, batch_length, leader_epoch, MAGIC)
        return b"".join((before_crc, crc.to_bytes(4, "big"), after_crc, *runs))


def build_batch(
    records: Iterable[RecordToBuild | tuple[int, bytes | None, bytes | None]],
    *,
    codec: Codec = Codec.NONE,
    base_offset: Offset = Offset(0),  # noqa: B008 - a NewType's call is the value itself
    leader_epoch: Epoch = NO_EPOCH,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
) -> bytes:
    """Return the bytes of a data batch with records `(timestamp_ms, key, value[, headers])`."""
    builder = BatchBuilder()
    for record in records:
        builder.append(*record)
    return builder.build(
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=is_transactional,
    )


def build_control_batch(
    records: Sequence[tuple[ControlType, bytes]],
    *,
    timestamp_ms: int,
    base_offset: Offset = Offset(0),  # noqa: B008 - a NewType's call is the value itself
    leader_epoch: Epoch = NO_EPOCH,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """Return the bytes of a control batch with records (type, encoded value). Control batches are
    never compressed."""
    builder = BatchBuilder()
    for control_type, value in records:
        builder.append(timestamp_ms, _CONTROL_KEY.pack(CONTROL_KEY_VERSION, control_type), value)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )


def build_end_transaction_marker(
    control_type: ControlType,
    *,
    timestamp_ms: int,
    producer_id: ProducerId,
    producer_epoch: int,
    coordinator_epoch: Epoch,
    base_offset: Offset = Offset(0),  # noqa: B008 - a NewType's call is the value itself
    leader_epoch: Epoch = NO_EPOCH,
) -> bytes:
    """Return the control batch with the COMMIT or ABORT marker that ends a producer's transaction
    in one partition."""
    assert control_type in (ControlType.ABORT, ControlType.COMMIT)
    return build_control_batch(
        [(control_type, _END_TRANSACTION_VALUE.pack(0, coordinator_epoch))],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )


def varint(number: int) -> bytes:
    """Return a number encoded as a zigzag varint, which is the same for int32 and int64."""
    return VARINTS[number] if 0 <= number < VARINT_COUNT else _encode_varint(number)


def _encode_varint(number: int) -> bytes:
    encoded = bytearray()
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode_headers(headers: Headers) -> EncodedHeaders:
    """Return record headers as a record contains them: their number, then each header."""
    if not headers:
        return NO_HEADERS
    return b"".join(
        (varint(len(headers)), *(encode_header(name, content) for name, content in headers))
    )


def encode_header(name: str, content: bytes | None) -> bytes:
    """Return a record header as a record contains it: its name and its content."""
    if content is None:
        return _encode_name(name) + NULL
    return _encode_name(name) + varint(len(content)) + content


@lru_cache(NAME_COUNT_MAX)
def _encode_name(name: str) -> bytes:
    raw_name = name.encode()
    return varint(len(raw_name)) + raw_name


VARINT_COUNT = 2_048
"""Number of small varints that are encoded at import, because most lengths and deltas are small. A
larger number makes the import slower; with a smaller number, more varints are computed in a loop.
"""
VARINTS = tuple(_encode_varint(number) for number in range(VARINT_COUNT))
