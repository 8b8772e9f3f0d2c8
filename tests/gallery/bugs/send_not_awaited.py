"""Copies orders. The program awaits that a record is buffered, not that it is delivered, and
commits: a crash loses the records that are still in the buffer."""

from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


def clients_of(bootstrap: str) -> tuple[Any, Any]:
    return AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=500), AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        group_id="copying",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )


async def broken(bootstrap: str) -> None:
    producer, consumer = clients_of(bootstrap)
    async with producer, consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=5)
            for orders in batches.values():
                for order in orders:
                    # the bug: `send` returns a future, which nothing awaits
                    await producer.send("copies", order.value, key=order.key)
            if batches:
                await consumer.commit()


async def fixed(bootstrap: str) -> None:
    producer, consumer = clients_of(bootstrap)
    async with producer, consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=5)
            sent = [
                await producer.send("copies", order.value, key=order.key)
                for orders in batches.values()
                for order in orders
            ]
            for delivery in sent:
                await delivery
            if batches:
                await consumer.commit()
