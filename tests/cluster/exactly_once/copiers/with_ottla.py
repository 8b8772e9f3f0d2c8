"""Copies a topic, each batch in one transaction, as docs/delivery.md shows.

Arguments: BOOTSTRAP SOURCE TARGET. The target's name is also the name of the group and the
transactional id. Exits with 3 when another producer has taken over the transactional id, and ends
on any other error: its next start continues where the last committed transaction ends.
"""

import sys

import trio

from ottla.client import (
    ConsumerConfig,
    ProducerConfig,
    ProducerFencedError,
    TopicPartition,
    open_consumer,
    open_producer,
)

FENCED = 3
bootstrap, source, target = sys.argv[1:]

READER = ConsumerConfig(
    group_id=target,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    isolation_level="read_committed",
    session_timeout_ms=6_000,
    heartbeat_interval_ms=1_000,
)
WRITER = ProducerConfig(transactional_id=target, transaction_timeout_ms=30_000)


async def copy() -> None:
    async with (
        open_producer(bootstrap, WRITER) as producer,
        open_consumer(bootstrap, READER) as consumer,
    ):
        consumer.subscribe([source])
        while True:
            records = await consumer.poll(1, record_count_max=50)
            if not records:
                continue
            async with producer.transaction() as transaction:
                positions: dict[TopicPartition, int] = {}
                for record in records:
                    await producer.send(target, record.value, partition=record.partition)
                    positions[TopicPartition(source, record.partition)] = record.offset + 1
                await transaction.send_offsets(positions, consumer.group_metadata())


try:
    trio.run(copy)
except* ProducerFencedError:
    sys.exit(FENCED)
