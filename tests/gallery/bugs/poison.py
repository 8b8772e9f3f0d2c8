"""Bills orders in JSON. An order that cannot be parsed ends the program; its next start reads the
same order again, so that the partition stops."""

import json
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


async def broken(bootstrap: str) -> None:
    producer, consumer = clients_of(bootstrap)
    async with producer, consumer:
        async for record in consumer:
            order = json.loads(record.value)  # the bug: raises at the first damaged order
            await producer.send_and_wait("bills", order["id"].encode(), key=record.key)
            await consumer.commit()


async def fixed(bootstrap: str) -> None:
    producer, consumer = clients_of(bootstrap)
    async with producer, consumer:
        async for record in consumer:
            try:
                order = json.loads(record.value)
            except ValueError:
                await producer.send_and_wait("dead-letters", record.value, key=record.key)
            else:
                await producer.send_and_wait("bills", order["id"].encode(), key=record.key)
            await consumer.commit()
