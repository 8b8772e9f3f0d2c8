"""Bills orders of several partitions. The offset of one partition is committed for all partitions
of the instance, so that orders are skipped where that partition is behind."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def consumer_of(bootstrap: str) -> Any:
    return AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


async def bill(producer: Any, orders: list[Any]) -> None:
    """Send the bills of some orders."""
    for order in orders:
        await asyncio.sleep(0.1)
        await producer.send_and_wait("bills", order.value, key=order.key)


async def broken(bootstrap: str) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        consumer_of(bootstrap) as consumer,
    ):
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=5)
            for orders in batches.values():
                await bill(producer, orders)
            if batches:
                # the bug: `orders` is the last batch, of one partition
                ends = dict.fromkeys(consumer.assignment(), orders[-1].offset + 1)
                await consumer.commit(ends)


async def fixed(bootstrap: str) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        consumer_of(bootstrap) as consumer,
    ):
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=5)
            for orders in batches.values():
                await bill(producer, orders)
            # The position of each assigned partition. `{at: orders[-1].offset + 1}` would name each
            # partition, but aiokafka joins its group again in the background: if the partition was
            # lost and came back during the work, the commit would undo those of its other owner.
            await consumer.commit()
