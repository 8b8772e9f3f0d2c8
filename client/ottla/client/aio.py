"""The client for asyncio: the same calls, awaited in an asyncio application.

`from ottla.client.aio import open_producer, open_consumer, open_admin`.  All clients of an asyncio
loop share one background thread, where the client itself runs in trio.  Names, settings, results
and errors are those of `ottla.client`; what is a plain call or a property there is awaited here.

Cancelling a task cancels its call, and returns when nothing of it goes on.  Records that a
cancelled `poll` had fetched already are given out by the next one.  A record whose `send` was
cancelled may have been taken.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from ottla.client.admin import Admin
from ottla.client.admin import open_admin as open_trio_admin
from ottla.client.consumer import Consumer
from ottla.client.consumer import open_consumer as open_trio_consumer
from ottla.client.fetch.fetched import ConsumerRecord
from ottla.client.groups.group_member import Membership
from ottla.client.groups.group_offsets import Committed
from ottla.client.groups.handover import Listener
from ottla.client.groups.subscription import SubscriptionPattern
from ottla.client.network.trio_thread import ClientClosedError, Kept, TrioThread
from ottla.client.produce.delivery import Delivery, RecordMetadata
from ottla.client.producer import Producer
from ottla.client.producer import open_producer as open_trio_producer
from ottla.client.transactions.prepared_transactions import PreparedTransaction
from ottla.client.transactions.producer_transactions import ProducerTransaction
from ottla.model.ids import Offset, TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.model.settings.client_security import ClientSecurity
from ottla.wire.batch_builder import EncodedHeaders, Headers

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Bootstrap = str | Iterable[str | tuple[str, int]]

RECORDS_PER_TURN = 64
"""How many records the iterator gives before other tasks get their turn."""

_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, TrioThread] = WeakKeyDictionary()


class _Bridge(Generic[T_co]):
    """A client at work in the thread."""

    def __init__(self, thread: TrioThread, kept: Kept[T_co]) -> None:
        self._thread = thread
        self._kept = kept

    async def _run(self, function: Callable[..., Awaitable[R]], *args: Any) -> R:
        return await self._thread.run(function, *args, kept=self._kept)


def _asked(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[_Bridge[T], P], Coroutine[Any, Any, R]]:
    """Return an async method of trio as one of asyncio."""

    async def call(self: _Bridge[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def ask() -> R:
            return await method(self._kept.value, *args, **kwargs)

        return await self._run(ask)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]  # inspect reads it
    return call


def _done(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[_Bridge[T], P], Coroutine[Any, Any, R]]:
    """Return a plain method as one of asyncio."""

    async def ask(client: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(client, *args, **kwargs)

    ask.__name__, ask.__doc__ = method.__name__, method.__doc__
    return _asked(ask)


class AioDelivery:
    """The delivery report of one record, to come: `await` it.

    It gives RecordMetadata or raises NotDeliveredError.
    """

    def __init__(self, bridge: _Bridge[Producer], delivery: Delivery) -> None:
        self._bridge = bridge
        self._delivery = delivery

    def __await__(self) -> Any:
        return self.wait().__await__()

    async def wait(self) -> RecordMetadata:
        """Wait until it is known what became of the record."""
        return await self._bridge._run(self._delivery.wait)


class AioTransaction(_Bridge[ProducerTransaction]):
    """An open transaction: records go by the producer's `send`, offsets by `send_offsets`."""

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int | Committed], group: Membership
    ) -> None:
        """Let a group's offsets be committed with the records."""
        await self._run(self._kept.value.send_offsets, offsets, group)

    async def prepare(self) -> PreparedTransaction | None:
        """Deliver all records and leave the end to `complete_transactions`."""
        return await self._run(self._kept.value.prepare)


class AioProducer(_Bridge[Producer]):
    """A producer for asyncio; made by `open_producer`."""

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
        """Take one record, as `ottla.client.Producer.send` does; await the result's report."""
        producer = self._kept.value

        async def ask() -> Delivery:
            return await producer.send(
                topic,
                value,
                key=key,
                partition=partition,
                headers=headers,
                timestamp_ms=timestamp_ms,
            )

        return AioDelivery(self, await self._run(ask))

    flush = _asked(Producer.flush)
    partitions_of = _asked(Producer.partitions_of)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AioTransaction]:
        """Open a transaction: the end of the block commits, an error that leaves it aborts."""
        async with _kept_open(self._thread, self._kept.value.transaction()) as kept:
            yield AioTransaction(self._thread, kept)


class AioConsumer(_Bridge[Consumer]):
    """A consumer for asyncio; made by `open_consumer`."""

    def __init__(self, thread: TrioThread, kept: Kept[Consumer]) -> None:
        super().__init__(thread, kept)
        self._fetched: deque[ConsumerRecord] = deque()
        """Records that were polled and not given out yet, in order."""
        self._left_in_turn = RECORDS_PER_TURN

    # Reading.

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, waiting for the first of them; none when the time is over."""
        if not self._fetched:
            await self._fetch(timeout_s, record_count_max)
        count = len(self._fetched) if record_count_max is None else record_count_max
        return [self._fetched.popleft() for _ in range(min(count, len(self._fetched)))]

    def __aiter__(self) -> "AioConsumer":
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; the one before counts as processed now."""
        self._left_in_turn -= 1
        if self._left_in_turn <= 0:
            self._left_in_turn = RECORDS_PER_TURN
            await asyncio.sleep(0)
        while not self._fetched:
            await self._fetch(None, None)
        return self._fetched.popleft()

    async def _fetch(self, timeout_s: float | None, record_count_max: int | None) -> None:
        consumer = self._kept.value

        async def ask() -> list[ConsumerRecord]:
            return await consumer.poll(timeout_s, record_count_max=record_count_max)

        # Extended also for a cancelled task: no record that was polled is lost.
        keep = self._fetched.extend
        keep(await self._thread.run(ask, kept=self._kept, on_unclaimed=keep))

    # What is read, and where.

    async def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | SubscriptionPattern | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Share topics with the group; the callbacks are coroutine functions of asyncio."""

        def bridged(listener: Listener | None) -> Listener | None:
            if listener is None:
                return None

            async def told(partitions: tuple[TopicPartition, ...]) -> None:
                await self._thread.call_back(listener, partitions)

            return told

        def act(consumer: Consumer) -> None:
            consumer.subscribe(
                topics,
                pattern=pattern,
                on_assigned=bridged(on_assigned),
                on_revoked=bridged(on_revoked),
                on_lost=bridged(on_lost),
            )

        await self._act(act)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; those that stay keep their position."""
        await self._act(lambda consumer: consumer.assign(partitions))

    async def unsubscribe(self) -> None:
        """Leave the group, having committed what is processed if that is automatic."""
        await self._act(lambda consumer: None)
        await self._run(self._kept.value.unsubscribe)

    async def pause(self, *partitions: TopicPartition) -> None:
        """Neither fetch nor hand out these until `resume`."""
        await self._act(lambda consumer: consumer.pause(*partitions))

    async def seek(self, at: TopicPartition, offset: int) -> None:
        """Go on at this offset."""
        await self._act(lambda consumer: consumer.seek(at, offset))

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset there is, in these partitions or in all."""
        await self._act(lambda consumer: consumer.seek_to_beginning(*partitions))

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on at the end as it is when it is looked up, in these partitions or in all."""
        await self._act(lambda consumer: consumer.seek_to_end(*partitions))

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record of that time or later, and at the end where there is none."""
        await self._act(lambda consumer: consumer.seek_to_time(timestamp_ms, *partitions))

    async def position(self, at: TopicPartition) -> Offset:
        """Return the offset of the next record, waiting until it is known."""
        first = self._firsts().get(at)
        return await self._run(self._kept.value.position, at) if first is None else first

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions it reads."""

        async def ask() -> frozenset[TopicPartition]:
            return self._kept.value.assignment

        return await self._run(ask)

    resume = _done(Consumer.resume)
    beginning_offsets = _asked(Consumer.beginning_offsets)
    end_offsets = _asked(Consumer.end_offsets)
    offsets_for_times = _asked(Consumer.offsets_for_times)

    # Committing.

    async def commit(self, offsets: Mapping[TopicPartition, int | Committed] | None = None) -> None:
        """Commit what was given out, or these offsets (of the next record to process each)."""
        firsts = self._firsts()

        async def ask() -> None:
            consumer, found = self._kept.value, offsets
            if found is None and firsts:
                # What was polled and not given out yet is not processed.
                processed = consumer._member_of().processed()
                found = {**processed, **{at: firsts[at] for at in firsts if at in processed}}
            await consumer.commit(found)

        await self._run(ask)

    committed = _asked(Consumer.committed)
    group_metadata = _done(Consumer.group_metadata)

    def _firsts(self) -> dict[TopicPartition, Offset]:
        """Return where the application stands in partitions of which more was polled."""
        found: dict[TopicPartition, Offset] = {}
        for record in self._fetched:
            found.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return found

    async def _act(self, act: Callable[[Consumer], None]) -> None:
        """Change what is read, having given back what was polled and not given out."""
        firsts = self._firsts()

        async def ask() -> None:
            consumer = self._kept.value
            for at in consumer.assignment & firsts.keys():
                consumer.seek(at, firsts[at])
            act(consumer)

        self._fetched.clear()
        await self._run(ask)


class AioAdmin(_Bridge[Admin]):
    """An operator's view for asyncio; made by `open_admin`."""

    abort_transaction = _asked(Admin.abort_transaction)
    alter_group_offsets = _asked(Admin.alter_group_offsets)
    alter_quotas = _asked(Admin.alter_quotas)
    alter_reassignments = _asked(Admin.alter_reassignments)
    ask_quorum = _asked(Admin.ask_quorum)
    clean_logs = _asked(Admin.clean_logs)
    create_partitions = _asked(Admin.create_partitions)
    create_topic = _asked(Admin.create_topic)
    create_topics = _asked(Admin.create_topics)
    delete_group = _asked(Admin.delete_group)
    delete_group_offsets = _asked(Admin.delete_group_offsets)
    delete_metrics_subscription = _asked(Admin.delete_metrics_subscription)
    delete_password = _asked(Admin.delete_password)
    delete_records = _asked(Admin.delete_records)
    delete_topic = _asked(Admin.delete_topic)
    delete_topics = _asked(Admin.delete_topics)
    describe_cleaner = _asked(Admin.describe_cleaner)
    describe_client_instances = _asked(Admin.describe_client_instances)
    describe_cluster = _asked(Admin.describe_cluster)
    describe_features = _asked(Admin.describe_features)
    describe_group = _asked(Admin.describe_group)
    describe_log_dirs = _asked(Admin.describe_log_dirs)
    describe_metrics_subscription = _asked(Admin.describe_metrics_subscription)
    describe_producers = _asked(Admin.describe_producers)
    describe_quorum = _asked(Admin.describe_quorum)
    describe_quota_usage = _asked(Admin.describe_quota_usage)
    describe_quotas = _asked(Admin.describe_quotas)
    describe_topic = _asked(Admin.describe_topic)
    describe_transaction = _asked(Admin.describe_transaction)
    describe_users = _asked(Admin.describe_users)
    elect_leaders = _asked(Admin.elect_leaders)
    group_offsets = _asked(Admin.group_offsets)
    list_groups = _asked(Admin.list_groups)
    list_groups_of = _asked(Admin.list_groups_of)
    list_metrics_subscriptions = _asked(Admin.list_metrics_subscriptions)
    list_offsets = _asked(Admin.list_offsets)
    list_reassignments = _asked(Admin.list_reassignments)
    list_topics = _asked(Admin.list_topics)
    list_transactions = _asked(Admin.list_transactions)
    move_replicas = _asked(Admin.move_replicas)
    retry_cleaning = _asked(Admin.retry_cleaning)
    set_metrics_subscription = _asked(Admin.set_metrics_subscription)
    set_password = _asked(Admin.set_password)
    tail_client_metrics = _asked(Admin.tail_client_metrics)
    try_alter_group_offsets = _asked(Admin.try_alter_group_offsets)
    try_alter_reassignments = _asked(Admin.try_alter_reassignments)
    try_create_partitions = _asked(Admin.try_create_partitions)
    try_delete_records = _asked(Admin.try_delete_records)
    try_elect_leaders = _asked(Admin.try_elect_leaders)


@asynccontextmanager
async def open_producer(
    bootstrap: Bootstrap, config: ProducerConfig | None = None
) -> AsyncIterator[AioProducer]:
    """Open a producer, as `ottla.client.open_producer` does; the end of the block flushes."""
    async with _opened(open_trio_producer(bootstrap, config)) as (thread, kept):
        yield AioProducer(thread, kept)


@asynccontextmanager
async def open_consumer(
    bootstrap: Bootstrap, config: ConsumerConfig | None = None
) -> AsyncIterator[AioConsumer]:
    """Open a consumer, as `ottla.client.open_consumer` does."""
    async with _opened(open_trio_consumer(bootstrap, config)) as (thread, kept):
        consumer = AioConsumer(thread, kept)
        yield consumer
        # What was not given out is not processed: it is not committed at the end.
        await consumer._act(lambda _: None)


@asynccontextmanager
async def open_admin(
    bootstrap: Bootstrap,
    *,
    client_id: str = "ottla",
    timeout_s: float = 30.0,
    security: ClientSecurity | None = None,
) -> AsyncIterator[AioAdmin]:
    """Open an operator's view, as `ottla.client.open_admin` does."""
    manager = open_trio_admin(
        bootstrap, client_id=client_id, timeout_s=timeout_s, security=security
    )
    async with _opened(manager) as (thread, kept):
        yield AioAdmin(thread, kept)


@asynccontextmanager
async def _opened(
    manager: AbstractAsyncContextManager[T],
) -> AsyncIterator[tuple[TrioThread, Kept[T]]]:
    """Open a client in the loop's thread, which ends with its last client."""
    loop = asyncio.get_running_loop()
    thread = _threads.get(loop)
    if thread is None:
        thread = _threads[loop] = TrioThread(loop)
    thread.client_count += 1
    try:
        await thread.ready()
        async with _kept_open(thread, manager) as kept:
            yield thread, kept
    finally:
        thread.client_count -= 1
        if not thread.client_count:
            del _threads[loop]
            thread.stop()


@asynccontextmanager
async def _kept_open(
    thread: TrioThread, manager: AbstractAsyncContextManager[T]
) -> AsyncIterator[Kept[T]]:
    kept, end = await thread.keep(manager)
    try:
        yield kept
    except BaseException:
        await thread.close(kept, end, True)
        raise
    await thread.close(kept, end, False)


__all__ = [
    "AioAdmin",
    "AioConsumer",
    "AioDelivery",
    "AioProducer",
    "AioTransaction",
    "ClientClosedError",
    "open_admin",
    "open_consumer",
    "open_producer",
]
