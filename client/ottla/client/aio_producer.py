"""The producer for asyncio. It collects records in an outbox, and passes them in bulk to a trio
producer that runs in another thread.

If the trio producer is expected to accept a record at once, `send` adds the record to the outbox
and returns. If the trio producer may have to wait or may refuse the record, `send` calls it in its
thread and waits for the outcome. Invariants:
- OrderKept: the outbox is emptied in the order of its records. Before a `send` calls the producer
  directly, before a flush, and before the start and end of a transaction, all earlier records must
  be accepted.
- MemoryBounded: records in the outbox count as part of `buffer.memory`.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import trio

from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import Committed
from ottla.client.network.aio_bridge import Bridge, asked, kept_open
from ottla.client.network.calls_of_others import CallsOfOthers
from ottla.client.network.trio_thread import Call, ClientClosedError, KeptManager, TrioThread
from ottla.client.produce.delivery import Delivery, RecordMetadata, missing_attribute
from ottla.client.produce.many_records import BatchMetadata, ManyRecords, SentRecords
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.produce.record_run import RecordRun
from ottla.client.producer import Producer
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.client.transactions.producer_transactions import ProducerTransaction
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.batch_builder import EncodedHeaders, Headers

SENDS_PER_TURN = 64
"""Number of records that a task may send before `send` yields to other tasks of the asyncio event
loop. With a smaller number, tasks yield more often. A larger number delays other tasks."""
TAKES_PER_TURN = 64
"""Number of records that the trio producer accepts from the outbox before other tasks of trio's
event loop run. With a smaller number, the other tasks run more often. A larger number delays the
other tasks.
"""


class WaitingRecord(NamedTuple):
    """A record in the outbox of an asyncio producer. The trio producer has not accepted it yet."""

    delivery: "AioDelivery"
    size_bytes: int
    arguments: tuple[str, bytes | None]
    options: dict[str, Any]
    context: contextvars.Context


class AioDelivery:
    """Delivery report of one record.

    Awaiting it returns RecordMetadata or raises NotDeliveredError. It may be awaited repeatedly.
    """

    __slots__ = ("_bridge", "_delivery", "_failure", "_on_taken")

    def __init__(self, bridge: Bridge[Producer], delivery: Delivery | None = None) -> None:
        self._bridge = bridge
        self._delivery = delivery
        self._failure: Exception | None = None
        self._on_taken: list[Callable[[], None]] = []

    def __await__(self) -> Generator[Any, Any, RecordMetadata]:
        return self.wait().__await__()

    if not TYPE_CHECKING:  # type checkers report these uses themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise missing_attribute(self, name)

    @property
    def is_settled(self) -> bool:
        """True if the record was delivered or has failed permanently."""
        if self._delivery is not None:
            return self._delivery.is_settled
        return self._failure is not None

    @property
    def failure(self) -> Exception | None:
        """Error of the delivery, or None if the record was delivered or its outcome is not known
        yet. `flush` raises this error even if the application has read this property."""
        return self._failure if self._delivery is None else self._delivery.failure

    def result(self) -> RecordMetadata:
        """Return the metadata of the delivered record. The caller must first wait until
        `is_settled` is True.

        Raises NotDeliveredError if the record was not delivered.
        """
        if self._delivery is None:
            assert self._failure is not None
            raise self._failure
        return self._delivery.result()

    async def wait(self) -> RecordMetadata:
        """Wait until the record is delivered or has failed, and return its metadata.

        Raises NotDeliveredError if the record was not delivered.
        """
        if not self.is_settled:
            bridge = self._bridge
            call: Call[None] = Call(asyncio.get_running_loop())
            bridge._thread.call_soon(self._watch, call)
            try:
                await bridge._thread.result_of(call, lambda: self._leave(call))
            except ClientClosedError:
                if not self.is_settled:
                    raise
        return self.result()

    # Called in trio's thread.

    def _take(self, delivery: Delivery | None, failure: Exception | None) -> None:
        """Store the outcome after the trio producer has received the record: the delivery report if
        the record was accepted, or the error if it was refused."""
        self._delivery, self._failure = delivery, failure
        waiting, self._on_taken = self._on_taken, []
        for watch in waiting:
            watch()

    def _watch(self, call: Call[None]) -> None:
        thread, kept = self._bridge._thread, self._bridge._kept
        if self._delivery is None and self._failure is None:
            self._on_taken.append(lambda: self._watch(call))
            return

        def settle() -> None:
            kept.on_close.pop(call, None)
            thread.post(call.settle, None, None)

        if self._delivery is None:
            settle()
        elif kept.is_closed and not self._delivery.is_settled:
            thread.post(call.settle, None, ClientClosedError())
        else:
            kept.on_close[call] = lambda: thread.post(call.settle, None, ClientClosedError())
            self._delivery.watch(settle)

    def _leave(self, call: Call[None]) -> None:
        self._bridge._kept.on_close.pop(call, None)
        self._bridge._thread.post(call.settle, None, None)


class AioSentRecords:
    """Delivery reports of the records of one `send_many` call.

    Awaiting it returns the partitions and offsets of the records.
    """

    __slots__ = ("_bridge", "_sent", "record_count")

    def __init__(self, bridge: Bridge[Producer], sent: SentRecords) -> None:
        self._bridge = bridge
        self._sent = sent
        self.record_count = sent.record_count
        """Number of records passed to `send_many`."""

    def __await__(self) -> Generator[Any, Any, list[BatchMetadata]]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """True if every record was delivered or has failed permanently."""
        return self._sent.is_settled

    @property
    def failures(self) -> dict[int, NotDeliveredError]:
        """Errors of the records that have failed so far, by the index of the record in the call."""
        return self._sent.failures

    def result(self) -> list[BatchMetadata]:
        """Return the partitions and offsets of the delivered records. The caller must first wait
        until `is_settled` is True."""
        return self._sent.result()

    async def wait(self) -> list[BatchMetadata]:
        """Wait until every record is delivered or has failed, and return the partitions and offsets
        of the records."""
        if self.is_settled:
            return self.result()
        return await self._bridge._run(self._sent.wait)


class AioOutbox:
    """Outbox of an asyncio producer: records that wait until the trio producer in another thread
    accepts them."""

    def __init__(
        self, bridge: Bridge[Producer], thread: TrioThread, kept: KeptManager[Producer]
    ) -> None:
        self._thread = thread
        self._kept = kept
        self._bridge = bridge
        self._records: deque[WaitingRecord] = deque()
        self._is_due = False
        """True if trio's thread was woken to empty the outbox, and has not started yet."""
        self._is_held_up = False
        """True if a task is waiting until the producer accepts the first record of the outbox."""
        # Each counter is changed in one thread only, and read in both.
        self._added_bytes = self._taken_bytes = 0
        self._added_count = self._taken_count = 0
        self._waiting: list[tuple[int, trio.Event]] = []
        self._failure: Exception | None = None
        """First error of a refused record whose delivery report was not awaited."""

    @property
    def waiting_bytes(self) -> int:
        """Size of the records in the outbox, in bytes."""
        return self._added_bytes - self._taken_bytes

    def add(self, record: WaitingRecord) -> None:
        """Add a record to the end of the outbox. The caller must run in asyncio's thread."""
        self._added_bytes += record.size_bytes
        self._added_count += 1
        self._records.append(record)
        if not self._is_due:
            self._is_due = True
            self._thread.call_soon(self._take)

    # Called in trio's thread.

    async def emptied(self) -> None:
        """Wait until the trio producer has accepted or refused all records that are in the outbox
        now."""
        if self._taken_count < self._added_count:
            event = trio.Event()
            self._waiting.append((self._added_count, event))
            await event.wait()

    async def emptied_without_failure(self) -> None:
        """Wait until the trio producer has accepted or refused all records that are in the outbox
        now.

        If it refused a record whose delivery report the application does not await, raises the
        error of that record once.
        """
        await self.emptied()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def discard(self, why: Exception) -> None:
        """Drop the records in the outbox, and report the error `why` for each of them. This
        happens, for example, if the producer's `async with` block has failed."""
        while self._records:
            self._on_taken(self._records.popleft(), None, why)
        self._failure = None

    def _take(self) -> None:
        self._is_due = False
        if self._is_held_up:
            return
        producer = self._kept.value
        for _ in range(TAKES_PER_TURN):
            if not self._records:
                return
            record = self._records[0]
            try:
                delivery = record.context.run(
                    producer.send_nowait, *record.arguments, **record.options
                )
            except trio.WouldBlock:
                self._is_held_up = True
                if not self._kept.start(self._take_one_by_one):
                    self._is_held_up = False
                    self.discard(ClientClosedError())
                return
            except Exception as error:  # it belongs to the record
                self._on_taken(self._records.popleft(), None, error)
            else:
                self._on_taken(self._records.popleft(), delivery, None)
        if self._records and not self._is_due:
            self._is_due = True
            self._thread.call_soon(self._take)

    async def _take_one_by_one(self) -> None:
        """Pass the records to the producer one by one, and wait until it has accepted each."""
        try:
            while self._records:
                record = self._records.popleft()
                delivery: Delivery | None = None
                failure: Exception | None = ClientClosedError()
                try:
                    delivery = await self._kept.value.send(*record.arguments, **record.options)
                    failure = None
                except Exception as error:  # it belongs to the record
                    failure = error
                finally:
                    self._on_taken(record, delivery, failure)
        except trio.Cancelled:
            self.discard(ClientClosedError())
            raise
        finally:
            self._is_held_up = False

    def _on_taken(
        self, record: WaitingRecord, delivery: Delivery | None, failure: Exception | None
    ) -> None:
        self._taken_bytes += record.size_bytes
        self._taken_count += 1
        if failure is not None and not record.delivery._on_taken:
            self._failure = self._failure or failure
        record.delivery._take(delivery, failure)
        while self._waiting and self._waiting[0][0] <= self._taken_count:
            self._waiting.pop(0)[1].set()


class AioTransaction(Bridge[ProducerTransaction]):
    """An open transaction of an AioProducer.

    Records that the application passes to the producer's `send` belong to the transaction.
    `send_offsets` adds offsets of a consumer group to the transaction.
    """

    def __init__(
        self, thread: TrioThread, kept: KeptManager[ProducerTransaction], outbox: AioOutbox
    ) -> None:
        super().__init__(thread, kept)
        self._outbox = outbox

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | Committed], group: Membership
    ) -> None:
        """Commit offsets of a consumer group as part of the transaction."""
        await self._run(self._kept.value.send_offsets, offsets, group)

    async def prepare(self) -> PreparedTransaction | None:
        """Deliver all records of the transaction, but leave it open for `complete_transactions`.
        Returns the prepared transaction, or None if nothing was sent."""
        await self._run(self._outbox.emptied_without_failure)
        return await self._run(self._kept.value.prepare)


class AioProducer(Bridge[Producer], CallsOfOthers):
    """Producer for asyncio. Created by `open_producer`."""

    def __init__(self, thread: TrioThread, kept: KeptManager[Producer]) -> None:
        super().__init__(thread, kept)
        self._outbox = AioOutbox(self, thread, kept)
        self._sends_left = SENDS_PER_TURN

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
    ) -> AioDelivery:
        """Buffer one record for delivery, as `ottla.client.Producer.send` does.

        Await the returned AioDelivery for the result. The producer may refuse the record after
        `send` has returned, for example because its topic was just deleted. The AioDelivery then
        raises the reason.
        """
        self._sends_left -= 1
        if self._sends_left <= 0:
            self._sends_left = SENDS_PER_TURN
            await asyncio.sleep(0)
        try:
            return self.send_nowait(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )
        except trio.WouldBlock:
            pass
        producer = self._kept.value

        async def ask() -> Delivery:
            await self._outbox.emptied()
            return await producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )

        return AioDelivery(self, await self._run(ask))

    def send_nowait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
    ) -> AioDelivery:
        """Buffer one record for delivery without waiting, and return its delivery report.

        Raises WouldBlock if `send` would wait or raise an error.
        """
        if not self._kept.is_open:
            raise ClientClosedError
        outbox = self._outbox
        size_bytes = self._kept.value._accepts(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            waiting_bytes=outbox.waiting_bytes,
        )
        if size_bytes is None:
            raise trio.WouldBlock
        delivery = AioDelivery(self)
        options = {
            "key": key,
            "partition": partition,
            "headers": headers,
            "timestamp_ms": time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms,
        }
        outbox.add(
            WaitingRecord(delivery, size_bytes, (topic, value), options, contextvars.copy_context())
        )
        return delivery

    async def send_run(
        self, topic: str, run: RecordRun, *, partition: int, timestamp_ms: int | None = None
    ) -> None:
        """Buffer all records of a run for delivery, as `ottla.client.Producer.send_run` does."""
        producer = self._kept.value

        async def ask() -> None:
            await self._outbox.emptied()
            await producer.send_run(topic, run, partition=partition, timestamp_ms=timestamp_ms)

        await self._run(ask)

    async def send_many(
        self,
        topic: str,
        records: ManyRecords,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> "AioSentRecords":
        """Buffer many records for delivery, as `ottla.client.Producer.send_many` does. The call
        switches threads only once. Returns the delivery reports of the records.

        Iterables other than lists and tuples are copied first, because their iterator may run only
        in the calling thread.
        """
        producer = self._kept.value
        if isinstance(records, bytes | bytearray | memoryview | str):
            raise TypeError("records is one value; it must be many: a list of them")
        many = records if isinstance(records, list | tuple) else list(records)

        async def ask() -> SentRecords:
            await self._outbox.emptied()
            return await producer.send_many(
                topic, many, partition=partition, timestamp_ms=timestamp_ms
            )

        return AioSentRecords(self, await self._run(ask))

    async def flush(self) -> None:
        """Send all buffered records now, and wait until every record is delivered or has failed.

        Raises the first error of a record whose AioDelivery the application does not await.
        """
        await self._run(self._flush)

    async def _flush(self) -> None:
        await self._outbox.emptied()
        await self._kept.value.flush()
        await self._outbox.emptied_without_failure()

    client_instance_id = asked(Producer.client_instance_id)

    async def partitions_of(self, topic: str) -> tuple[int, ...]:
        """Return the partition numbers of a topic.

        A missing topic is created if the cluster allows automatic creation of topics.
        """
        return await self._run(self._kept.value.partitions_of, topic)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AioTransaction]:
        """Begin a transaction and yield it.

        The transaction is committed at the end of the caller's `async with` block, or aborted if
        the block raises an error.
        """
        await self._run(self._outbox.emptied)
        async with kept_open(self._thread, self._kept.value.transaction()) as kept:
            try:
                yield AioTransaction(self._thread, kept, self._outbox)
                await self._run(self._outbox.emptied_without_failure)
            except BaseException:
                # Dropped before the abort: records in the outbox must not become part of the next
                # transaction.
                self._discard(
                    RefusedError(ErrorCode.INVALID_TXN_STATE, "its transaction was aborted before")
                )
                raise

    def _discard(self, why: Exception) -> None:
        """Drop the records that the trio producer has not received yet, and report the error `why`
        for each of them."""
        with suppress(ClientClosedError):
            self._thread.call_soon(self._outbox.discard, why)


__all__ = ["AioDelivery", "AioProducer", "AioTransaction"]
