"""Dead letters for one broker: the records that they copy, and the Produce request that writes them
(KIP-1191). Pure.

A request has at most one batch for each partition of dead letter topics. A batch may contain
letters of several groups and source partitions.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from ottla.broker.shares.dead_letter_topic import LetterRoute
from ottla.broker.shares.dead_letters import DeadLetter
from ottla.model.errors import CorruptDataError, ErrorCode
from ottla.model.limits import MIB
from ottla.wire.batch import BatchHeader, Buffer, batches, check_crc
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.records import Record, scan

BATCH_BYTES_MAX = MIB
"""Maximum size in bytes of a batch of dead letters. A letter above this size is sent in a separate
batch. A larger value uses more memory. A smaller value needs more requests."""

FIELD_BYTES_MAX = 10
"""Maximum bytes of a varint, the encoding of each field and each length in a record."""
RECORD_FIELDS = 6

ACKS_ALL = -1

OF_ONE_LETTER = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )
)
"""Error codes of a refused batch of dead letters for which a single record of the batch may be the
cause."""

Owner = TypeVar("Owner")
"""Type variable for the share partition that a dead letter belongs to."""


class CopiedRecords(NamedTuple):
    """Records from one read of the log that dead letters will contain."""

    records: dict[int, Record]
    unreadable: frozenset[int]
    """Offsets of records that cannot be copied because their batch is damaged."""
    end_offset: int
    """End offset of the part of the log that was read. If a requested offset below it has no record
    here, the record is no longer in the log."""


def records_in(data: Buffer, offsets: Sequence[int]) -> CopiedRecords:
    """Return the records at `offsets`, decoded from the bytes of a log read.

    `offsets` is sorted, and the read began at the first offset. The last batch in `data` may be
    incomplete.
    """
    found: dict[int, Record] = {}
    unreadable: set[int] = set()
    end_offset = offsets[0]
    try:
        for at, header in batches(data, is_partial_end_allowed=True):
            wanted = _between(offsets, header)
            if wanted:
                try:
                    found.update(_records_of(data, at, header, wanted))
                except CorruptDataError:
                    unreadable.update(wanted)
            end_offset = max(end_offset, header.end_offset)
            if end_offset > offsets[-1]:
                break
    except CorruptDataError:  # The header: the positions of later batches are unknown.
        behind = offsets[bisect_left(offsets, end_offset)]
        unreadable.add(behind)
        end_offset = behind + 1
    return CopiedRecords(found, frozenset(unreadable), end_offset)


def _between(offsets: Sequence[int], header: BatchHeader) -> Sequence[int]:
    begin = bisect_left(offsets, header.base_offset)
    return offsets[begin : bisect_left(offsets, header.end_offset)]


def _records_of(
    data: Buffer, at: int, header: BatchHeader, wanted: Sequence[int]
) -> Iterator[tuple[int, Record]]:
    if not check_crc(data, at, header):
        raise CorruptDataError(f"batch at offset {header.base_offset}: its CRC does not match")
    offsets = frozenset(wanted)
    return ((one.offset, one) for one in list(scan(data, at, header)) if one.offset in offsets)


class LetterBatch(Generic[Owner]):
    """Batch of dead letters for one partition of a dead letter topic."""

    __slots__ = ("_builder", "letters", "route")

    def __init__(self, route: LetterRoute) -> None:
        self.route = route
        self.letters: list[tuple[Owner, DeadLetter]] = []
        """Each dead letter of the batch, with the share partition of its record."""
        self._builder = BatchBuilder()

    @property
    def size_bytes(self) -> int:
        """Size of the batch of dead letters in bytes."""
        return self._builder.size_bytes

    def add(self, owner: Owner, letter: DeadLetter, record: Record) -> bool:
        """Add a dead letter to the batch. Returns False if the batch would become too large, or if
        one of its letters must be sent in a separate batch. An empty batch accepts a letter of any
        size."""
        if self.letters:
            size_max = min(BATCH_BYTES_MAX, self.route.bytes_max)
            is_too_large = self.size_bytes + _size_max_of(record) > size_max
            if is_too_large or letter.is_alone or self.letters[0][1].is_alone:
                return False
        self._builder.append(record.timestamp_ms, record.key, record.value, record.headers)
        self.letters.append((owner, letter))
        return True

    def note_refusal(self, code: ErrorCode) -> None:
        """If a single letter may have caused the refusal `code` of the batch, send each dead letter
        of the batch in a separate batch from now on."""
        if code in OF_ONE_LETTER and len(self.letters) > 1:
            for _, letter in self.letters:
                letter.is_alone = True

    def records(self) -> bytes:
        """Return the encoded record batch that contains the dead letters."""
        return self._builder.build()

    def by_owner(self) -> dict[Owner, list[DeadLetter]]:
        """Return the dead letters by the share partition that they belong to."""
        found: dict[Owner, list[DeadLetter]] = {}
        for owner, letter in self.letters:
            found.setdefault(owner, []).append(letter)
        return found


def _size_max_of(record: Record) -> int:
    """Return an upper bound of the bytes that a record adds to a batch of dead letters."""
    size = len(record.key or b"") + len(record.value or b"") + RECORD_FIELDS * FIELD_BYTES_MAX
    for name, content in record.headers:
        # A character has at most four bytes.
        size += 4 * len(name) + len(content or b"") + 2 * FIELD_BYTES_MAX
    return size


def request_of(letter_batches: Iterable[LetterBatch[Owner]], timeout_ms: int) -> ProduceRequest:
    """Return the Produce request that writes these batches of dead letters. Each batch must be for
    a different partition."""
    topics: dict[UUID, TopicProduceData] = {}
    for batch in letter_batches:
        route = batch.route
        topic = topics.setdefault(
            route.topic_id, TopicProduceData(name=route.topic, topic_id=route.topic_id)
        )
        topic.partition_data.append(
            PartitionProduceData(index=route.partition, records=batch.records())
        )
    return ProduceRequest(acks=ACKS_ALL, timeout_ms=timeout_ms, topic_data=list(topics.values()))


def outcomes_of(
    letter_batches: Iterable[LetterBatch[Owner]], response: ProduceResponse
) -> list[tuple[LetterBatch[Owner], ErrorCode]]:
    """Return each batch of dead letters with its error code in a Produce response. A batch without
    an entry in the response has failed."""
    codes: dict[tuple[UUID | str, int], int] = {}
    for topic in response.responses:
        # Up to version 12 the response has the name, from 13 on the id.
        key = topic.name or topic.topic_id
        for one in topic.partition_responses:
            codes[key, one.index] = one.error_code
    found = []
    for batch in letter_batches:
        route = batch.route
        number = codes.get((route.topic_id, route.partition))
        if number is None:
            number = codes.get((route.topic, route.partition), ErrorCode.UNKNOWN_SERVER_ERROR)
        found.append((batch, _code_of(number)))
    return found


def _code_of(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
