"""Buffered records of a producer that have not been delivered yet, by partition.

Pure. Inputs are the time, brokers' responses and partition leaders. Outputs are batches to send,
batches that were delivered or have failed, and the time of the next check. A record uses memory
from the time it is accepted until its batch is delivered or has failed. If the queue of a partition
needs a new producer epoch, the producer requests one after all batches with a sequence of the old
epoch are delivered or have failed. Invariants, in addition to those of `partition_queue`:
- BoundedMemory: buffered records never exceed `buffer.memory`, except for a single record.
- NothingAfterAFailure (only with `ends_at_failure`): no record is sent after an undelivered record,
    so that the records of a partition have no gaps.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partition_queue import (
    BatchOutcome,
    NotDeliveredError,
    PartitionQueue,
    ProducerBatch,
)
from ottla.client.produce.record_run import RecordRun
from ottla.client.telemetry.measures import ProduceMeasures
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID, Offset, ProducerId, TopicPartition
from ottla.model.limits import INT16_MAX
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch import NO_PRODUCER_EPOCH
from ottla.wire.batch_builder import EncodedHeaders, Headers
from ottla.wire.compression import Codec
from ottla.wire.records import Record

RECORD_OVERHEAD_BYTES = 26
"""Maximum size, in bytes, of the fields of a record in a batch other than key, value and
headers. These fields are length, attributes, timestamp, offset, key length, value length and
header count."""
HEADER_OVERHEAD_BYTES = 10
FILLED_SHARE = 32
"""Divisor of a batch's record count. A batch that has room for fewer records than the quotient is
full. With a larger number, batches are fuller, but their last records are encoded one by one, which
takes more time than a few more batches."""
FAILED_BATCH_COUNT_MAX = 1_000
"""Maximum number of failed batches that are stored for `take_unseen_failure`. If there are more,
the oldest are dropped."""

NO_RECORD_ERRORS: Mapping[int, str | None] = MappingProxyType({})


class ProducerIdentity(NamedTuple):
    """Producer id and producer epoch of an idempotent producer."""

    producer_id: ProducerId
    epoch: int


class PlainRoute:
    """Batch to which the next records of a topic are appended directly if they have neither key nor
    headers.

    The route ends when the batch reaches `limit_bytes`, and after the millisecond of its timestamp.
    A partition is then chosen for the next record.
    """

    __slots__ = ("batch", "charged_bytes", "from_s", "limit_bytes", "timestamp_ms", "until_s")

    def __init__(self, batch: ProducerBatch, limit_bytes: int) -> None:
        self.batch = batch
        self.limit_bytes = limit_bytes
        """Size of the batch, in bytes, at which no further records are appended through the
        route."""
        self.charged_bytes = batch.charged_bytes
        """Bytes of `buffer.memory` that the batch already used when the route started."""
        self.timestamp_ms = batch.plain_ms
        """Timestamp of the records, in ms since 1970."""
        self.from_s = batch.plain_ms / 1_000
        """First time, in seconds since 1970, at which a record has this timestamp."""
        self.until_s = (batch.plain_ms + 1) / 1_000
        """First time, in seconds since 1970, at which a record has a later timestamp."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Accumulator:
    """Buffer of one producer: the queues of all its partitions, and the memory that the queues
    share."""

    is_transactional: ClassVar[bool] = False

    def __init__(self, config: ProducerConfig, *, ends_at_failure: bool = False) -> None:
        self.identity: ProducerIdentity | None = None
        self.ended_by: RefusedError | None = None
        """First failure of a batch, set only if the producer was opened with `ends_at_failure`.
        None before the first failure."""
        self.refusal: RefusedError | None = None
        """Error that `send` currently raises for new records, or None if new records are
        accepted."""
        self.produce_version_max = INT16_MAX
        """Highest version of Produce that may be used for the buffered batches."""
        self.measures = ProduceMeasures()
        self._ends_at_failure = ends_at_failure
        self._wall_s: Callable[[], float] = _no_time
        self.burst_left = 0
        """Number of records that `join_plain` still accepts before the sending task must check
        whether other tasks have to run. The sending task sets it again."""
        self.buffered_bytes = 0
        self._failed: deque[ProducerBatch] = deque(maxlen=FAILED_BATCH_COUNT_MAX)
        self._config = config
        self._batch_bytes = config.batch_bytes
        self._buffer_bytes_max = config.buffer_bytes_max
        self._codec = Codec[config.compression_type.upper()]
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        """Queues with waiting batches by partition, least recently served first."""
        self._routes: dict[str, PlainRoute] = {}
        self._is_flushing = 0
        self._is_short_of_memory = False
        self._is_epoch_due = False

    def use_clock(self, wall_s: Callable[[], float]) -> None:
        """Set the clock of `join_plain`: a function that returns the time in seconds since 1970.
        Without a clock, there is no fast path."""
        self._wall_s = wall_s

    # Called for the application.

    def has_room(self, record_bytes: int) -> bool:
        """Return whether the free memory is enough for a record. An empty buffer accepts a record
        of any size."""
        fits = self.buffered_bytes + record_bytes <= self._buffer_bytes_max
        if not fits:
            # Open batches are sent now: no record could be added to them while memory is full.
            self._is_short_of_memory = True
        return fits or not self.buffered_bytes

    def join(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | EncodedHeaders,
        charge_bytes: int,
    ) -> ProducerBatch | None:
        """Append one record to the open batch of its partition, and return the batch.

        Returns None if the partition has no open batch, or if the record does not fit.
        `charge_bytes` is the memory that the record uses, as returned by `record_bytes`.
        """
        queue = self._queues.get(partition)
        if queue is None or (batch := queue.newest) is None or not batch.is_open:
            return None
        size_bytes = batch.size_bytes + charge_bytes
        if size_bytes > self._batch_bytes or size_bytes > batch.gathers_to_bytes:
            # The size was counted with the largest overhead per record; encoded records may be
            # smaller.
            batch.encode_gathered()
            room_bytes = self._batch_bytes - batch.size_bytes
            if room_bytes < charge_bytes:
                return None
            if room_bytes // charge_bytes * FILLED_SHARE < batch.record_count:
                return None
        batch.append(timestamp_ms, key, value, headers, charge_bytes)
        self.buffered_bytes += charge_bytes
        return batch

    # The arguments have any type, because the application's arguments are not checked yet.
    def join_plain(self, topic: Any, value: Any) -> Delivery | None:
        """Append one record without key and headers to the batch of the topic's `PlainRoute`, with
        the present time as its timestamp, and return its delivery report.

        This is the fast path for most records. Returns None if the record has to be checked, if a
        partition has to be chosen, if the record does not fit, or after `burst_left` records.
        """
        if type(topic) is not str or type(value) is not bytes or self.burst_left <= 0:
            return None
        route = self._routes.get(topic)
        if route is None or self.refusal is not None:
            return None
        batch = route.batch
        charge_bytes = RECORD_OVERHEAD_BYTES + len(value)
        size_bytes = batch.size_bytes + charge_bytes
        buffered_bytes = self.buffered_bytes + charge_bytes
        timestamp_ms = route.timestamp_ms
        if (
            timestamp_ms != batch.plain_ms
            or not route.from_s <= self._wall_s() < route.until_s
            or size_bytes > route.limit_bytes
            or buffered_bytes > self._buffer_bytes_max
        ):
            return None
        # Not a method of the batch: a call would cost a fifth of this function.
        index = batch.record_count
        batch.values.append(value)
        batch.record_count = index + 1
        batch.size_bytes = size_bytes
        batch.charged_bytes += charge_bytes
        self.buffered_bytes = buffered_bytes
        self.burst_left -= 1
        return Delivery(batch, index, timestamp_ms)

    def route_plain(self, topic: str, batch: ProducerBatch, room_bytes: int) -> None:
        """Start a `PlainRoute` for a topic. The next records without key and headers are then
        appended to `batch`, until about `room_bytes` have been appended."""
        self._routes[topic] = PlainRoute(
            batch, min(batch.size_bytes + room_bytes, batch.gathers_to_bytes, self._batch_bytes)
        )

    def end_plain_route(self, topic: str) -> int:
        """End the `PlainRoute` of a topic. Returns the approximate size, in bytes, of the records
        that it has appended."""
        route = self._routes.pop(topic, None)
        return 0 if route is None else route.batch.charged_bytes - route.charged_bytes

    def append(
        self,
        partition: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | EncodedHeaders,
        now_ms: int,
    ) -> tuple[ProducerBatch, bool]:
        """Buffer one record as the last record of a batch. Returns the batch, and True if the batch
        is new.

        If the batch is new, the caller must wake the connections to brokers.
        """
        assert self.ended_by is None
        charge_bytes = record_bytes(key, value, headers)
        batch = self.join(partition, timestamp_ms, key, value, headers, charge_bytes)
        if batch is not None:
            return batch, False
        queue = self._queue(partition)
        self._busy.setdefault(partition, queue)
        batch = queue.open_batch(now_ms)
        batch.append(timestamp_ms, key, value, headers, charge_bytes)
        self.buffered_bytes += charge_bytes
        return batch, True  # a new batch: to be sent, or its linger time starts

    def extend(
        self, partition: TopicPartition, timestamp_ms: int, run: RecordRun, now_ms: int
    ) -> bool:
        """Buffer as many records of a run as fit into one batch.

        Returns True if the batch is new; the caller must then wake the connections to brokers.
        """
        assert self.ended_by is None
        batch_bytes = self._batch_bytes
        queue = self._queue(partition)
        batch = queue.newest
        if batch is not None and batch.is_open:
            batch.encode_gathered()
        is_new = (
            batch is None or not batch.is_open or batch.size_bytes + run.next_bytes > batch_bytes
        )
        if batch is None or is_new:
            self._busy.setdefault(partition, queue)
            batch = queue.open_batch(now_ms)
        room_bytes = min(
            batch_bytes - batch.size_bytes,
            self._buffer_bytes_max - self.buffered_bytes,
        )
        self.buffered_bytes += batch.extend(timestamp_ms, run, room_bytes)
        return is_new

    def newest(self, partition: TopicPartition) -> ProducerBatch:
        """Return the newest batch of a partition, which contains its last buffered record."""
        batch = self._queues[partition].newest
        assert batch is not None
        return batch

    def _queue(self, partition: TopicPartition) -> PartitionQueue:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(
                partition,
                is_idempotent=self._config.enable_idempotence,
                retries=self._config.retries,
                is_transactional=self.is_transactional,
            )
        return queue

    def begin_flush(self) -> list[ProducerBatch]:
        """Send batches without waiting for `linger.ms`, until `end_flush` is called. Returns all
        batches that are neither delivered nor failed."""
        self._is_flushing += 1
        return [
            batch for queue in self._queues.values() for batch in (*queue.in_flight, *queue.waiting)
        ]

    def end_flush(self) -> None:
        """End a flush. Incomplete batches are again delayed by `linger.ms` before they are sent."""
        self._is_flushing -= 1

    def take_unseen_failure(self) -> NotDeliveredError | None:
        """Return the first failure that no task has received, or None if there is no such failure.
        Then clear all recorded failures."""
        unseen = [batch.first_failure for batch in self._failed if not batch.is_watched]
        self._failed.clear()
        return unseen[0] if unseen else None

    # Called by the connections.

    @property
    def is_identity_due(self) -> bool:
        """True if the producer must now request a producer id, or a new epoch for its id."""
        if not self._config.enable_idempotence:
            return False
        if self.identity is None:
            return bool(self._busy)
        return self._is_epoch_due and not any(queue.has_numbered for queue in self._queues.values())

    def become(self, identity: ProducerIdentity) -> None:
        """Use a new producer id and epoch. The sequences of all partitions start at 0 again."""
        self.identity = identity
        self._is_epoch_due = False
        for queue in self._queues.values():
            queue.start_epoch()

    def waiting_partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions with waiting batches, least recently served first."""
        return tuple(self._busy)

    def drain(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[ProducerBatch]:
        """Move ready batches of these partitions from waiting to in flight, and return them.

        Returns at most one batch per partition. All batches together have at most
        `max.request.size` bytes, except for a single larger batch.
        """
        config, measures = self._config, self.measures
        room_bytes = config.request_bytes_max
        taken: list[ProducerBatch] = []
        if self.ended_by is not None:
            return taken
        for partition in partitions:
            queue = self._busy.get(partition)
            if queue is None or not self._is_ready(queue, now_ms):
                continue
            queue.waiting[0].encode_gathered()
            size_bytes = queue.waiting[0].size_bytes
            if taken and size_bytes > room_bytes:
                break
            room_bytes -= size_bytes
            batch = queue.send_first()
            self._encode(batch)
            if batch.attempt_count > 1:
                measures.retry_count += batch.record_count
            else:
                measures.record_count += batch.record_count
                measures.batch_bytes += len(batch.encoded or b"")
                measures.queue_times_ms.note(now_ms - batch.created_ms)
            taken.append(batch)
            del self._busy[partition]
            if queue.waiting:
                self._busy[partition] = queue
        if taken:
            measures.request_count += 1
        return taken

    def next_look_ms(self, now_ms: int) -> int | None:
        """Return the next time, in ms, at which a batch becomes ready to be sent or expires, or
        None if the buffer has no such batch."""
        config = self._config
        found: int | None = None
        for queue in self._busy.values():
            first = queue.waiting[0]
            for due_ms in (
                max(first.created_ms + config.linger_ms, queue.retry_at_ms),
                first.created_ms + config.delivery_timeout_ms,
            ):
                if due_ms > now_ms and (found is None or due_ms < found):
                    found = due_ms
        return found

    def next_expiry_ms(self) -> int | None:
        """Return the time, in ms, at which the first waiting batch expires, or None if no batch is
        waiting."""
        found = [queue.waiting[0].created_ms for queue in self._busy.values()]
        return min(found) + self._config.delivery_timeout_ms if found else None

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Fail the waiting batches that are older than `delivery.timeout.ms`, and return them."""
        bound_ms = now_ms - self._config.delivery_timeout_ms
        gone: list[ProducerBatch] = []
        for partition, queue in list(self._busy.items()):
            for batch in queue.expired(bound_ms):
                count = batch.attempt_count
                queue.fail(
                    batch,
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"not delivered in {self._config.delivery_timeout_ms} ms "
                    f"({count} {'attempt' if count == 1 else 'attempts'})"
                    + (f"; the last: {batch.last_refusal}" if batch.last_refusal else ""),
                )
                self._settle(queue, batch)
                gone.append(batch)
            if not queue.waiting:
                del self._busy[partition]
        self._fail_what_follows()
        return gone

    def fail_waiting(self, code: ErrorCode, message: str) -> None:
        """Fail all waiting batches, because the producer cannot continue."""
        for queue in list(self._busy.values()):
            while queue.waiting:
                batch = queue.waiting.popleft()
                queue.fail(batch, code, message)
                self._settle(queue, batch)
        self._busy.clear()

    def on_acknowledged(
        self, batch: ProducerBatch, *, base_offset: int = -1, log_append_time_ms: int = -1
    ) -> None:
        """Mark a batch in flight as delivered."""
        self.on_answer(
            batch,
            ErrorCode.NONE,
            None,
            0,
            base_offset=base_offset,
            log_append_time_ms=log_append_time_ms,
        )

    def on_answer(
        self,
        batch: ProducerBatch,
        code: int,
        message: str | None,
        now_ms: int,
        *,
        base_offset: int = -1,
        log_append_time_ms: int = -1,
        record_errors: Mapping[int, str | None] = NO_RECORD_ERRORS,
    ) -> BatchOutcome:
        """Process the broker's response for a batch in flight, and return the outcome.

        `record_errors` contains the messages for rejected records, by their index in the batch.
        """
        queue = self._queues[batch.partition]
        fate = queue.on_answer(batch, code, message)
        if fate is BatchOutcome.FAILED and record_errors:
            batch.blame(record_errors)
        if fate is BatchOutcome.DELIVERED and code == ErrorCode.NONE:
            batch.base_offset = Offset(base_offset)
            batch.log_append_time_ms = log_append_time_ms
        self._follow(queue, batch, fate, now_ms)
        self._fail_what_follows()
        return fate

    def on_lost(self, batch: ProducerBatch, why: str, now_ms: int) -> BatchOutcome:
        """Process the loss of a batch's response, after which the batch may or may not have been
        written. Returns the outcome."""
        queue = self._queues[batch.partition]
        fate = queue.on_lost(batch, why)
        self._follow(queue, batch, fate, now_ms)
        self._fail_what_follows()
        return fate

    def on_unsent(self, batch: ProducerBatch) -> None:
        """Move a batch from in flight back to waiting, because it was certainly not sent."""
        queue = self._queues[batch.partition]
        queue.on_unsent(batch)
        self._busy[batch.partition] = queue
        self._fail_what_follows()

    def _is_ready(self, queue: PartitionQueue, now_ms: int) -> bool:
        config = self._config
        first = queue.waiting[0]
        may_number = self.identity is not None and not self._is_epoch_due
        if not queue.may_send(now_ms, config.in_flight_count_max, may_number=may_number):
            return False
        return (
            len(queue.waiting) > 1
            or first.attempt_count > 0
            or first.is_part
            or first.size_bytes >= config.batch_bytes
            or now_ms >= first.created_ms + config.linger_ms
            or self._is_flushing > 0
            or self._is_short_of_memory
        )

    def _encode(self, batch: ProducerBatch) -> None:
        if batch.encoded is None:
            producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
            if batch.is_numbered:
                assert self.identity is not None
                producer_id, epoch = self.identity
            batch.encoded = batch.builder.build(
                codec=self._codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=batch.base_sequence,
                is_transactional=self.is_transactional,
            )

    def _follow(
        self, queue: PartitionQueue, batch: ProducerBatch, fate: BatchOutcome, now_ms: int
    ) -> None:
        self._is_epoch_due |= queue.needs_new_epoch
        if fate is BatchOutcome.SPLIT:
            parts = batch.split(_charge_of)
            # The batch's charge is replaced by those of its parts, which are released when the
            # parts settle.
            self.buffered_bytes += sum(part.charged_bytes for part in parts) - batch.charged_bytes
            queue.go_on_as(parts)
            self._busy[batch.partition] = queue
            self._report(batch)
            return
        if fate is not BatchOutcome.RETRIED:
            self._settle(queue, batch)
            return
        config = self._config
        doubled = config.retry_backoff_ms << min(batch.attempt_count - 1, 16)
        queue.retry_at_ms = now_ms + min(doubled, config.retry_backoff_ms_max)
        self._busy[batch.partition] = queue

    def _settle(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        self._is_epoch_due |= queue.needs_new_epoch
        batch.is_settled = True
        batch.close()
        self.buffered_bytes -= batch.charged_bytes
        self._is_short_of_memory = False
        if batch.failure is not None:
            self.measures.error_count += batch.record_count
            self._failed.append(batch)
            if self._ends_at_failure and self.ended_by is None:
                self.ended_by = self.refusal = batch.first_failure
        self._report(batch)

    def _fail_what_follows(self) -> None:
        """Fail all waiting batches if a failure has occurred and the producer was opened with
        `ends_at_failure`."""
        if self.ended_by is not None:
            self.fail_waiting(self.ended_by.code, "a record before it was not delivered")

    def _report(self, batch: ProducerBatch) -> None:
        """Wake the tasks that wait for a delivered or failed batch, and release its memory."""
        batch.forget_records()
        for callback in batch.on_settled:
            callback()
        batch.on_settled.clear()


def _no_time() -> float:
    """Return a time before all records."""
    return -1.0


def _charge_of(record: Record) -> int:
    return record_bytes(record.key, record.value, record.headers)


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers | EncodedHeaders) -> int:
    """Return the maximum size in bytes that a record can have in a batch."""
    size = RECORD_OVERHEAD_BYTES
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    if isinstance(headers, bytes):
        return size + len(headers)
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES + len(name) * 4 + len(content or b"")
    return size
