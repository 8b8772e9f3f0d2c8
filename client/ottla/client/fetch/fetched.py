"""What was fetched of one partition and is not read yet: bytes until somebody asks for a record.

Pure.  Every batch's checksum is compared before the first of its records is given out; control
batches, aborted transactions (read_committed) and what lies before the position are stepped over;
a batch that the answer cut off is left for the next fetch.
"""

from collections.abc import Iterator, Sequence
from itertools import dropwhile, islice
from typing import NamedTuple

from ottla.client.fetch.aborted_producers import AbortedProducers
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, TopicPartition
from ottla.wire.batch import BatchHeader, TimestampType, batches, check_crc
from ottla.wire.records import RecordHeaders, record_body, scan_body_as


class ConsumerRecord(NamedTuple):
    """One record, and where it was."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: Offset
    """Offset of the record."""
    timestamp_ms: int
    """Time of the record, in ms since 1970."""
    key: bytes | None
    """Key; None where the record has none."""
    value: bytes | None
    """Value; None for a tombstone."""
    headers: RecordHeaders
    """Headers: (name, bytes) pairs."""
    leader_epoch: Epoch
    """Leader epoch under which the record was written."""
    timestamp_type: TimestampType
    """Whether the time is the producer's or the broker's."""


class Fetched:
    """The records part of one partition's answer."""

    __slots__ = (
        "_aborted",
        "_batches",
        "_check_crcs",
        "_data",
        "_failure",
        "_header",
        "_records",
        "at",
        "end_epoch",
        "end_offset",
        "epoch",
        "offset",
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
    ) -> None:
        """Look at the batches' headers; CorruptDataError where they lie.

        `aborted` are (producer id, first offset) of aborted transactions, None to read all.
        """
        self.at = at
        self.offset = offset
        """The offset of the next record to give out, or one before it."""
        self.epoch = epoch
        """The leader epoch of what lies just before `offset`."""
        self.size_bytes = len(data)
        self._data = data
        self._check_crcs = check_crcs
        found = list(batches(data, is_partial_end_allowed=True))
        self.end_offset = found[-1][1].end_offset if found else offset
        """Where the next fetch goes on."""
        self.end_epoch = found[-1][1].partition_leader_epoch if found else epoch
        self._batches = iter(found)
        self._aborted = AbortedProducers(aborted)
        self._failure: CorruptDataError | None = None
        self._header: BatchHeader | None = None
        self._records: Iterator[ConsumerRecord] = iter(())

    @property
    def is_drained(self) -> bool:
        """Whether nothing is left."""
        return self.offset >= self.end_offset

    def take(self, count: int) -> list[ConsumerRecord]:
        """Give out the next records, at most so many; fewer only when no more are left.

        CorruptDataError where the bytes lie, once all that comes before was given out.
        """
        taken: list[ConsumerRecord] = []
        if self._failure is not None:
            raise self._failure
        try:
            while len(taken) < count:
                header = self._header or self._next_batch()
                if header is None:
                    break
                self._take_of_batch(header, count, taken)
        except CorruptDataError as error:
            self._failure = CorruptDataError(f"{self.at} at offset {self.offset}: {error.where}")
            if not taken:
                raise self._failure from error
        return taken

    def _take_of_batch(self, header: BatchHeader, count: int, taken: list[ConsumerRecord]) -> None:
        epoch = header.partition_leader_epoch
        before = len(taken)
        try:
            taken.extend(islice(self._records, count - before))
        finally:
            # Where the bytes lie, what came before it has been taken.
            if len(taken) > before:
                self.offset, self.epoch = Offset(taken[-1].offset + 1), epoch
        if len(taken) < count:
            self._header = None
            self.offset, self.epoch = header.end_offset, epoch

    def _next_batch(self) -> BatchHeader | None:
        for start, header in self._batches:
            if header.end_offset <= self.offset:
                continue
            if self._check_crcs and not check_crc(self._data, start, header):
                raise CorruptDataError("the batch fails its checksum")
            if header.is_control:
                self._aborted.on_control(self._data, start, header)
            elif not self._aborted.is_aborted(header):
                self._header = header
                self._records = self._records_of(start, header)
                return header
            self.offset, self.epoch = header.end_offset, header.partition_leader_epoch
        return None

    def _records_of(self, start: int, header: BatchHeader) -> Iterator[ConsumerRecord]:
        """Return those from the position on."""
        (topic, partition), first = self.at, self.offset
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

        records = scan_body_as(make, record_body(self._data, start, header), header)
        if header.base_offset >= first:
            return records
        return dropwhile(lambda record: record.offset < first, records)
