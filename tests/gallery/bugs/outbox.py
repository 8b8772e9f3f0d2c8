"""Accepts orders into a database, and announces each on a topic. Row and announcement are two
writes, and a row that exists counts as done, so that a crash between them loses the
announcement."""

import asyncio
from typing import Any

from ottla.client import ConsumerConfig
from ottla.client.aio import open_consumer, open_producer
from tests.gallery.database import Database

CONFIG = ConsumerConfig(
    group_id="accepting", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=5
)


async def broken(bootstrap: str, database: Database) -> None:
    async with open_producer(bootstrap) as producer, open_consumer(bootstrap, CONFIG) as consumer:
        await consumer.subscribe(["orders"])
        while True:
            for order in await consumer.poll(timeout_s=1):
                text = (order.value or b"").decode()
                async with database.transaction() as transaction:
                    if await transaction.get(f"order/{text}") is not None:
                        continue  # a redelivery
                    await transaction.put(f"order/{text}", "accepted")
                await asyncio.sleep(0.3)  # reads the customer's address
                await (await producer.send("accepted", text.encode()))  # the bug: a second write
            await consumer.commit()


async def fixed(bootstrap: str, database: Database) -> None:
    async with open_producer(bootstrap) as producer, open_consumer(bootstrap, CONFIG) as consumer:
        await consumer.subscribe(["orders"])
        while True:
            for order in await consumer.poll(timeout_s=1):
                text = (order.value or b"").decode()
                async with database.transaction() as transaction:
                    if await transaction.get(f"order/{text}") is None:
                        await transaction.put(f"order/{text}", "accepted")
                        await transaction.put(f"outbox/{text}", text)
            await announce(producer, database)
            await consumer.commit()


async def announce(producer: Any, database: Database) -> None:
    """Send the rows of the outbox, and delete each that is delivered."""
    async with database.transaction() as transaction:
        waiting = await transaction.scan("outbox/")
    for key, text in waiting:
        await asyncio.sleep(0.3)
        await (await producer.send("accepted", text.encode()))
        async with database.transaction() as transaction:
            await transaction.delete(key)
