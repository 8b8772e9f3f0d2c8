"""Sends an e-mail for each order in a task of its own. Offsets are committed automatically, whether
or not the tasks are done, so that a crash loses e-mails."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def write(producer: Any, order: Any) -> None:
    """Render the e-mail of an order, and send it."""
    await asyncio.sleep(2)
    await producer.send_and_wait("e-mails", order.value, key=order.key)


async def broken(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="mailing",
        auto_offset_reset="earliest",
    )
    tasks: set[asyncio.Task[None]] = set()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer, consumer:
        async for order in consumer:
            # the bug: the next automatic commit includes the order
            task = asyncio.create_task(write(producer, order))
            tasks.add(task)
            task.add_done_callback(tasks.discard)


async def fixed(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="mailing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer, consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=20)
            for orders in batches.values():
                await asyncio.gather(*(write(producer, order) for order in orders))
            await consumer.commit()
