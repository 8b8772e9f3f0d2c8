"""Bills orders. The offsets of a batch are committed before its orders are billed, so that a crash
loses the rest of the batch."""

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


async def bill(producer: Any, order: Any) -> None:
    """Compute the price of an order, and send its bill."""
    await asyncio.sleep(0.2)
    await producer.send_and_wait("bills", order.value, key=order.key)


async def broken(bootstrap: str) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        consumer_of(bootstrap) as consumer,
    ):
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=10)
            if not batches:
                continue
            await consumer.commit()  # the bug: nothing of the batch is billed yet
            for orders in batches.values():
                for order in orders:
                    await bill(producer, order)


async def fixed(bootstrap: str) -> None:
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        consumer_of(bootstrap) as consumer,
    ):
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=10)
            for orders in batches.values():
                for order in orders:
                    await bill(producer, order)
            # The positions of the present assignment. Given offsets could be those of partitions
            # that were lost meanwhile, and would move the committed offsets back.
            await consumer.commit()
