"""One partition's way to its leader: batches that gather, wait, are in flight, and come back.

Pure.  The order of a partition is kept whatever fails: a batch that must be sent again goes alone,
before all that came after it.  With an idempotent producer every batch has its sequence from its
first attempt on, and keeps it, so that the broker knows a repetition.  Invariants:

OrderKept        batches leave a lane in the order in which their records came, and until a leader
                 knows the producer one at a time: it would take any sequence for the first
OneCopy          a batch gets a new sequence only when no copy of it can be in the log
GapsAreBridged   where a numbered batch failed, nothing follows under its producer epoch
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
"""The broker's memory of this producer is not ours: a new epoch makes them agree (KIP-360)."""
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
"""Retriable answers that say for sure that nothing was written.  NOT_LEADER_OR_FOLLOWER is none of
them: a leader that was deposed while the batch waited says it too."""


TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Nothing was written; in smaller batches the same records may do."""


GATHERED_BYTES = 65_536
"""Records of about this size are encoded together: more hold the loop longer."""

NO_RECORDS = BatchBuilder()
"""Stands in a settled batch."""


class NotDeliveredError(RefusedError):
    """A record was not delivered; `may_be_in_log` says whether it may be there nevertheless.

    `is_due_to_another` is true where the broker refused other records of the same batch (KIP-467):
    this one has no fault, and may be delivered when it is sent again without them.
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
        """Whether the record may be in the log all the same."""
        self.is_due_to_another = is_due_to_another
        """Whether another record of the batch was at fault, and this one may be sent again."""


class Fate(Enum):
    """What an answer means for its batch."""

    DELIVERED = auto()
    FAILED = auto()
    RETRIED = auto()
    SPLIT = auto()
    """Its records go on in two batches, `parts`."""


class ProducerBatch:
    """Records of one partition that travel together."""

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
        """How many records the lane took before it: the order of its batches."""
        self.created_ms = created_ms
        self.builder = BatchBuilder()
        self.values: list[bytes | None] = []
        """Values that are not in the builder yet: many are encoded together, for much less each."""
        self._keys: list[bytes | None] = []
        """Their keys; empty where none has one."""
        self._stamp_ms = 0
        """Their timestamp."""
        self.plain_ms = -1
        """The timestamp of records without key and headers that just join `values`; -1: of none."""
        self.size_bytes = BATCH_HEADER_BYTES
        """The most it takes uncompressed; what it takes once all is encoded."""
        self.gathers_to_bytes = GATHERED_BYTES
        """When it is this large, what it has gathered is encoded."""
        self.record_count = 0
        self.charged_bytes = 0
        """What it takes of `buffer.memory`."""
        self.encoded: bytes | None = None
        self.base_sequence = NO_SEQUENCE
        self.attempt_count = 0
        self.last_refusal = ""
        """Why the last attempt is repeated, as its broker or connection said."""
        self.is_uncertain = False
        """Whether an attempt may have been appended though nobody said so."""
        self.is_open = True
        """Whether more records may join; not from its first attempt on, nor before a newer one."""
        self.is_settled = False
        self.base_offset = Offset(-1)
        self.log_append_time_ms = -1
        self.failure: NotDeliveredError | None = None
        self.record_failures: dict[int, NotDeliveredError] = {}
        """Failures of the records at fault by their index, where the broker named them."""
        self.is_watched = False
        """Whether somebody waits, or waited, for what becomes of it."""
        self.is_part = False
        """Whether it comes from a batch that was too large."""
        self.parts: tuple[ProducerBatch, ProducerBatch] | None = None
        """What became of it when it was too large."""
        self.on_settled: list[Callable[[], None]] = []
        """Called when it settles or is split."""
        self.senders: list[Any] | None = None
        """The spans of its records, as far as they are of use, where the program makes some."""

    def append(
        self,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | EncodedHeaders,
        charge_bytes: int,
    ) -> None:
        """Take one record."""
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
        """Close it: further records begin another batch."""
        self.is_open = False
        self.plain_ms = -1

    def extend(self, timestamp_ms: int, run: RecordRun, room_bytes: int) -> int:
        """Take as many records of a run as fit, at least one; return their charge."""
        self.encode_gathered()
        delta = self.builder.timestamp_delta(timestamp_ms)
        taken = run.take(room_bytes, self.builder.next_delta, delta)
        self.builder.extend(timestamp_ms, taken.body, taken.record_count)
        self.record_count += taken.record_count
        self.charged_bytes += len(taken.body)
        self._note_size()
        return len(taken.body)

    def encode_gathered(self) -> None:
        """Put into the builder what is not there yet."""
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
        """Let go of the bytes; a Delivery that is kept keeps the batch."""
        self.builder, self.encoded = NO_RECORDS, None
        self.values, self._keys = [], []

    def leaf_of(self, index: int) -> "tuple[ProducerBatch, int]":
        """Return the batch where one of its records is now, and the record's number in that."""
        batch = self
        while batch.parts is not None:
            first, second = batch.parts
            if index < first.record_count:
                batch = first
            else:
                batch, index = second, index - first.record_count
        return batch, index

    def split(self, charge: Callable[[Record], int]) -> "tuple[ProducerBatch, ProducerBatch]":
        """Make two of it, each with about half of its bytes and its part of the sequences."""
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
        """Give the records that a refusal names their own failures; the others had no fault."""
        failure = self.failure
        named = sorted(index for index in record_errors if 0 <= index < self.record_count)
        if failure is None or not named:
            return
        # One code stands for the whole batch: it is that of a record only where one is named.
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
        """Return why one of its records was not delivered."""
        return self.record_failures.get(index, self.failure)

    @property
    def first_failure(self) -> NotDeliveredError | None:
        """The failure of the first record at fault, else that of the batch."""
        return next(iter(self.record_failures.values()), self.failure)

    @property
    def is_numbered(self) -> bool:
        """Whether it has its sequence."""
        return self.base_sequence != NO_SEQUENCE


class Lane:
    """The batches of one partition, from the first record to the last answer."""

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
        """Those to be repeated, then those never sent; the last one may still gather."""
        self.in_flight: list[ProducerBatch] = []
        self.retry_at_ms = 0
        self.next_sequence = 0
        self.needs_new_epoch = False
        self.is_known = False
        """Whether the leader has taken a batch of the present epoch."""
        self.newest: ProducerBatch | None = None
        """The last one that was begun; it gathers while it `is_open`."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self.waiting and not self.in_flight

    @property
    def has_numbered(self) -> bool:
        """Whether batches hold sequences of the present epoch."""
        return bool(self.in_flight) or any(batch.is_numbered for batch in self.waiting)

    def open_batch(self, now_ms: int) -> ProducerBatch:
        """Begin a new batch behind all others."""
        newest = self.newest
        number = 0
        if newest is not None:
            number = newest.number + newest.record_count
            newest.close()
        batch = self.newest = ProducerBatch(self.partition, number, now_ms)
        self.waiting.append(batch)
        return batch

    def may_send(self, now_ms: int, in_flight_max: int, *, may_number: bool) -> bool:
        """Return whether the first waiting batch may leave, full or not.

        `may_number` says whether sequences may be given out: not before there is a producer id,
        nor while a new epoch is due.
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
        """Take the first waiting batch into flight; number it if it must be."""
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

    def on_answer(self, batch: ProducerBatch, code: int, message: str | None) -> Fate:
        """Take the broker's answer for a batch in flight."""
        self.in_flight.remove(batch)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self.is_known = True
            return Fate.DELIVERED
        if code in TOO_LARGE and batch.record_count > 1:
            return Fate.SPLIT
        row = row_of(code)
        if self.is_idempotent and code in NUMBERING_ERRORS:
            return self._on_numbering_error(batch, ErrorCode(row.code), message)
        if not row.is_retriable:
            return self.fail(batch, ErrorCode(row.code), message or row.meaning)
        batch.is_uncertain |= code not in NOT_APPENDED
        return self._retry(batch, ErrorCode(row.code), message or row.meaning)

    def on_lost(self, batch: ProducerBatch, why: str) -> Fate:
        """Take note that no answer will come: it may have been appended or not."""
        self.in_flight.remove(batch)
        batch.is_uncertain = True
        return self._retry(batch, ErrorCode.NETWORK_EXCEPTION, why)

    def on_unsent(self, batch: ProducerBatch) -> None:
        """Put back what surely did not leave."""
        self.in_flight.remove(batch)
        batch.attempt_count -= 1
        self._put_back(batch)

    def go_on_as(self, parts: tuple[ProducerBatch, ProducerBatch]) -> None:
        """Send the parts of a batch that was too large, before all that came after it."""
        for part in parts:
            self._put_back(part)

    def expired(self, created_before_ms: int) -> list[ProducerBatch]:
        """Take out the waiting batches whose time to be delivered is over."""
        gone = []
        while self.waiting and self.waiting[0].created_ms <= created_before_ms:
            gone.append(self.waiting.popleft())
        return gone

    def start_epoch(self) -> None:
        """Number from 0 on, under a new producer epoch."""
        assert not self.has_numbered
        self.next_sequence = 0
        self.needs_new_epoch = False
        self.is_known = False

    def fail(self, batch: ProducerBatch, code: ErrorCode, message: str) -> Fate:
        """Settle a batch that is in no queue any more as failed."""
        if batch.is_numbered:
            # Its sequences are missing now, or nobody knows whether they are.
            self.needs_new_epoch = True
        batch.failure = NotDeliveredError(
            code, f"{self.partition}: {message}", may_be_in_log=batch.is_uncertain
        )
        return Fate.FAILED

    def _on_numbering_error(
        self, batch: ProducerBatch, code: ErrorCode, message: str | None
    ) -> Fate:
        if self._is_behind_another(batch):
            # What it misses may come yet: the older batch decides.
            self._put_back(batch)
            return Fate.RETRIED
        self.needs_new_epoch = True
        if batch.is_uncertain or self.is_transactional:
            # The broker has forgotten us: it can not tell whether an earlier attempt is there.
            # And a transaction keeps its epoch until it ends.
            return self.fail(batch, code, message or row_of(code).meaning)
        batch.base_sequence = NO_SEQUENCE
        self._put_back(batch)
        return Fate.RETRIED

    def _is_behind_another(self, batch: ProducerBatch) -> bool:
        return any(one.number < batch.number for one in self.in_flight) or any(
            one.number < batch.number and one.is_numbered for one in self.waiting
        )

    def _retry(self, batch: ProducerBatch, code: ErrorCode, message: str) -> Fate:
        if batch.attempt_count > self.retries:
            return self.fail(batch, code, message)
        batch.last_refusal = f"{code.name}: {message}"
        self._put_back(batch)
        return Fate.RETRIED

    def _put_back(self, batch: ProducerBatch) -> None:
        at = sum(1 for one in self.waiting if one.number < batch.number)
        self.waiting.insert(at, batch)
