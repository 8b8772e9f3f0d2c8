"""Pays invoices, of which some arrive twice. The ids of paid invoices are kept in memory, so that a
restart or another instance pays the second copy, too."""

import trio

from ottla.client import ConsumerConfig, open_consumer
from tests.gallery.database import Database, insert, is_first_write

CONFIG = ConsumerConfig(
    group_id="paying", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=5
)


async def broken(bootstrap: str, database: Database) -> None:
    paid: set[str] = set()  # the bug: as old as the process
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["invoices"])
        while True:
            for record in await consumer.poll(timeout_s=1):
                invoice = (record.value or b"").decode()
                await trio.sleep(0.1)
                if invoice in paid:
                    continue
                async with database.transaction() as transaction:
                    if await is_first_write(transaction, f"{record.partition}", record.offset):
                        await insert(transaction, f"payments-{record.partition}", invoice)
                paid.add(invoice)
            await consumer.commit()


async def fixed(bootstrap: str, database: Database) -> None:
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["invoices"])
        while True:
            for record in await consumer.poll(timeout_s=1):
                invoice = (record.value or b"").decode()
                await trio.sleep(0.1)
                async with database.transaction() as transaction:
                    if await transaction.get(f"paid/{invoice}") is None:
                        await transaction.put(f"paid/{invoice}", "yes")
                        await insert(transaction, f"payments-{record.partition}", invoice)
            await consumer.commit()
