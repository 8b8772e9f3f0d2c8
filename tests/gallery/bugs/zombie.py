"""Copies orders exactly once. The transactional id is random, so that an instance that was
suspended while its partitions moved is not fenced, and commits the orders that another instance has
copied."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import ConsumerRebalanceListener


def consumer_of(bootstrap: str, *topics: str) -> Any:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        group_id="copying",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


async def copy(producer: Any, at: Any, orders: Any) -> None:
    """Copy the orders of a partition, and their offsets, in one transaction."""
    async with producer.transaction():
        for order in orders:
            await asyncio.sleep(0.2)
            await producer.send_and_wait("copies", order.value, key=order.key)
        # aiokafka sends neither member id nor generation: the coordinator cannot refuse a zombie.
        await producer.send_offsets_to_transaction({at: orders[-1].offset + 1}, "copying")


async def broken(bootstrap: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        transactional_id=f"copying-{uuid4()}",  # the bug: fences no other instance
    )
    async with producer, consumer_of(bootstrap, "orders") as consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=5)
            for at, orders in batches.items():
                await copy(producer, at, orders)


class ForgetProducers(ConsumerRebalanceListener):  # type: ignore[misc] # aiokafka has no types
    """Forgets the producers at each rebalance. aiokafka then reads committed offsets without
    waiting for a transaction in progress, even of partitions that this instance keeps."""

    def __init__(self, producers: dict[Any, Any]) -> None:
        self._producers = producers

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Do nothing: a transaction in progress is committed."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Forget all producers."""
        self._producers.clear()


async def fixed(bootstrap: str) -> None:
    producers: dict[Any, Any] = {}
    consumer = consumer_of(bootstrap)
    consumer.subscribe(["orders"], listener=ForgetProducers(producers))
    async with consumer, AsyncExitStack() as stack:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=5)
            for at, orders in batches.items():
                if at not in producers:
                    # One id per partition: its new owner fences the former one. Only then is the
                    # committed offset final, so that the records read before are read again.
                    producers[at] = await stack.enter_async_context(
                        AIOKafkaProducer(
                            bootstrap_servers=bootstrap,
                            transactional_id=f"copying-{at.topic}-{at.partition}",
                        )
                    )
                    offset = await consumer.committed(at)
                    consumer.seek(at, offset or 0)
                else:
                    await copy(producers[at], at, orders)
