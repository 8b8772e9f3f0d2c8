"""Bills orders, and moves unreadable ones to a dead letter topic. The offset of an unreadable order
is committed first, so that a crash before the dead letter is written loses the order."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def clients_of(bootstrap: str) -> tuple[Any, Any]:
    return AIOKafkaProducer(bootstrap_servers=bootstrap), AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


def price_of(order: bytes) -> bytes:
    """Return the bill of an order. Raises ValueError if the order is unreadable."""
    if not order.startswith(b"order-"):
        raise ValueError(f"unreadable order {order!r}")
    return order


async def bury(producer: Any, record: Any, reason: str) -> None:
    """Look up the sender of a record, and write the record to the dead letter topic."""
    await asyncio.sleep(0.5)
    headers = [("reason", reason.encode())]
    await producer.send_and_wait("dead-letters", record.value, key=record.key, headers=headers)


async def broken(bootstrap: str) -> None:
    producer, consumer = clients_of(bootstrap)
    async with producer, consumer:
        async for record in consumer:
            try:
                await producer.send_and_wait("bills", price_of(record.value), key=record.key)
                await consumer.commit()
            except ValueError as error:
                await consumer.commit()  # the bug: "skip the record", before its dead letter
                await bury(producer, record, str(error))


async def fixed(bootstrap: str) -> None:
    producer, consumer = clients_of(bootstrap)
    async with producer, consumer:
        async for record in consumer:
            try:
                await producer.send_and_wait("bills", price_of(record.value), key=record.key)
            except ValueError as error:
                await bury(producer, record, str(error))
            await consumer.commit()
