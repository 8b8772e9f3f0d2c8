"""Renders invoices as a static member. All instances have the same `group.instance.id`, so that
each start of an instance fences another one."""

import trio

from ottla.client import ConsumerConfig, open_consumer, open_producer


async def run(bootstrap: str, instance_id: str) -> None:
    """Render invoices as the static member `instance_id`."""
    config = ConsumerConfig(
        group_id="rendering",
        group_instance_id=instance_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        poll_records_max=20,
        session_timeout_ms=10_000,
    )
    async with open_producer(bootstrap) as producer, open_consumer(bootstrap, config) as consumer:
        consumer.subscribe(["invoices"])
        while True:
            for invoice in await consumer.poll(timeout_s=1):
                await trio.sleep(0.4)
                await (await producer.send("documents", invoice.value, key=invoice.key))
            await consumer.commit()


async def broken(bootstrap: str, name: str) -> None:
    await run(bootstrap, "rendering")  # the bug: the id is in the settings that all share


async def fixed(bootstrap: str, name: str) -> None:
    await run(bootstrap, f"rendering-{name}")
