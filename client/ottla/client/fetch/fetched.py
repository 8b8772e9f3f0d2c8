"""What was fetched of one partition and is not read yet: bytes until somebody asks for a record.

Pure.  Every batch's checksum is compared before the first of its records is given out; control
batches, aborted transactions (read_committed) and what lies before the position are stepped over;
a batch that the answer cut off is left for the next fetch.
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
"""Records of several batches that are decoded together: more hold the loop longer, fewer let the
calls of numpy show."""
BYTES_TOGETHER_MAX = MIB
"""Their size likewise; it also bounds what is unpacked and not read yet, but for one batch."""
SCANNED_TOGETHER_COUNT = 256
"""Records that are scanned ahead of who takes fewer."""
MADE_TOGETHER_COUNT = 256
"""Records that are made ahead of who takes fewer."""


class DecodedRows(NamedTuple):
    """Records that can be given out."""

    columns: RecordColumns
    end: OffsetAndEpoch | None
    """Where the position is behind them; None: right behind the last of them."""


class Fetched:
    """The records part of one partition's answer."""

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
        """Look at the batches' headers; CorruptDataError where they lie.

        `aborted` are (producer id, first offset) of aborted transactions, None to read all.
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
        """Which batch is looked at next."""
        last = self._found[-1][1] if self._found else None
        self.end_offset = last.end_offset if last else offset
        """Where the next fetch goes on."""
        self.end_epoch = last.partition_leader_epoch if last else epoch
        self._aborted = AbortedProducers(aborted)
        self._failure: CorruptDataError | None = None
        self._broken: CorruptDataError | None = None
        """Why the scan ended; it is told once what comes before was given out."""
        self._rows: DecodedRows | None = None
        self._row = 0
        self._made: list[ConsumerRecord] = []
        self._made_first = 0
        """The row of the first record in `_made`."""
        self._made_next = 0
        """The next of them to give out; `_row`, `_offset` and `_epoch` follow in `_catch_up`."""
        self._made_count = 0
        """How many of them `take_made` may give out."""
        self._to_scan: deque[tuple[Body, OffsetAndEpoch]] = deque()
        """What is to be read record by record, and where the position is behind each."""
        self._scan: tuple[Iterator[ConsumerRecord], RecordOrigin, OffsetAndEpoch] | None = None

    @property
    def offset(self) -> Offset:
        """The offset of the next record to give out, or one before it."""
        self._catch_up()
        return self._offset

    @property
    def epoch(self) -> Epoch:
        """The leader epoch of what lies just before `offset`."""
        self._catch_up()
        return self._epoch

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left."""
        return self.offset >= self.end_offset

    def take(self, count: int) -> list[ConsumerRecord]:
        """Give out the next records, at most so many; fewer only when no more are left.

        CorruptDataError where the bytes lie, once all that comes before was given out.
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
        """Give out a record that is made already and no row's last; None where `take` must look."""
        at = self._made_next
        if at >= self._made_count:
            return None
        self._made_next = at + 1
        return self._made[at]

    def _catch_up(self) -> None:
        """Move behind what `take_made` gave out: that does nothing but count, for each record."""
        count = self._made_next - (self._row - self._made_first)
        if count > 0:
            last = self._made[self._made_next - 1]
            self._row += count
            self._offset = max(self._offset, Offset(last.offset + 1))
            self._epoch = last.leader_epoch

    def take_batch(self, count: int, size_bytes: int | None = None) -> RecordBatch | None:
        """Give out the next records as one batch, at most `count` and of that size; at least one.

        Fewer when those that follow are of another origin; None only when none are left.
        CorruptDataError as `take`.
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
        """Give out records of these rows, at least one."""
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
        """Note that all before a row is given out."""
        self._row = row
        end = rows.end
        if row == rows.columns.row_count:
            self._rows, self._row, self._made, self._made_first = None, 0, [], 0
        else:
            end = None
        self._made_next = self._row - self._made_first
        # The last row moves the position behind more than itself.
        self._made_count = len(self._made) - 1
        if end is not None:
            self._offset, self._epoch = end
            return
        # A producer may write offsets that fall within a batch: the position does not.
        self._offset = max(self._offset, Offset(last_offset + 1))
        self._epoch = rows.columns.origin.leader_epoch

    def _next_rows(self, count: int) -> DecodedRows | None:
        """Return the next rows, None where none are left; they are given out from the first on.

        `count` is how many are asked for now.
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
        """Return the rows of the next batches; None where there are none, or they are to scan."""
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
        """Return the next batches of one origin, and where the position is behind them.

        Of an answer the first batch comes alone where it has all that is wanted: an application
        may want nothing else.
        """
        bodies: list[Body] = []
        end = OffsetAndEpoch(self._offset, self._epoch)
        count = size_bytes = 0
        is_first = self._next == 0
        for place in range(self._next, len(self._found)):
            start, header = self._found[place]
            if header.end_offset > end.offset:
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
                        break  # first what is good: it comes again
                    self._offset, self._epoch = end
                    raise
                end = OffsetAndEpoch(header.end_offset, header.partition_leader_epoch)
            self._next = place + 1
        return bodies, end

    def _body(self, start: int, header: BatchHeader) -> Body:
        if header.codec == Codec.NONE:
            # Copied with its neighbours, at once.
            return Body(header, self._data, start + BATCH_HEADER_BYTES, start + header.size_bytes)
        unpacked = record_body(self._data, start, header)
        return Body(header, unpacked, 0, len(unpacked))

    def _origin_of(self, header: BatchHeader) -> RecordOrigin:
        return RecordOrigin(self.at, header.partition_leader_epoch, header.timestamp_type)

    def _scan_some(self) -> DecodedRows | None:
        """Return some rows of a batch that is read record by record; None behind its last."""
        if self._broken is not None:
            raise self._broken
        if self._scan is None:
            body, end = self._to_scan.popleft()
            self._scan = self._records_of(body), self._origin_of(body.header), end
        scan, origin, end = self._scan
        records: list[ConsumerRecord] = []
        try:
            # Not `extend`: compiled, that gives nothing where the scan fails.
            for record in islice(scan, SCANNED_TOGETHER_COUNT):
                records.append(record)
        except CorruptDataError as error:
            # Where the bytes lie, what came before it has been taken.
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
        """Return those from the position on."""
        (topic, partition), first, header = self.at, self._offset, body.header
        epoch, stamp, new = header.partition_leader_epoch, header.timestamp_type, tuple.__new__

        def make(
            offset: Offset,
            timestamp_ms: int,
            key: bytes | None,
            value: bytes | None,
            headers: RecordHeaders,
        ) -> ConsumerRecord:
            # Half the cost of ConsumerRecord(…), once for every record there is.
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
    """Return whether the records of two batches have the same origin."""
    return (
        one.partition_leader_epoch == other.partition_leader_epoch
        and not (one.attributes ^ other.attributes) & LOG_APPEND_TIME_FLAG
    )
