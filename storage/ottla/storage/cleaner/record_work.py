"""Per-record implementation of both passes of a log compaction in plain Python, the reference for
`array_record_work`.

`RecordWork` is the common interface of the plain and the numpy implementation. A body consists of
the uncompressed records of one v2 data batch. Invariants:

- OrderKept, OffsetsKept: the result for a body consists of ascending byte ranges of its records.
- LastValueKept: a record below `clean_to` is dropped only in three cases: its key has a later
  record, it is a tombstone whose delete horizon has passed, or it has no key.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.wire.batch import NO_TIMESTAMP, BatchHeader
from ottla.wire.records import Body, Record, read_varint, scan_body


class IndexedRecords(NamedTuple):
    """Result of adding the keys of records to the offset map of a compaction."""

    record_count: int
    """Number of records whose keys were read for the offset map."""
    full_at: int | None
    """Offset of the first record whose key did not fit into the offset map, or None if all fit."""


class KeptRecords(NamedTuple):
    """The records of one batch that log compaction keeps, as byte ranges."""

    kept_count: int
    ranges: list[tuple[int, int]]
    """Byte ranges of the kept records in the data of their batch body. Adjacent records form one
    range."""
    max_timestamp_ms: int
    """Largest timestamp of the batch's kept records, in ms since 1970."""
    has_tombstone: bool
    """True if one of the batch's kept records is a tombstone."""
    keyless_count: int
    """Number of records of the batch that were dropped because they have no key."""


class KeepRule(NamedTuple):
    """Conditions under which a compaction keeps a record, apart from those in the offset map."""

    log_start_offset: int
    """Log start offset: all records below it were deleted (DeleteRecords)."""
    clean_to: int
    """Offset from which the compaction keeps all records unchanged."""
    now_ms: int


class RecordWork(Protocol):
    """Interface of the per-record implementation of log compaction, in plain Python or with
    numpy."""

    @property
    def map(self) -> OffsetMap:
        """The offset map of the compaction, which `index` fills and `select_kept` reads."""
        ...

    def index(self, bodies: Sequence[Body], first_offset: int, end_offset: int) -> IndexedRecords:
        """Add the keys of all records with offsets in [first_offset, end_offset) to the offset map.
        Returns the number of records read, and the offset of the first record whose key did not fit
        (None if all fit).

        Raises CorruptDataError if the data is corrupt.
        """
        ...

    def select_kept(self, bodies: Sequence[Body], rule: KeepRule) -> list[KeptRecords]:
        """Return the records of each batch body (its decompressed records) that the compaction
        keeps, in the order of the bodies.

        Raises CorruptDataError if the data is corrupt.
        """
        ...


class PlainRecordWork:
    """The plain Python implementation of log compaction, which processes one record after
    another."""

    def __init__(self, offset_map: OffsetMap) -> None:
        self.map = offset_map

    def index(self, bodies: Sequence[Body], first_offset: int, end_offset: int) -> IndexedRecords:
        """Add the keys of all records with offsets in [first_offset, end_offset) to the offset map.
        Returns the number of records read, and the offset of the first record whose key did not fit
        (None if all fit)."""
        offset_map = self.map
        count = 0
        for body in bodies:
            for record in scan_body(bytes_of(body), body.header):
                offset = record.offset
                if record.key is not None and first_offset <= offset < end_offset:
                    if offset_map.count >= offset_map.count_max:
                        return IndexedRecords(count, offset)
                    offset_map.put(record.key, offset)
                count += 1
        return IndexedRecords(count, None)

    def select_kept(self, bodies: Sequence[Body], rule: KeepRule) -> list[KeptRecords]:
        """Return the records of each batch body (its decompressed records) that the compaction
        keeps, in the order of the bodies."""
        return [self._select_kept(body, rule) for body in bodies]

    def _select_kept(self, body: Body, rule: KeepRule) -> KeptRecords:
        ranges: list[tuple[int, int]] = []
        kept_count = keyless_count = 0
        max_timestamp_ms = NO_TIMESTAMP
        has_tombstone = False
        for record, start, end in placed_records(body):
            if not self._is_kept(record, body.header, rule):
                keyless_count += record.key is None
                continue
            if ranges and ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
            if not kept_count or record.timestamp_ms > max_timestamp_ms:
                max_timestamp_ms = record.timestamp_ms
            kept_count += 1
            has_tombstone = has_tombstone or record.value is None
        return KeptRecords(kept_count, ranges, max_timestamp_ms, has_tombstone, keyless_count)

    def _is_kept(self, record: Record, header: BatchHeader, rule: KeepRule) -> bool:
        if record.offset >= rule.clean_to:
            return True
        if record.key is None or record.offset < rule.log_start_offset:
            return False
        if record.value is None and is_horizon_passed(header, rule.now_ms):
            return False
        return record.offset >= self.map.offset_of(record.key)


def is_horizon_passed(header: BatchHeader, now_ms: int) -> bool:
    """Return whether the delete horizon of a batch has passed, so that its tombstones and markers
    may be dropped."""
    horizon_ms = header.delete_horizon_ms
    return horizon_ms is not None and horizon_ms <= now_ms


def bytes_of(body: Body) -> bytes:
    """Return the bytes of a batch body's records, without the surrounding bytes of the buffer that
    contains them."""
    return bytes(memoryview(body.data)[body.start : body.end])


def placed_records(body: Body) -> Iterator[tuple[Record, int, int]]:
    """Yield each record of a batch body with its start and end position in the body's data, in
    bytes.

    Raises CorruptDataError if the data is corrupt.
    """
    data = bytes_of(body)
    at = 0
    for record in scan_body(data, body.header):
        length, after = read_varint(data, at, len(data))
        yield record, body.start + at, body.start + after + length
        at = after + length
