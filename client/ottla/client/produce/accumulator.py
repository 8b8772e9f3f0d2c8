"""Everything a producer has taken and not yet delivered, by partition.

Pure: it is told the time, what a broker answered, and who leads; it says what may be sent, what has
settled, and when to look again.  Memory is charged when a record is taken and given back when its
batch settles.  A new producer epoch is asked for when a lane needs one and nothing numbered under
the old epoch is open any more.  Invariants: BoundedMemory, NothingAfterAFailure (only where
`ends_at_failure`: what is in a partition then has no gaps), and those of `producer_lane`.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar, NamedTuple

from ottla.client.produce.producer_lane import Fate, Lane, NotDeliveredError, ProducerBatch
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
"""Length, attributes, timestamp, offset, key length, value length, header count at their longest
in a batch that is no larger than a request."""
HEADER_OVERHEAD_BYTES = 10
FAILED_BATCH_COUNT_MAX = 1_000
"""Failures remembered until somebody asks; the oldest go first."""

NO_RECORD_ERRORS: Mapping[int, str | None] = MappingProxyType({})


class ProducerIdentity(NamedTuple):
    """Who an idempotent producer is to the brokers."""

    producer_id: ProducerId
    epoch: int


class PlainRoute(NamedTuple):
    """Where a topic's next record without key and headers goes while nothing has to be decided."""

    batch: ProducerBatch
    limit_bytes: int
    """Size of the batch up to which it does."""
    charged_bytes: int
    """What was charged for the batch before."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Accumulator:
    """The lanes of one producer and the memory they share."""

    is_transactional: ClassVar[bool] = False

    def __init__(self, config: ProducerConfig, *, ends_at_failure: bool = False) -> None:
        self.identity: ProducerIdentity | None = None
        self.ended_by: RefusedError | None = None
        """The first failure, where nothing may leave after one."""
        self.refusal: RefusedError | None = None
        """Why no record is accepted now."""
        self.produce_version_max = INT16_MAX
        """The highest version of Produce that may carry its batches."""
        self.measures = ProduceMeasures()
        self._ends_at_failure = ends_at_failure
        self.buffered_bytes = 0
        self._failed: deque[ProducerBatch] = deque(maxlen=FAILED_BATCH_COUNT_MAX)
        self._config = config
        self._batch_bytes = config.batch_bytes
        self._buffer_bytes_max = config.buffer_bytes_max
        self._codec = Codec[config.compression_type.upper()]
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}
        """The lanes where something waits; who was served last stands last."""
        self._routes: dict[str, PlainRoute] = {}
        self._is_flushing = 0
        self._is_short_of_memory = False
        self._is_epoch_due = False

    # What the application does.

    def has_room(self, record_bytes: int) -> bool:
        """Return whether a record fits into the memory that is left; an empty buffer takes any."""
        fits = self.buffered_bytes + record_bytes <= self._buffer_bytes_max
        if not fits:
            # Batches that gather would gather forever: nothing can join them.
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
        """Put one record into the batch that gathers, as its last; None where it has no room.

        `charge_bytes` is the record's `record_bytes`.
        """
        lane = self._lanes.get(partition)
        if lane is None or (batch := lane.newest) is None or not batch.is_open:
            return None
        size_bytes = batch.size_bytes + charge_bytes
        if size_bytes > self._batch_bytes or size_bytes > batch.gathers_to_bytes:
            # What is gathered may take less than it is charged.
            batch.encode_gathered()
            if batch.size_bytes + charge_bytes > self._batch_bytes:
                return None
        batch.append(timestamp_ms, key, value, headers, charge_bytes)
        self.buffered_bytes += charge_bytes
        return batch

    def join_plain(self, topic: str, value: bytes, timestamp_ms: int) -> ProducerBatch | None:
        """Put one record without key and headers where the topic's last one went, as the last.

        None where there is something to decide: this is the short way, for most records.
        """
        route = self._routes.get(topic)
        if route is None or self.refusal is not None:
            return None
        batch, limit_bytes, _ = route
        charge_bytes = RECORD_OVERHEAD_BYTES + len(value)
        size_bytes = batch.size_bytes + charge_bytes
        buffered_bytes = self.buffered_bytes + charge_bytes
        if (
            timestamp_ms != batch.plain_ms
            or size_bytes > limit_bytes
            or buffered_bytes > self._buffer_bytes_max
        ):
            return None
        # Not by a method of the batch: a call costs a fifth of all this.
        batch.values.append(value)
        batch.record_count += 1
        batch.size_bytes = size_bytes
        batch.charged_bytes += charge_bytes
        self.buffered_bytes = buffered_bytes
        return batch

    def route_plain(self, topic: str, batch: ProducerBatch, room_bytes: int) -> None:
        """Let records without key and headers join this batch, about `room_bytes` of them."""
        self._routes[topic] = PlainRoute(
            batch,
            min(batch.size_bytes + room_bytes, batch.gathers_to_bytes, self._batch_bytes),
            batch.charged_bytes,
        )

    def end_plain_route(self, topic: str) -> int:
        """Have the next such record decided; return about how many bytes went the short way."""
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
        """Take one record; return its batch (it is the last in it) and whether to look again."""
        assert self.ended_by is None
        charge_bytes = record_bytes(key, value, headers)
        batch = self.join(partition, timestamp_ms, key, value, headers, charge_bytes)
        if batch is not None:
            return batch, False
        lane = self._lane(partition)
        self._busy.setdefault(partition, lane)
        batch = lane.open_batch(now_ms)
        batch.append(timestamp_ms, key, value, headers, charge_bytes)
        self.buffered_bytes += charge_bytes
        return batch, True  # to be sent, or to begin its linger

    def extend(
        self, partition: TopicPartition, timestamp_ms: int, run: RecordRun, now_ms: int
    ) -> bool:
        """Take what one batch takes of a run; return whether to look again."""
        assert self.ended_by is None
        batch_bytes = self._batch_bytes
        lane = self._lane(partition)
        batch = lane.newest
        if batch is not None and batch.is_open:
            batch.encode_gathered()
        is_new = (
            batch is None or not batch.is_open or batch.size_bytes + run.next_bytes > batch_bytes
        )
        if batch is None or is_new:
            self._busy.setdefault(partition, lane)
            batch = lane.open_batch(now_ms)
        room_bytes = min(
            batch_bytes - batch.size_bytes,
            self._buffer_bytes_max - self.buffered_bytes,
        )
        self.buffered_bytes += batch.extend(timestamp_ms, run, room_bytes)
        return is_new

    def newest(self, partition: TopicPartition) -> ProducerBatch:
        """Return the batch that took a partition's last record."""
        batch = self._lanes[partition].newest
        assert batch is not None
        return batch

    def _lane(self, partition: TopicPartition) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(
                partition,
                is_idempotent=self._config.enable_idempotence,
                retries=self._config.retries,
                is_transactional=self.is_transactional,
            )
        return lane

    def begin_flush(self) -> list[ProducerBatch]:
        """Let nothing linger until `end_flush`; return what is open now."""
        self._is_flushing += 1
        return [
            batch for lane in self._lanes.values() for batch in (*lane.in_flight, *lane.waiting)
        ]

    def end_flush(self) -> None:
        """Let batches gather again."""
        self._is_flushing -= 1

    def take_unseen_failure(self) -> NotDeliveredError | None:
        """Return the first failure that nobody waited for; forget all there are."""
        unseen = [batch.first_failure for batch in self._failed if not batch.is_watched]
        self._failed.clear()
        return unseen[0] if unseen else None

    # What the connections do.

    @property
    def is_identity_due(self) -> bool:
        """Whether the brokers must be asked now for an id, or for a new epoch of it."""
        if not self._config.enable_idempotence:
            return False
        if self.identity is None:
            return bool(self._busy)
        return self._is_epoch_due and not any(lane.has_numbered for lane in self._lanes.values())

    def become(self, identity: ProducerIdentity) -> None:
        """Number from 0 on, under this id and epoch."""
        self.identity = identity
        self._is_epoch_due = False
        for lane in self._lanes.values():
            lane.start_epoch()

    def waiting_partitions(self) -> Sequence[TopicPartition]:
        """Return the partitions where something waits, those served longest ago first."""
        return tuple(self._busy)

    def drain(self, partitions: Sequence[TopicPartition], now_ms: int) -> list[ProducerBatch]:
        """Take into flight what may leave now for these partitions, at most a request full."""
        config, measures = self._config, self.measures
        room_bytes = config.request_bytes_max
        taken: list[ProducerBatch] = []
        if self.ended_by is not None:
            return taken
        for partition in partitions:
            lane = self._busy.get(partition)
            if lane is None or not self._is_ready(lane, now_ms):
                continue
            lane.waiting[0].encode_gathered()
            size_bytes = lane.waiting[0].size_bytes
            if taken and size_bytes > room_bytes:
                break
            room_bytes -= size_bytes
            batch = lane.send_first()
            self._encode(batch)
            if batch.attempt_count > 1:
                measures.retry_count += batch.record_count
            else:
                measures.record_count += batch.record_count
                measures.batch_bytes += len(batch.encoded or b"")
                measures.queue_times_ms.note(now_ms - batch.created_ms)
            taken.append(batch)
            del self._busy[partition]
            if lane.waiting:
                self._busy[partition] = lane
        if taken:
            measures.request_count += 1
        return taken

    def next_look_ms(self, now_ms: int) -> int | None:
        """Return when something may become ready, or be over, by time alone."""
        config = self._config
        found: int | None = None
        for lane in self._busy.values():
            first = lane.waiting[0]
            for due_ms in (
                max(first.created_ms + config.linger_ms, lane.retry_at_ms),
                first.created_ms + config.delivery_timeout_ms,
            ):
                if due_ms > now_ms and (found is None or due_ms < found):
                    found = due_ms
        return found

    def next_expiry_ms(self) -> int | None:
        """Return when the first batch that waits expires; None while none waits."""
        found = [lane.waiting[0].created_ms for lane in self._busy.values()]
        return min(found) + self._config.delivery_timeout_ms if found else None

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Settle, as failed, what waits for longer than it may; return it."""
        bound_ms = now_ms - self._config.delivery_timeout_ms
        gone: list[ProducerBatch] = []
        for partition, lane in list(self._busy.items()):
            for batch in lane.expired(bound_ms):
                lane.fail(
                    batch,
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"not delivered in {self._config.delivery_timeout_ms} ms "
                    f"({batch.attempt_count} attempts)"
                    + (f"; the last: {batch.last_refusal}" if batch.last_refusal else ""),
                )
                self._settle(lane, batch)
                gone.append(batch)
            if not lane.waiting:
                del self._busy[partition]
        self._fail_what_follows()
        return gone

    def fail_waiting(self, code: ErrorCode, message: str) -> None:
        """Settle everything that waits as failed: the producer can not go on."""
        for lane in list(self._busy.values()):
            while lane.waiting:
                batch = lane.waiting.popleft()
                lane.fail(batch, code, message)
                self._settle(lane, batch)
        self._busy.clear()

    def on_acknowledged(
        self, batch: ProducerBatch, *, base_offset: int = -1, log_append_time_ms: int = -1
    ) -> None:
        """Settle a batch in flight as delivered."""
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
    ) -> Fate:
        """Take the broker's answer for a batch in flight.

        `record_errors` has the records at fault by their index in the batch, with messages.
        """
        lane = self._lanes[batch.partition]
        fate = lane.on_answer(batch, code, message)
        if fate is Fate.FAILED and record_errors:
            batch.blame(record_errors)
        if fate is Fate.DELIVERED and code == ErrorCode.NONE:
            batch.base_offset = Offset(base_offset)
            batch.log_append_time_ms = log_append_time_ms
        self._follow(lane, batch, fate, now_ms)
        self._fail_what_follows()
        return fate

    def on_lost(self, batch: ProducerBatch, why: str, now_ms: int) -> Fate:
        """Take note that no answer will come for a batch in flight."""
        lane = self._lanes[batch.partition]
        fate = lane.on_lost(batch, why)
        self._follow(lane, batch, fate, now_ms)
        self._fail_what_follows()
        return fate

    def on_unsent(self, batch: ProducerBatch) -> None:
        """Put back a batch that surely did not leave."""
        lane = self._lanes[batch.partition]
        lane.on_unsent(batch)
        self._busy[batch.partition] = lane
        self._fail_what_follows()

    def _is_ready(self, lane: Lane, now_ms: int) -> bool:
        config = self._config
        first = lane.waiting[0]
        may_number = self.identity is not None and not self._is_epoch_due
        if not lane.may_send(now_ms, config.in_flight_count_max, may_number=may_number):
            return False
        return (
            len(lane.waiting) > 1
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

    def _follow(self, lane: Lane, batch: ProducerBatch, fate: Fate, now_ms: int) -> None:
        self._is_epoch_due |= lane.needs_new_epoch
        if fate is Fate.SPLIT:
            parts = batch.split(_charge_of)
            # What the parts give back when they settle is what they are charged now.
            self.buffered_bytes += sum(part.charged_bytes for part in parts) - batch.charged_bytes
            lane.go_on_as(parts)
            self._busy[batch.partition] = lane
            self._tell(batch)
            return
        if fate is not Fate.RETRIED:
            self._settle(lane, batch)
            return
        config = self._config
        doubled = config.retry_backoff_ms << min(batch.attempt_count - 1, 16)
        lane.retry_at_ms = now_ms + min(doubled, config.retry_backoff_ms_max)
        self._busy[batch.partition] = lane

    def _settle(self, lane: Lane, batch: ProducerBatch) -> None:
        self._is_epoch_due |= lane.needs_new_epoch
        batch.is_settled = True
        batch.close()
        self.buffered_bytes -= batch.charged_bytes
        self._is_short_of_memory = False
        if batch.failure is not None:
            self.measures.error_count += batch.record_count
            self._failed.append(batch)
            if self._ends_at_failure and self.ended_by is None:
                self.ended_by = self.refusal = batch.first_failure
        self._tell(batch)

    def _fail_what_follows(self) -> None:
        """Settle what waits as failed, once nothing may leave any more."""
        if self.ended_by is not None:
            self.fail_waiting(self.ended_by.code, "a record before it was not delivered")

    def _tell(self, batch: ProducerBatch) -> None:
        """Wake who waits for a batch; its bytes are of no use any more."""
        batch.forget_records()
        for callback in batch.on_settled:
            callback()
        batch.on_settled.clear()


def _charge_of(record: Record) -> int:
    return record_bytes(record.key, record.value, record.headers)


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers | EncodedHeaders) -> int:
    """Return the most a record can take in a batch."""
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
