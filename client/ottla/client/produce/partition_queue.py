"""Batches of one partition that a producer has not delivered yet: open, waiting, in flight, or to
be sent again.

Pure. Failures do not change the order of a partition's records: a batch that has to be sent again
is sent alone, before all later batches. In an idempotent producer, each batch gets its sequence
before its first attempt and keeps the sequence, so that the broker recognises duplicates.
Invariants:
- OrderKept: batches are sent in the order of their records. Until the leader has accepted a batch
  of the producer epoch, they are sent one at a time, because the leader would accept any sequence
  as the first one.
- OneCopy: a batch gets a new sequence only if no copy of it can be in the log.
- GapsAreBridged: once a batch with a sequence has failed, no later batch is sent under its producer
  epoch.
"""

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any

from ottla.client.produce.record_encoding import encode_each, encode_plain
from ottla.client.produce.record_run import RecordRun
from ottla.model.errors import ErrorCode, RefusedError, row_of
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.wire.batch import NO_SEQUENCE, SEQUENCE_COUNT, parse_header
from ottla.wire.batch_builder import BatchBuilder, EncodedHeaders, Headers, varint
from ottla.wire.records import Record, scan

NUMBERING_ERRORS = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
"""Error codes with which a broker rejects the sequence or the epoch of a batch, because its state
of the producer differs from the client's. The producer then continues under a new epoch (KIP-360).
"""
NOT_APPENDED = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Retriable error codes which guarantee that the broker has not written the batch.

NOT_LEADER_OR_FOLLOWER is not included: a leader may write a batch, lose its leadership before the
batch is replicated, and then return this error.
"""


TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Error codes of a batch that was not written because it is too large. Smaller batches of the same
records may be accepted."""


GATHERED_BYTES = 131_072
"""Approximate size in bytes of a group of records that are encoded together. A larger group blocks
the event loop for longer."""

NO_RECORDS = BatchBuilder()
"""Placeholder for the record builder of a batch that is delivered or has failed."""


class NotDeliveredError(RefusedError):
    """Error of a record that was not delivered. If `may_be_in_log` is True, the record may
    nevertheless have been written.

    If `is_due_to_another` is True, the broker rejected other records of the same batch (KIP-467).
    This record is valid, and may be delivered if the application sends it again without the
    rejected records.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        may_be_in_log: bool,
        is_due_to_another: bool = False,
    ) -> None:
        super().__init__(code, message)
        self.may_be_in_log = may_be_in_log
        """True if the broker may have written the record although it did not confirm it."""
        self.is_due_to_another = is_due_to_another
        """True if the broker rejected only other records of the batch. The application may send
        this record again."""


class BatchOutcome(Enum):
    """Effect of a broker's response, or of its loss, on a batch in flight."""

    DELIVERED = auto()
    FAILED = auto()
    RETRIED = auto()
    SPLIT = auto()
    """The batch was too large: its records are sent again in two batches, `parts`."""


class ProducerBatch:
    """Records of one partition that are sent together in one record batch."""

    __slots__ = (
        "_keys",
        "_stamp_ms",
        "attempt_count",
        "base_offset",
        "base_sequence",
        "builder",
        "charged_bytes",
        "created_ms",
        "encoded",
        "failure",
        "gathers_to_bytes",
        "is_open",
        "is_part",
        "is_settled",
        "is_uncertain",
        "is_watched",
        "last_refusal",
        "log_append_time_ms",
        "number",
        "on_settled",
        "partition",
        "parts",
        "plain_ms",
        "record_count",
        "record_failures",
        "senders",
        "size_bytes",
        "values",
    )

    def __init__(self, partition: TopicPartition, number: int, created_ms: int) -> None:
        self.partition = partition
        self.number = number
        """Number of records that were added to the partition's queue before this batch. It
        determines the order of batches."""
        self.created_ms = created_ms
        self.builder = BatchBuilder()
        self.values: list[bytes | None] = []
        """Values of the records that are not encoded yet. Encoding many values together is much
        cheaper than encoding them one by one."""
        self._keys: list[bytes | None] = []
        """Keys of the records that are not encoded yet. Empty if none of these records has a
        key."""
        self._stamp_ms = 0
        """Timestamp, in ms, of the records that are not encoded yet."""
        self.plain_ms = -1
        """Timestamp in ms that a record without key and headers must have so that it may be
        appended directly to `values`. -1 if no record may be appended directly."""
        self.size_bytes = BATCH_HEADER_BYTES
        """Upper bound of the batch's uncompressed size in bytes. It is exact once all records are
        encoded."""
        self.gathers_to_bytes = GATHERED_BYTES
        """Size of the batch, in bytes, at which the records in `values` are encoded."""
        self.record_count = 0
        self.charged_bytes = 0
        """Bytes of `buffer.memory` that are charged for the batch."""
        self.encoded: bytes | None = None
        self.base_sequence = NO_SEQUENCE
        self.attempt_count = 0
        self.last_refusal = ""
        """Reason for which the latest attempt must be repeated, as reported by the broker or the
        connection."""
        self.is_uncertain = False
        """True if the broker may have written the batch in an earlier attempt, although no response
        confirmed it."""
        self.is_open = True
        """True if records may still be added. False after the first attempt, or after a newer batch
        was opened."""
        self.is_settled = False
        self.base_offset = Offset(-1)
        self.log_append_time_ms = -1
        self.failure: NotDeliveredError | None = None
        self.record_failures: dict[int, NotDeliveredError] = {}
        """Errors of single records by their index in the batch, if the broker named the records
        that it rejected."""
        self.is_watched = False
        """True if a task waits, or has waited, for the result of the batch."""
        self.is_part = False
        """True if the batch is one of the two parts of a batch that was too large."""
        self.parts: tuple[ProducerBatch, ProducerBatch] | None = None
        """The two parts of the batch, if it was too large."""
        self.on_settled: list[Callable[[], None]] = []
        """Functions to call when the batch is delivered, fails or is split."""
        self.senders: list[Any] | None = None
        """OpenTelemetry spans of the batch's records, up to a maximum number. None if the program
        creates no spans."""

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | EncodedHeaders,
        charge_bytes: int,
    ) -> None:
        """Append one record to the open batch. `charge_bytes` is the memory that the record uses,
        in bytes of `buffer.memory`."""
        if headers:
            self.encode_gathered()
            self.builder.append(timestamp_ms, key, value, headers)
            self._note_size()
        else:
            values = self.values
            if timestamp_ms != self._stamp_ms and values:
                self.encode_gathered()
                values = self.values
            self._stamp_ms = timestamp_ms
            if key is not None and not self._keys:
                self._keys = [None] * len(values)
            if key is not None or self._keys:
                self._keys.append(key)
            self.plain_ms = -1 if self._keys else timestamp_ms
            values.append(value)
            self.size_bytes += charge_bytes
        self.record_count += 1
        self.charged_bytes += charge_bytes

    def close(self) -> None:
        """Close the batch, so that the next record opens a new batch."""
        self.is_open = False
        self.plain_ms = -1

    def extend(self, timestamp_ms: int, run: RecordRun, room_bytes: int) -> int:
        """Append as many records of a run as fit into `room_bytes`, and at least one record.

        Returns the number of bytes of `buffer.memory` that these records use.
        """
        self.encode_gathered()
        delta = self.builder.timestamp_delta(timestamp_ms)
        taken = run.take(room_bytes, self.builder.next_delta, delta)
        self.builder.extend(timestamp_ms, taken.body, taken.record_count)
        self.record_count += taken.record_count
        self.charged_bytes += len(taken.body)
        self._note_size()
        return len(taken.body)

    def encode_gathered(self) -> None:
        """Encode the records in `values`, which were appended without encoding them."""
        values, keys, stamp_ms = self.values, self._keys, self._stamp_ms
        if not values:
            return
        builder = self.builder
        if len(values) == 1:
            builder.append(stamp_ms, keys[0] if keys else None, values[0])
        else:
            stamp = varint(builder.timestamp_delta(stamp_ms))
            body = None if keys else encode_plain(values, builder.next_delta, stamp)
            if body is None:
                keys = keys or [None] * len(values)
                body = encode_each(keys, values, builder.next_delta, stamp)
            builder.extend(stamp_ms, body, len(values))
        self.values, self._keys = [], []
        self._note_size()

    def _note_size(self) -> None:
        self.size_bytes = self.builder.size_bytes
        self.gathers_to_bytes = self.size_bytes + GATHERED_BYTES

    def forget_records(self) -> None:
        """Free the memory of the records. A Delivery that the application keeps refers only to the
        batch object."""
        self.builder, self.encoded = NO_RECORDS, None
        self.values, self._keys = [], []

    def leaf_of(self, index: int) -> "tuple[ProducerBatch, int]":
        """Return the batch that contains a record at present, and the index of the record in this
        batch. If this batch was split, the result is one of its parts."""
        batch = self
        while batch.parts is not None:
            first, second = batch.parts
            if index < first.record_count:
                batch = first
            else:
                batch, index = second, index - first.record_count
        return batch, index

    def split(self, charge: Callable[[Record], int]) -> "tuple[ProducerBatch, ProducerBatch]":
        """Split the batch into two parts, and return them. Each part has about half of the bytes,
        and keeps the sequences of its records."""
        assert self.record_count > 1
        self.encode_gathered()
        encoded = self.builder.build()
        records = list(scan(encoded, 0, parse_header(encoded)))
        first = ProducerBatch(self.partition, self.number, self.created_ms)
        second = ProducerBatch(self.partition, self.number, self.created_ms)
        half_bytes = self.charged_bytes // 2
        for record in records:
            size_bytes = charge(record)
            is_first_full = first.charged_bytes + size_bytes > half_bytes and first.record_count
            part = second if is_first_full or second.record_count else first
            part.append(record.timestamp_ms, record.key, record.value, record.headers, size_bytes)
        assert second.record_count, "the last record never fits into the first half"
        second.number += first.record_count
        for part in (first, second):
            part.close()
            part.is_part = True
            part.is_uncertain = self.is_uncertain
            part.is_watched = self.is_watched
            part.senders = self.senders
        if self.is_numbered:
            first.base_sequence = self.base_sequence
            second.base_sequence = (self.base_sequence + first.record_count) % SEQUENCE_COUNT
        self.parts = first, second
        return self.parts

    def blame(self, record_errors: Mapping[int, str | None]) -> None:
        """Set the errors of the records that the broker named as invalid. All other records of the
        batch have failed only because of these records."""
        failure = self.failure
        named = sorted(index for index in record_errors if 0 <= index < self.record_count)
        if failure is None or not named:
            return
        # The error code applies to the whole batch.  It is that of a record only if a single one is
        # named.
        code = failure.code if len(record_errors) == 1 else ErrorCode.INVALID_RECORD
        may_be_in_log = failure.may_be_in_log
        self.record_failures = {
            index: NotDeliveredError(
                code,
                f"{self.partition}: {record_errors[index]}"
                if record_errors[index]
                else failure.message,
                may_be_in_log=may_be_in_log,
            )
            for index in named
        }
        self.failure = NotDeliveredError(
            failure.code,
            f"{self.partition}: not written, because its batch of {self.record_count} records has "
            f"{len(named)} that the broker refuses; the first is record {named[0]}: "
            f"{record_errors[named[0]] or failure.message}",
            may_be_in_log=may_be_in_log,
            is_due_to_another=True,
        )

    def failure_of(self, index: int) -> NotDeliveredError | None:
        """Return the reason why a record of the batch was not delivered, or None if the record was
        delivered or its result is not known yet."""
        return self.record_failures.get(index, self.failure)

    @property
    def first_failure(self) -> NotDeliveredError | None:
        """Error of the first record that the broker named as invalid, or the error of the whole
        batch if the broker named no record. None if the batch has not failed."""
        return next(iter(self.record_failures.values()), self.failure)

    @property
    def is_numbered(self) -> bool:
        """True if the batch has a base sequence, as in an idempotent producer."""
        return self.base_sequence != NO_SEQUENCE


class PartitionQueue:
    """Batches of one partition that are neither delivered nor failed."""

    __slots__ = (
        "in_flight",
        "is_idempotent",
        "is_known",
        "is_transactional",
        "needs_new_epoch",
        "newest",
        "next_sequence",
        "partition",
        "retries",
        "retry_at_ms",
        "waiting",
    )

    def __init__(
        self,
        partition: TopicPartition,
        *,
        is_idempotent: bool,
        retries: int,
        is_transactional: bool = False,
    ) -> None:
        self.partition = partition
        self.is_transactional = is_transactional
        self.is_idempotent = is_idempotent
        self.retries = retries
        self.waiting: deque[ProducerBatch] = deque()
        """Batches to be sent, in this order: first batches that are sent again, then batches that
        were not sent yet. The last batch may be open."""
        self.in_flight: list[ProducerBatch] = []
        self.retry_at_ms = 0
        self.next_sequence = 0
        self.needs_new_epoch = False
        self.is_known = False
        """True if the leader has accepted a batch under the current producer epoch."""
        self.newest: ProducerBatch | None = None
        """The newest batch of the partition. Records are added to it while it `is_open`."""

    @property
    def is_empty(self) -> bool:
        """True if no batch is waiting or in flight."""
        return not self.waiting and not self.in_flight

    @property
    def has_numbered(self) -> bool:
        """True if batches in the queue may have a sequence of the current producer epoch."""
        return bool(self.in_flight) or any(batch.is_numbered for batch in self.waiting)

    def open_batch(self, now_ms: int) -> ProducerBatch:
        """Add a new open batch behind all other batches, and return it."""
        newest = self.newest
        number = 0
        if newest is not None:
            number = newest.number + newest.record_count
            newest.close()
        batch = self.newest = ProducerBatch(self.partition, number, now_ms)
        self.waiting.append(batch)
        return batch

    def may_send(self, now_ms: int, in_flight_max: int, *, may_number: bool) -> bool:
        """Return whether the first waiting batch may be sent now without changing the order of
        records.

        `may_number` is False if the producer has no producer id yet, or must first request a new
        epoch. The batch must then already have a sequence.
        """
        first = self.waiting[0]
        if now_ms < self.retry_at_ms:
            return False
        if first.attempt_count > 0 or first.is_part or not (self.is_idempotent and self.is_known):
            is_turn = not self.in_flight
        else:
            is_turn = len(self.in_flight) < in_flight_max and all(
                batch.attempt_count == 1 for batch in self.in_flight
            )
        return is_turn and (may_number or first.is_numbered or not self.is_idempotent)

    def send_first(self) -> ProducerBatch:
        """Mark the first waiting batch as in flight, and return it. The batch gets a sequence if it
        needs one."""
        batch = self.waiting.popleft()
        assert not self.in_flight or self.in_flight[-1].number < batch.number
        if self.is_idempotent and not batch.is_numbered:
            batch.base_sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.record_count) % SEQUENCE_COUNT
            batch.encoded = None
        batch.close()
        batch.attempt_count += 1
        self.in_flight.append(batch)
        return batch

    def on_answer(self, batch: ProducerBatch, code: int, message: str | None) -> BatchOutcome:
        """Process the broker's response for a batch in flight, and return the outcome."""
        self.in_flight.remove(batch)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.is_known = True
            return BatchOutcome.DELIVERED
        if code in TOO_LARGE and batch.record_count > 1:
            return BatchOutcome.SPLIT
        row = row_of(code)
        if self.is_idempotent and code in NUMBERING_ERRORS:
            return self._on_numbering_error(batch, ErrorCode(row.code), message)
        if not row.is_retriable:
            return self.fail(batch, ErrorCode(row.code), message or row.meaning)
        batch.is_uncertain |= code not in NOT_APPENDED
        return self._retry(batch, ErrorCode(row.code), message or row.meaning)

    def on_lost(self, batch: ProducerBatch, why: str) -> BatchOutcome:
        """Process the loss of a batch's response, after which the batch may or may not have been
        written. Returns the outcome."""
        self.in_flight.remove(batch)
        batch.is_uncertain = True
        return self._retry(batch, ErrorCode.NETWORK_EXCEPTION, why)

    def on_unsent(self, batch: ProducerBatch) -> None:
        """Move a batch from in flight back to waiting, because it was certainly not sent."""
        self.in_flight.remove(batch)
        batch.attempt_count -= 1
        self._put_back(batch)

    def go_on_as(self, parts: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Replace a batch that was too large by its two parts, which are sent before all later
        batches."""
        for part in parts:
            self._put_back(part)

    def expired(self, created_before_ms: int) -> list[ProducerBatch]:
        """Remove and return the waiting batches that were created at or before
        `created_before_ms`."""
        gone = []
        while self.waiting and self.waiting[0].created_ms <= created_before_ms:
            gone.append(self.waiting.popleft())
        return gone

    def start_epoch(self) -> None:
        """Continue under a new producer epoch. The sequences start at 0 again."""
        assert not self.has_numbered
        self.next_sequence = 0
        self.needs_new_epoch = False
        self.is_known = False

    def fail(self, batch: ProducerBatch, code: ErrorCode, message: str) -> BatchOutcome:
        """Record the failure of a batch that has been removed from the queue, and return the
        outcome."""
        if batch.is_numbered:
            # The broker may miss its sequences from now on.
            self.needs_new_epoch = True
        batch.failure = NotDeliveredError(
            code, f"{self.partition}: {message}", may_be_in_log=batch.is_uncertain
        )
        return BatchOutcome.FAILED

    def _on_numbering_error(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None
    ) -> BatchOutcome:
        if self._is_behind_another(batch):
            # The missing earlier batch may still be written, so that batch decides.
            self._put_back(batch)
            return BatchOutcome.RETRIED
        self.needs_new_epoch = True
        if batch.is_uncertain or self.is_transactional:
            # The broker has lost its state of this producer, so it cannot detect whether an earlier
            # attempt was written.  A transaction keeps its epoch until it ends.
            return self.fail(batch, code, message or row_of(code).meaning)
        batch.base_sequence = NO_SEQUENCE
        self._put_back(batch)
        return BatchOutcome.RETRIED

    def _is_behind_another(self, batch: ProducerBatch) -> bool:
        return any(one.number < batch.number for one in self.in_flight) or any(
            one.number < batch.number and one.is_numbered for one in self.waiting
        )

    def _retry(self, batch: ProducerBatch, code: ErrorCode, message: str) -> BatchOutcome:
        if batch.attempt_count > self.retries:
            return self.fail(batch, code, message)
        batch.last_refusal = f"{code.name}: {message}"
        self._put_back(batch)
        return BatchOutcome.RETRIED

    def _put_back(self, batch: ProducerBatch) -> None:
        at = sum(1 for one in self.waiting if one.number < batch.number)
        self.waiting.insert(at, batch)
