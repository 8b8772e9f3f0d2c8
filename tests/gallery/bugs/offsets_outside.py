"""Copies orders in transactions. Offsets are committed by the consumer after the transaction, so
that a crash between both copies the orders again."""

import trio

from ottla.client import (
    ConsumerConfig,
    ProducerConfig,
    TopicPartition,
    open_consumer,
    open_producer,
)

CONFIG = ConsumerConfig(
    group_id="copying", auto_offset_reset="earliest", enable_auto_commit=False, poll_records_max=5
)


async def broken(bootstrap: str, name: str) -> None:
    async with (
        open_producer(bootstrap, ProducerConfig(transactional_id=f"copying-{name}")) as producer,
        open_consumer(bootstrap, CONFIG) as consumer,
    ):
        consumer.subscribe(["orders"])
        while True:
            orders = await consumer.poll(timeout_s=1)
            if not orders:
                continue
            async with producer.transaction():
                for order in orders:
                    await trio.sleep(0.1)
                    await producer.send("copies", order.value, key=order.key)
            await trio.sleep(0.1)  # updates the metrics
            await consumer.commit()  # the bug: not part of the transaction


async def fixed(bootstrap: str, name: str) -> None:
    async with (
        open_producer(bootstrap, ProducerConfig(transactional_id=f"copying-{name}")) as producer,
        open_consumer(bootstrap, CONFIG) as consumer,
    ):
        consumer.subscribe(["orders"])
        while True:
            orders = await consumer.poll(timeout_s=1)
            if not orders:
                continue
            ends = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in orders}
            async with producer.transaction() as transaction:
                for order in orders:
                    await trio.sleep(0.1)
                    await producer.send("copies", order.value, key=order.key)
                await transaction.send_offsets(ends, consumer.group_metadata())
