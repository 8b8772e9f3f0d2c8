"""Charges a card for each order. The charge and the offset are written by two systems, one after
the other, so that a crash between them charges the card twice."""

import trio

from ottla.client import ConsumerConfig, ConsumerRecord, open_consumer
from tests.gallery.database import Database, insert, is_first_write

CONFIG = ConsumerConfig(
    group_id="charging", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=5
)


async def authorise(order: ConsumerRecord) -> str:
    """Ask the card's bank, and return the row of the charge."""
    await trio.sleep(0.2)
    return (order.value or b"").decode()


async def broken(bootstrap: str, database: Database) -> None:
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["orders"])
        while True:
            for order in await consumer.poll(timeout_s=1):
                row = await authorise(order)
                async with database.transaction() as transaction:
                    await insert(transaction, f"charges-{order.partition}", row)
            await consumer.commit()  # the bug: charges are committed already, offsets are not


async def fixed(bootstrap: str, database: Database) -> None:
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["orders"])
        while True:
            for order in await consumer.poll(timeout_s=1):
                row = await authorise(order)
                async with database.transaction() as transaction:
                    if await is_first_write(transaction, f"{order.partition}", order.offset):
                        await insert(transaction, f"charges-{order.partition}", row)
            await consumer.commit()
