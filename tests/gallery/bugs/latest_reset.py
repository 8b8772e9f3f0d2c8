"""Stores alarms. The group starts at the end of partitions in which it has not committed, so that
alarms sent while no instance runs are lost until the first commit in their partition."""

from ottla.client import ConsumerConfig, TopicPartition, open_consumer
from tests.gallery.database import Database


async def run(bootstrap: str, database: Database, auto_offset_reset: str) -> None:
    """Store alarms, and commit each."""
    config = ConsumerConfig(
        group_id="alarms", enable_auto_commit=False, auto_offset_reset=auto_offset_reset
    )
    async with open_consumer(bootstrap, config) as consumer:
        consumer.subscribe(["alarms"])
        async for alarm in consumer:
            async with database.transaction() as transaction:
                await transaction.put(
                    f"alarms/{alarm.partition}/{alarm.offset:06}", (alarm.value or b"").decode()
                )
            await consumer.commit({TopicPartition(alarm.topic, alarm.partition): alarm.offset + 1})


async def broken(bootstrap: str, database: Database) -> None:
    await run(bootstrap, database, "latest")  # the bug: the default


async def fixed(bootstrap: str, database: Database) -> None:
    await run(bootstrap, database, "earliest")
