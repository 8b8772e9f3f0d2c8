"""Stores readings of sensors, and drops duplicates. A reading counts as a duplicate if its
timestamp is not later than the sensor's last one, so that readings of the same millisecond are
lost."""

from ottla.client import ConsumerConfig, open_consumer
from tests.gallery.database import Database, insert, is_first_write

CONFIG = ConsumerConfig(
    group_id="storing", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=5
)


async def broken(bootstrap: str, database: Database) -> None:
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["readings"])
        while True:
            for reading in await consumer.poll(timeout_s=1):
                sensor = (reading.key or b"").decode()
                async with database.transaction() as transaction:
                    latest = int(await transaction.get(f"latest/{sensor}") or "-1")
                    if reading.timestamp_ms <= latest:  # the bug: no identity of a reading
                        continue
                    await transaction.put(f"latest/{sensor}", str(reading.timestamp_ms))
                    row = (reading.value or b"").decode()
                    await insert(transaction, f"readings-{reading.partition}", row)
            await consumer.commit()


async def fixed(bootstrap: str, database: Database) -> None:
    async with open_consumer(bootstrap, CONFIG) as consumer:
        consumer.subscribe(["readings"])
        while True:
            for reading in await consumer.poll(timeout_s=1):
                async with database.transaction() as transaction:
                    if await is_first_write(transaction, f"{reading.partition}", reading.offset):
                        row = (reading.value or b"").decode()
                        await insert(transaction, f"readings-{reading.partition}", row)
            await consumer.commit()
