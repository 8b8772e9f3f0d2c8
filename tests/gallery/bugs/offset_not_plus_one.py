"""Archives orders. The offset of the last processed order is committed instead of the next one, so
that the group always has a lag of one record in each partition."""

from ottla.client import ConsumerConfig, TopicPartition
from ottla.client.aio import open_consumer
from tests.gallery.database import Database

CONFIG = ConsumerConfig(
    group_id="archiving", auto_offset_reset="earliest", enable_auto_commit=False
)


async def run(bootstrap: str, database: Database, added: int) -> None:
    """Archive orders, and commit the offset of each plus `added`."""
    async with open_consumer(bootstrap, CONFIG) as consumer:
        await consumer.subscribe(["orders"])
        async for order in consumer:
            async with database.transaction() as transaction:
                name = f"archive/{order.partition}/{order.offset:06}"
                await transaction.put(name, (order.value or b"").decode())
            at = TopicPartition(order.topic, order.partition)
            await consumer.commit({at: order.offset + added})


async def broken(bootstrap: str, database: Database) -> None:
    await run(bootstrap, database, 0)  # the bug


async def fixed(bootstrap: str, database: Database) -> None:
    await run(bootstrap, database, 1)
