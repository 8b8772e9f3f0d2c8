"""Copies orders to another topic in transactions. All instances use the same transactional id, so
that each start of an instance fences the producers of the others."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.gallery.bugs.zombie import fixed as copy_with_an_id_per_partition


async def run(bootstrap: str, transactional_id: str) -> None:
    """Copy orders under a transactional id."""
    async with (
        AIOKafkaProducer(
            bootstrap_servers=bootstrap, transactional_id=transactional_id
        ) as producer,
        AIOKafkaConsumer(
            "orders",
            bootstrap_servers=bootstrap,
            group_id="copying",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
    ):
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=10)
            if batches:
                await copy(producer, batches)


async def copy(producer: Any, batches: Any) -> None:
    """Copy batches and their offsets in one transaction."""
    async with producer.transaction():
        for orders in batches.values():
            for order in orders:
                await asyncio.sleep(0.3)
                await producer.send_and_wait("copies", order.value, key=order.key)
        ends = {at: orders[-1].offset + 1 for at, orders in batches.items()}
        await producer.send_offsets_to_transaction(ends, "copying")


async def broken(bootstrap: str, name: str) -> None:
    await run(bootstrap, "copying")  # the bug: the id is in the settings that all instances share


async def fixed(bootstrap: str, name: str) -> None:
    # An id for each partition, which only the partition's owner uses. An id for each instance would
    # not fence an instance that was cut off while its partitions moved.
    await copy_with_an_id_per_partition(bootstrap)
