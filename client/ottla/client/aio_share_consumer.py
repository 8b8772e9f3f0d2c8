"""The share consumer for asyncio. Its methods call a trio share consumer that runs in a background
thread."""

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.network.aio_bridge import Bridge, asked, done
from ottla.client.network.trio_thread import ClientClosedError
from ottla.client.share.share_records import PendingAcknowledgement, ShareBatch, ShareRecord
from ottla.client.share_consumer import CONCURRENCY, ShareConsumer
from ottla.model.errors import OttlaError, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.wire.batch import TimestampType
from ottla.wire.records import RecordHeaders


class AioPendingAcknowledgement:
    """An acknowledgement in progress. Awaiting it waits for the broker's confirmation.

    The acknowledgement is sent even if the application does not await it. Awaiting it raises
    RefusedError if the broker refuses the acknowledgement.
    """

    __slots__ = ("_bridge", "_error", "_pending")

    def __init__(
        self, bridge: Bridge[ShareConsumer], act: Callable[[], PendingAcknowledgement]
    ) -> None:
        self._bridge = bridge
        self._pending: PendingAcknowledgement | None = None
        self._error: OttlaError | None = None

        def start() -> None:
            try:
                self._pending = act()
            except RefusedError as error:
                self._error = error  # the record was settled twice, one call after the other

        bridge._thread.call_soon(start)

    def __await__(self) -> Generator[Any, Any, None]:
        return self.wait().__await__()

    @property
    def is_settled(self) -> bool:
        """True if the broker has confirmed or refused the acknowledgement."""
        pending = self._pending
        return self._error is not None or (pending is not None and pending.is_settled)

    @property
    def error(self) -> OttlaError | None:
        """Error of the acknowledgement, or None if it succeeded or is still in progress."""
        return self._error or (None if self._pending is None else self._pending.error)

    async def wait(self) -> None:
        """Wait for the broker's confirmation. Raises the error of the acknowledgement if the broker
        refuses it."""

        async def ask() -> None:
            if self._pending is not None:
                await self._pending.wait()

        await self._bridge._run(ask)
        if self._error is not None:
            raise self._error


class AioShareRecord:
    """One record of a share group. The application must accept, release or reject it once.

    Each of these methods returns at once. Await its result to wait for the broker's confirmation.
    """

    __slots__ = ("_bridge", "_record")

    def __init__(self, bridge: Bridge[ShareConsumer], record: ShareRecord) -> None:
        self._bridge = bridge
        self._record = record

    @property
    def data(self) -> ConsumerRecord:
        """The record's content, as a ConsumerRecord."""
        return self._record.data

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of the record, including the present delivery."""
        return self._record.delivery_count

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._record.data.topic

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self._record.data.partition

    @property
    def offset(self) -> Offset:
        """Offset of the record."""
        return self._record.data.offset

    @property
    def timestamp_ms(self) -> int:
        """Timestamp of the record, in ms since 1970."""
        return self._record.data.timestamp_ms

    @property
    def timestamp_type(self) -> TimestampType:
        """Origin of the timestamp: the producer (CreateTime) or the broker (LogAppendTime)."""
        return self._record.data.timestamp_type

    @property
    def key(self) -> bytes | None:
        """Key of the record, or None."""
        return self._record.data.key

    @property
    def value(self) -> bytes | None:
        """Value of the record.  None for a tombstone."""
        return self._record.data.value

    @property
    def headers(self) -> RecordHeaders:
        """Headers of the record: pairs of name and bytes."""
        return self._record.data.headers

    @property
    def is_settled(self) -> bool:
        """True if the application has accepted, released or rejected the record, or if its
        acquisition lock has expired."""
        return self._record.is_settled

    def accept(self) -> AioPendingAcknowledgement:
        """Acknowledge that the application has processed the record. Returns the acknowledgement in
        progress, which may be awaited.

        Raises RefusedError if the record was already accepted, released or rejected.
        """
        return self._act(self._record.accept)

    def release(self) -> AioPendingAcknowledgement:
        """Release the record, so that the broker delivers it again at once, perhaps to another
        consumer."""
        return self._act(self._record.release)

    def reject(self) -> AioPendingAcknowledgement:
        """Reject the record because it can never be processed. The broker archives it and does not
        deliver it again."""
        return self._act(self._record.reject)

    def renew(self) -> AioPendingAcknowledgement:
        """Restart the timeout of the record's acquisition lock, for records that need longer
        processing (KIP-1222, brokers from Kafka 4.2 on)."""
        return self._act(self._record.renew)

    def _act(self, act: Callable[[], PendingAcknowledgement]) -> AioPendingAcknowledgement:
        self._record._check()
        return AioPendingAcknowledgement(self._bridge, act)

    def __repr__(self) -> str:
        return repr(self._record)


class AioShareBatch:
    """Records of one partition with the same delivery count, readable as columns or one by one.

    `accept`, `release`, `reject` and `renew` apply to the records of the batch that the application
    has not yet accepted, released or rejected one by one.
    """

    __slots__ = ("_batch", "_bridge")

    def __init__(self, bridge: Bridge[ShareConsumer], batch: ShareBatch) -> None:
        self._bridge = bridge
        self._batch = batch

    @property
    def records(self) -> RecordBatch:
        """The records as a RecordBatch. It also provides their columns: `for value in
        batch.records.values`."""
        return self._batch.records

    @property
    def delivery_count(self) -> int:
        """Number of deliveries of each record, including the present delivery."""
        return self._batch.delivery_count

    @property
    def at(self) -> TopicPartition:
        """Topic and partition of the records."""
        return self._batch.at

    @property
    def is_settled(self) -> bool:
        """True if each record was accepted, released or rejected, or its acquisition lock has
        expired."""
        return self._batch.is_settled

    def accept(self) -> AioPendingAcknowledgement:
        """Acknowledge that the application has processed the records."""
        return AioPendingAcknowledgement(self._bridge, self._batch.accept)

    def release(self) -> AioPendingAcknowledgement:
        """Release the records, so that the broker delivers them again at once."""
        return AioPendingAcknowledgement(self._bridge, self._batch.release)

    def reject(self) -> AioPendingAcknowledgement:
        """Reject the records because they can never be processed. The broker archives them."""
        return AioPendingAcknowledgement(self._bridge, self._batch.reject)

    def renew(self) -> AioPendingAcknowledgement:
        """Restart the timeout of the records' acquisition locks (KIP-1222)."""
        return AioPendingAcknowledgement(self._bridge, self._batch.renew)

    def __len__(self) -> int:
        return len(self._batch)

    def __iter__(self) -> Iterator[AioShareRecord]:
        bridge = self._bridge
        return (AioShareRecord(bridge, one) for one in self._batch)

    def __repr__(self) -> str:
        return repr(self._batch)


class AioShareConsumer(Bridge[ShareConsumer]):
    """Share consumer for asyncio. Created by `open_share_consumer`."""

    client_instance_id = asked(ShareConsumer.client_instance_id)
    subscribe = done(ShareConsumer.subscribe)
    flush = asked(ShareConsumer.flush)
    stop = done(ShareConsumer.stop)

    async def subscription(self) -> frozenset[str]:
        """Return the names of the subscribed topics."""

        async def ask() -> frozenset[str]:
            return self._kept.value.subscription

        return await self._run(ask)

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that the group's coordinator has assigned to this consumer."""

        async def ask() -> frozenset[TopicPartition]:
            return self._kept.value.assignment

        return await self._run(ask)

    async def member_id(self) -> str:
        """Return the id of this member of the group."""

        async def ask() -> str:
            return self._kept.value.member_id

        return await self._run(ask)

    async def in_hand_count(self) -> int:
        """Return the number of records that this consumer has acquired and not yet accepted,
        released or rejected."""

        async def ask() -> int:
            return self._kept.value.in_hand_count

        return await self._run(ask)

    async def work(
        self,
        handle: Callable[[AioShareRecord], Awaitable[object]],
        *,
        concurrency: int = CONCURRENCY,
        rejects: tuple[type[Exception], ...] = (),
        in_hand_count_max: int | None = None,
    ) -> None:
        """Call a handler for each record, as `ottla.client.ShareConsumer.work` does.

        The handler is an async function that runs in the asyncio event loop.
        """

        async def bridged(record: ShareRecord) -> None:
            await self._thread.call_back(handle, AioShareRecord(self, record))

        async def ask() -> None:
            await self._kept.value.work(
                bridged,
                concurrency=concurrency,
                rejects=rejects,
                in_hand_count_max=in_hand_count_max,
            )

        await self._run(ask)

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[AioShareRecord]:
        """Return the next records, as `ottla.client.ShareConsumer.poll` does.

        If the call is cancelled, the records that it would have returned are released.
        """
        batches = await self.poll_batches(timeout_s, record_count_max=record_count_max)
        return [record for batch in batches for record in batch]

    async def poll_batches(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[AioShareBatch]:
        """Return the next records as batches, as `ottla.client.ShareConsumer.poll_batches` does.

        If the call is cancelled, the records that it would have returned are released.
        """

        async def ask() -> list[ShareBatch]:
            return await self._kept.value.poll_batches(timeout_s, record_count_max=record_count_max)

        found = await self._thread.run(ask, kept=self._kept, on_unclaimed=self._release)
        return [AioShareBatch(self, one) for one in found]

    def __aiter__(self) -> "AioShareConsumer":
        return self

    async def __anext__(self) -> AioShareRecord:
        """Return the next record. It must be accepted, released or rejected before the next
        call."""

        async def ask() -> list[ShareRecord]:
            return [await self._kept.value.__anext__()]

        (found,) = await self._thread.run(ask, kept=self._kept, on_unclaimed=self._release)
        return AioShareRecord(self, found)

    def processing(self, record: AioShareRecord) -> AbstractContextManager[None]:
        """Return a context manager for the block of code that processes a record. The block becomes
        an OpenTelemetry span if the program uses OpenTelemetry.

        See `ottla.client.ShareConsumer.processing`.
        """
        if not self._kept.is_open:
            raise ClientClosedError
        return self._kept.value.processing(record._record)

    def _release(self, unclaimed: Iterable[ShareBatch | ShareRecord]) -> None:
        for one in unclaimed:
            self._thread.call_soon(one.release)


__all__ = ["AioPendingAcknowledgement", "AioShareBatch", "AioShareConsumer", "AioShareRecord"]
