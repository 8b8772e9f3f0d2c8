"""The work per record of both passes, in plain Python: the reference of `array_record_work`.

`RecordWork` is what both forms do.  A body is the uncompressed records of one v2 batch of data.
Invariants: OrderKept and OffsetsKept (a verdict names ranges of the records' own bytes, rising);
LastValueKept (what is dropped below `clean_to` has a later record of its key, or is a tombstone
whose time has passed, or has no key).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.wire.batch import NO_TIMESTAMP, BatchHeader
from ottla.wire.records import Body, Record, read_varint, scan_body


class IndexedRecords(NamedTuple):
    """What became of records given to the map."""

    record_count: int
    """Records looked at."""
    full_at: int | None
    """Offset of the first record with a key that found no room, None where all did."""


class KeptRecords(NamedTuple):
    """What is kept of one batch."""

    kept_count: int
    ranges: list[tuple[int, int]]
    """Where the kept records lie in the body's data; neighbours are one range."""
    max_timestamp_ms: int
    """Largest timestamp of the kept records."""
    has_tombstone: bool
    """Whether a kept record has no value."""
    keyless_count: int
    """Records that were dropped for want of a key."""


class KeepRule(NamedTuple):
    """What a verdict goes by, beside the map."""

    log_start_offset: int
    """Records below were deleted by a user."""
    clean_to: int
    """Records from here on stay as they are."""
    now_ms: int


class RecordWork(Protocol):
    """Both forms, plain and of arrays."""

    @property
    def map(self) -> OffsetMap:
        """The map that is filled and asked."""
        ...

    def index(self, bodies: Sequence[Body], first_offset: int, end_offset: int) -> IndexedRecords:
        """Put the keys of all records with offsets in [first_offset, end_offset) into the map.

        Raises CorruptDataError where bytes lie.
        """
        ...

    def judge(self, bodies: Sequence[Body], rule: KeepRule) -> list[KeptRecords]:
        """Return what is kept of each body.

        Raises CorruptDataError where bytes lie.
        """
        ...


class PlainRecordWork:
    """One record after the other."""

    def __init__(self, offset_map: OffsetMap) -> None:
        self.map = offset_map

    def index(self, bodies: Sequence[Body], first_offset: int, end_offset: int) -> IndexedRecords:
        """Put the keys of all records with offsets in [first_offset, end_offset) into the map."""
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

    def judge(self, bodies: Sequence[Body], rule: KeepRule) -> list[KeptRecords]:
        """Return what is kept of each body."""
        return [self._judge(body, rule) for body in bodies]

    def _judge(self, body: Body, rule: KeepRule) -> KeptRecords:
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
    """Return whether tombstones and markers of a batch may go."""
    horizon_ms = header.delete_horizon_ms
    return horizon_ms is not None and horizon_ms <= now_ms


def bytes_of(body: Body) -> bytes:
    """Return the records of a body alone."""
    return bytes(memoryview(body.data)[body.start : body.end])


def placed_records(body: Body) -> Iterator[tuple[Record, int, int]]:
    """Yield each record with where it begins and ends in the body's data.

    Raises CorruptDataError where bytes lie.
    """
    data = bytes_of(body)
    at = 0
    for record in scan_body(data, body.header):
        length, after = read_varint(data, at, len(data))
        yield record, body.start + at, body.start + after + length
        at = after + length
