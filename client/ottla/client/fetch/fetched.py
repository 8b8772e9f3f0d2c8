"""Fetched records of one partition, stored as bytes until the application reads them.

Pure. The checksum of each batch is verified before its first record is returned. Control batches,
batches of aborted transactions (for read_committed) and records before the position are skipped. A
batch that is incomplete at the end of the response is not used, and is fetched again.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import dropwhile, islice
from typing import NamedTuple

from ottla.client.fetch.aborted_producers import AbortedProducers
from ottla.client.fetch.record_batch import (
    ConsumerRecord,
    RecordBatch,
    RecordColumns,
    RecordOrigin,
    ScannedColumns,
)
from ottla.client.fetch.record_decoder import RecordDecoder
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch, TopicPartition
from ottla.model.limits import BATCH_HEADER_BYTES, MIB
from ottla.wire.batch import LOG_APPEND_TIME_FLAG, BatchHeader, batches, check_crc
from ottla.wire.compression import Codec
from ottla.wire.records import Body, RecordHeaders, record_body, scan_body_as

ROWS_TOGETHER_MAX = 8_192
"""Maximum number of records of several batches that are decoded together. A larger number blocks
the event loop for longer. With a smaller number, the overhead of numpy dominates."""
BYTES_TOGETHER_MAX = MIB
"""Maximum size in bytes of the batches that are decoded together. It also limits the memory of
decompressed records that have not been read yet. A single larger batch is nevertheless decoded."""
SCANNED_TOGETHER_COUNT = 256
"""Number of records that are decoded at a time if they are scanned one by one, even if the reader
requests fewer."""
MADE_TOGETHER_COUNT = 256
"""Number of record objects that are created at a time, even if the reader requests fewer."""


class DecodedRows(NamedTuple):
    """Decoded records of one partition, and the consumer's position after them."""

    columns: RecordColumns
    end: OffsetAndEpoch | None
    """Position after the records. None means the position directly after the last record."""


class FetchedRecords:
    """The records of one partition in a fetch response."""

    __slots__ = (
        "_aborted",
        "_broken",
        "_check_crcs",
        "_data",
        "_decoder",
        "_epoch",
        "_failure",
        "_found",
        "_made",
        "_made_count",
        "_made_first",
        "_made_next",
        "_next",
        "_offset",
        "_row",
        "_rows",
        "_scan",
        "_to_scan",
        "at",
        "end_epoch",
        "end_offset",
        "size_bytes",
    )

    def __init__(
        self,
        at: TopicPartition,
        offset: Offset,
        epoch: Epoch,
        data: bytes | memoryview,
        *,
        aborted: Sequence[tuple[int, Offset]] | None = None,
        check_crcs: bool = True,
        decoder: RecordDecoder | None = None,
    ) -> None:
        """Initialise with the batches in `data`. Raises CorruptDataError if the header of a batch
        is malformed.

        `aborted` contains pairs of producer id and first offset of aborted transactions, or is None
        if aborted records are returned too.
        """
        self.at = at
        self._offset = offset
        self._epoch = epoch
        self.size_bytes = len(data)
        self._data = data
        self._check_crcs = check_crcs
        self._decoder = decoder or RecordDecoder()
        self._found = list(batches(data, is_partial_end_allowed=True))
        self._next = 0
        """Index of the next batch to decode."""
        last = self._found[-1][1] if self._found else None
        self.end_offset = last.end_offset if last else offset
        """Offset at which the next fetch continues."""
        self.end_epoch = last.partition_leader_epoch if last else epoch
        self._aborted = AbortedProducers(aborted)
        self._failure: CorruptDataError | None = None
        self._broken: CorruptDataError | None = None
        """Error at which the scan stopped.  It is raised after all records before the error have
        been returned."""
        self._rows: DecodedRows | None = None
        self._row = 0
        self._made: list[ConsumerRecord] = []
        self._made_first = 0
        """Row of the first record in `_made`."""
        self._made_next = 0
        """Index in `_made` of the next record to return.  `take_made` advances only this;
        `_catch_up` then updates `_row`, `_offset` and `_epoch`."""
        self._made_count = 0
        """Number of records in `_made` that `take_made` may return."""
        self._to_scan: deque[tuple[Body, OffsetAndEpoch]] = deque()
        """Batches that must be scanned record by record, and the position after each."""
        self._scan: tuple[Iterator[ConsumerRecord], RecordOrigin, OffsetAndEpoch] | None = None

    @property
    def offset(self) -> Offset:
        """Offset from which the next record is returned. The next record may have a higher
        offset."""
        self._catch_up()
        return self._offset

    @property
    def epoch(self) -> Epoch:
        """Leader epoch of the last record before `offset`."""
        self._catch_up()
        return self._epoch

    @property
    def is_drained(self) -> bool:
        """True if all records have been returned."""
        return self.offset >= self.end_offset

    def take(self, count: int) -> list[ConsumerRecord]:
        """Return the next records, at most `count`. Returns fewer only if the response has no
        further records.

        If the data is corrupt, raises CorruptDataError after all records before the corruption have
        been returned.
        """
        self._catch_up()
        taken: list[ConsumerRecord] = []
        while len(taken) < count:
            try:
                rows = self._rows or self._next_rows(count - len(taken))
            except CorruptDataError:
                if not taken:
                    raise
                break
            if rows is None:
                break
            found = self._records(rows, count - len(taken))
            if len(found) == count:
                return found
            taken += found
        return taken

    def take_made(self) -> ConsumerRecord | None:
        """Return the next record if its Python object already exists. Returns None if the caller
        must use `take`, which also returns the last of these objects."""
        at = self._made_next
        if at >= self._made_count:
            return None
        self._made_next = at + 1
        return self._made[at]

    def _catch_up(self) -> None:
        """Advance the position past the records that `take_made` has returned. For speed,
        `take_made` only counts them."""
        count = self._made_next - (self._row - self._made_first)
        if count > 0:
            last = self._made[self._made_next - 1]
            self._row += count
            self._offset = max(self._offset, Offset(last.offset + 1))
            self._epoch = last.leader_epoch

    def take_batch(self, count: int, size_bytes: int | None = None) -> RecordBatch | None:
        """Return the next records as one batch of at most `count` records and `size_bytes` bytes.

        The batch has at least one record. It ends early before a record with another RecordOrigin.
        Returns None if no records are left. Raises CorruptDataError as `take` does.
        """
        self._catch_up()
        rows = self._rows or self._next_rows(count)
        if rows is None:
            return None
        columns, start = rows.columns, self._row
        end = min(start + count, columns.row_count)
        if size_bytes is not None:
            end = min(end, columns.end_within(start, size_bytes))
        self._move_to(rows, end, columns.offset_of(end - 1))
        return RecordBatch(columns, start, end)

    def _records(self, rows: DecodedRows, count: int) -> list[ConsumerRecord]:
        """Return up to `count` of the next records in `rows`, and advance the position past
        them."""
        start, row_count = self._row, rows.columns.row_count
        if count >= MADE_TOGETHER_COUNT:
            found = rows.columns.records(start, min(start + count, row_count))
        else:
            made, at = self._made, start - self._made_first
            if not 0 <= at < len(made):
                end = min(start + MADE_TOGETHER_COUNT, row_count)
                made = self._made = rows.columns.records(start, end)
                self._made_first, at = start, 0
            found = made[at : at + count]
        self._move_to(rows, start + len(found), found[-1].offset)
        return found

    def _move_to(self, rows: DecodedRows, row: int, last_offset: Offset) -> None:
        """Move the position to the record at index `row`, since all records before it were
        returned."""
        self._row = row
        end = rows.end
        if row == rows.columns.row_count:
            self._rows, self._row, self._made, self._made_first = None, 0, [], 0
        else:
            end = None
        self._made_next = self._row - self._made_first
        # The last record is excluded: the position after it may skip further batches.
        self._made_count = len(self._made) - 1
        if end is not None:
            self._offset, self._epoch = end
            return
        # A producer may write offsets that are inside of an earlier batch; the position never moves
        # back.
        self._offset = max(self._offset, Offset(last_offset + 1))
        self._epoch = rows.columns.origin.leader_epoch

    def _next_rows(self, count: int) -> DecodedRows | None:
        """Decode more rows and make them the current ones.  Returns None if no records are left.

        `count` is the number of records that the reader requests now.
        """
        if self._failure is not None:
            raise self._failure
        try:
            while self._scan is not None or self._to_scan or self._next < len(self._found):
                rows = (
                    self._scan_some() if self._scan or self._to_scan else self._decode_some(count)
                )
                if rows is not None:
                    self._rows, self._made_first = rows, 0
                    return rows
        except CorruptDataError as error:
            self._failure = CorruptDataError(f"{self.at} at offset {self._offset}: {error.where}")
            raise self._failure from error
        return None

    def _decode_some(self, count: int) -> DecodedRows | None:
        """Decode and return rows of the next batches. Returns None if there are no further batches,
        or if they must be scanned record by record."""
        bodies, end = self._collect(max(count, MADE_TOGETHER_COUNT))
        if bodies:
            columns = self._decoder.read(self._origin_of(bodies[0].header), bodies, self._offset)
            if columns is None:
                self._to_scan.extend(
                    (
                        body,
                        OffsetAndEpoch(body.header.end_offset, body.header.partition_leader_epoch),
                    )
                    for body in bodies[:-1]
                )
                self._to_scan.append((bodies[-1], end))
                return None
            if columns.row_count:
                return DecodedRows(columns, end)
        self._offset, self._epoch = end
        return None

    def _collect(self, wanted_count: int) -> tuple[list[Body], OffsetAndEpoch]:
        """Return the next batches whose records have the same RecordOrigin, and the position after
        these batches.

        If the first batch of the response has as many records as requested, only this batch is
        returned, because the application may need no others.
        """
        bodies: list[Body] = []
        end_offset, end_epoch = self._offset, self._epoch
        count = size_bytes = 0
        is_first = self._next == 0
        for place in range(self._next, len(self._found)):
            start, header = self._found[place]
            if header.end_offset > end_offset:
                is_data = not header.is_control and not self._aborted.is_aborted(header)
                count += header.record_count
                if is_data and bodies:
                    is_alone = is_first and bodies[0].header.record_count >= wanted_count
                    is_full = count > ROWS_TOGETHER_MAX or size_bytes >= BYTES_TOGETHER_MAX
                    if is_alone or is_full or not _is_alike(header, bodies[0].header):
                        break
                try:
                    if self._check_crcs and not check_crc(self._data, start, header):
                        raise CorruptDataError("the batch fails its checksum")
                    if header.is_control:
                        self._aborted.on_control(self._data, start, header)
                    elif is_data:
                        bodies.append(self._body(start, header))
                        size_bytes += bodies[-1].size_bytes
                except CorruptDataError:
                    if bodies:
                        break  # return the valid batches first: the next call finds the error again
                    self._offset, self._epoch = end_offset, end_epoch
                    raise
                end_offset, end_epoch = header.end_offset, header.partition_leader_epoch
            self._next = place + 1
        return bodies, OffsetAndEpoch(end_offset, end_epoch)

    def _body(self, start: int, header: BatchHeader) -> Body:
        if header.codec == Codec.NONE:
            # Not copied here: all uncompressed batches are copied together.
            return Body(header, self._data, start + BATCH_HEADER_BYTES, start + header.size_bytes)
        unpacked = record_body(self._data, start, header)
        return Body(header, unpacked, 0, len(unpacked))

    def _origin_of(self, header: BatchHeader) -> RecordOrigin:
        return RecordOrigin(self.at, header.partition_leader_epoch, header.timestamp_type)

    def _scan_some(self) -> DecodedRows | None:
        """Return the next rows, at most `SCANNED_TOGETHER_COUNT`, of a batch that is scanned record
        by record. Returns None at the end of the batch."""
        if self._broken is not None:
            raise self._broken
        if self._scan is None:
            body, end = self._to_scan.popleft()
            self._scan = self._records_of(body), self._origin_of(body.header), end
        scan, origin, end = self._scan
        records: list[ConsumerRecord] = []
        try:
            # Not `extend`: in compiled code it would lose the records before an error of the scan.
            for record in islice(scan, SCANNED_TOGETHER_COUNT):
                records.append(record)
        except CorruptDataError as error:
            # The records before the corrupt bytes are returned first.
            self._broken = error
            if not records:
                raise
            return DecodedRows(ScannedColumns(origin, records), None)
        if len(records) == SCANNED_TOGETHER_COUNT:
            return DecodedRows(ScannedColumns(origin, records), None)
        self._scan = None
        if records:
            return DecodedRows(ScannedColumns(origin, records), end)
        self._offset, self._epoch = end
        return None

    def _records_of(self, body: Body) -> Iterator[ConsumerRecord]:
        """Yield the records of a batch, from the current position on."""
        (topic, partition), first, header = self.at, self._offset, body.header
        epoch, stamp, new = header.partition_leader_epoch, header.timestamp_type, tuple.__new__

        def make(
            offset: Offset,
            timestamp_ms: int,
            key: bytes | None,
            value: bytes | None,
            headers: RecordHeaders,
        ) -> ConsumerRecord:
            # Half the cost of calling ConsumerRecord(…) once for every record.
            fields = (topic, partition, offset, timestamp_ms, key, value, headers, epoch, stamp)
            return new(ConsumerRecord, fields)

        data = body.data
        if type(data) is not bytes or body.size_bytes < len(data):
            data = bytes(memoryview(data)[body.start : body.end])
        records = scan_body_as(make, data, header)
        if header.base_offset >= first:
            return records
        return dropwhile(lambda record: record.offset < first, records)


def _is_alike(one: BatchHeader, other: BatchHeader) -> bool:
    """Return whether the records of two batches have the same RecordOrigin."""
    return (
        one.partition_leader_epoch == other.partition_leader_epoch
        and not (one.attributes ^ other.attributes) & LOG_APPEND_TIME_FLAG
    )
