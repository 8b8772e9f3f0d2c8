"""Kafka clients that the scenario of a test uses: one admin client, one producer and two consumers,
opened at first use.

They run on a simulated machine that is not affected by faults of instances. During faults of
brokers, they retry until the brokers serve again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.consumer import Consumer, open_consumer
from ottla.client.network.connection import ConnectionLostError
from ottla.client.producer import Producer, open_producer
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.model.settings.client import ConsumerConfig, ProducerConfig
from ottla.testing.world.records import ScenarioRecord, WrittenRecord

Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]

PATIENCE_S = 120.0
"""Virtual seconds for which a Kafka client of the scenario repeats a failed request."""

METADATA_AGE_MS = 300_000
RETRY_AFTER_S = 0.25

T = TypeVar("T")


async def persistently(call: Callable[[], Awaitable[T]]) -> T:
    """Call a function that sends a request to the cluster, and return its result. Retriable errors
    and lost connections, such as those of a killed broker, are retried for `PATIENCE_S` virtual
    seconds."""
    ends_s = trio.current_time() + PATIENCE_S
    while True:
        try:
            return await call()
        except (ConnectionLostError, RefusedError, OSError, trio.TooSlowError) as error:
            if isinstance(error, RefusedError) and not error.is_retriable:
                raise
            if trio.current_time() >= ends_s:
                raise
        await trio.sleep(RETRY_AFTER_S)


class HarnessClients:
    """Kafka clients of one scenario, opened at first use."""

    def __init__(self, bootstrap: str, nursery: trio.Nursery) -> None:
        self._bootstrap = bootstrap
        self._nursery = nursery
        self._admin: Admin | None = None
        self._producer: Producer | None = None
        self._consumers: dict[str, Consumer] = {}
        self._reading = trio.Lock()

    async def admin(self) -> Admin:
        """Return the scenario's admin client, which is opened at first use."""
        if self._admin is None:
            self._admin = await self._nursery.start(self._serve_admin)
        return self._admin

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int,
        replication_factor: int,
        configs: Mapping[str, str] | None,
    ) -> None:
        """Create a topic. Raises RefusedError if it exists."""
        admin = await self.admin()
        attempt_count = 0

        async def attempt() -> None:
            nonlocal attempt_count
            attempt_count += 1
            try:
                await admin.create_topic(
                    name,
                    partition_count=partition_count,
                    replication_factor=replication_factor,
                    configs=configs,
                )
            except RefusedError as error:
                # The response to an earlier attempt may be lost.
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or attempt_count == 1:
                    raise

        await persistently(attempt)

    async def write(
        self, topic: str, records: Sequence[ScenarioRecord], now_ms: int
    ) -> list[WrittenRecord]:
        """Write records to a topic in their order, and return them with their offsets once all
        in-sync replicas have them. Raises NotDeliveredError if a record cannot be written."""
        if self._producer is None:
            self._producer = await self._nursery.start(self._serve_producer)
        deliveries = [
            await self._producer.send(
                topic,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=now_ms if record.timestamp_ms is None else record.timestamp_ms,
            )
            for record in records
        ]
        written = []
        for record, delivery in zip(records, deliveries, strict=True):
            at = await delivery
            written.append(
                WrittenRecord(
                    topic=topic,
                    partition=at.partition,
                    offset=at.offset,
                    key=record.key,
                    value=record.value,
                    headers=tuple(record.headers),
                    timestamp_ms=at.timestamp_ms,
                )
            )
        return written

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic. Raises RefusedError if it does not exist."""
        admin = await self.admin()
        count = len((await persistently(lambda: admin.describe_topic(topic))).partitions)
        return [TopicPartition(topic, number) for number in range(count)]

    async def end_offsets(
        self, partitions: Sequence[TopicPartition], isolation: Isolation
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record that a consumer with this isolation level can
        read, for each partition."""
        async with self._consumer(isolation) as consumer:
            found = await persistently(lambda: consumer.end_offsets(partitions))
        return {at: int(offset) for at, offset in found.items()}

    async def start_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each partition."""
        async with self._consumer("read_committed") as consumer:
            found = await persistently(lambda: consumer.beginning_offsets(partitions))
        return {at: int(offset) for at, offset in found.items()}

    async def read(
        self, starts: dict[TopicPartition, int], isolation: Isolation
    ) -> list[WrittenRecord]:
        """Return the records of partitions from the given offsets to the end, sorted by partition
        and offset. Records that are deleted already are left out."""
        ends = await self.end_offsets(list(starts), isolation)
        open_ends = {at: end for at, end in ends.items() if end > starts[at]}
        if not open_ends:
            return []
        found = []
        async with self._consumer(isolation) as consumer:
            consumer.assign(open_ends)
            for at in open_ends:
                consumer.seek(at, starts[at])
            while True:
                for record in await persistently(lambda: consumer.poll(0.2)):
                    at = TopicPartition(record.topic, record.partition)
                    if record.offset < ends[at]:
                        found.append(
                            WrittenRecord(
                                topic=record.topic,
                                partition=record.partition,
                                offset=record.offset,
                                key=record.key,
                                value=record.value,
                                headers=tuple(record.headers),
                                timestamp_ms=record.timestamp_ms,
                            )
                        )
                for at in list(open_ends):
                    if await persistently(partial(consumer.position, at)) >= ends[at]:
                        del open_ends[at]
                if not open_ends:
                    break
            consumer.assign([])
        return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))

    @asynccontextmanager
    async def _consumer(self, isolation: Isolation) -> AsyncIterator[Consumer]:
        async with self._reading:
            if isolation not in self._consumers:
                self._consumers[isolation] = await self._nursery.start(
                    self._serve_consumer, isolation
                )
            yield self._consumers[isolation]

    async def _serve_admin(self, task_status: trio.TaskStatus[Admin]) -> None:
        async with open_admin(self._bootstrap, timeout_s=PATIENCE_S) as admin:
            task_status.started(admin)
            await trio.sleep_forever()

    async def _serve_producer(self, task_status: trio.TaskStatus[Producer]) -> None:
        config = ProducerConfig(
            linger_ms=0,
            client_id="scenario",
            delivery_timeout_ms=int(PATIENCE_S * 1_000),
            block_ms_max=int(PATIENCE_S * 1_000),
            metadata_age_ms_max=METADATA_AGE_MS,
        )
        async with open_producer(self._bootstrap, config) as producer:
            task_status.started(producer)
            await trio.sleep_forever()

    async def _serve_consumer(
        self, isolation: Isolation, task_status: trio.TaskStatus[Consumer]
    ) -> None:
        config = ConsumerConfig(
            auto_offset_reset="earliest",
            isolation_level=isolation,
            client_id="scenario",
            metadata_age_ms_max=METADATA_AGE_MS,
        )
        async with open_consumer(self._bootstrap, config) as consumer:
            task_status.started(consumer)
            await trio.sleep_forever()
