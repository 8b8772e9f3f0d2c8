"""Bills orders, and pauses a partition for some seconds when the price service is busy. A rebalance
during the pause cancels the timer that would resume the partition, but the pause is kept: nothing
ever resumes the partition."""

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

BACKOFF_S = 5


class Pauses(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Partitions that wait for the price service, and their timers."""

    def __init__(self, consumer: Any, *, restarts_timers: bool) -> None:
        self.consumer = consumer
        self.restarts_timers = restarts_timers
        self.timers: dict[Any, asyncio.Task[None]] = {}
        self.paused: set[Any] = set()

    def pause(self, at: Any) -> None:
        self.consumer.pause(at)
        self.paused.add(at)
        self.timers[at] = asyncio.create_task(self.resume_later(at))

    async def resume_later(self, at: Any) -> None:
        await asyncio.sleep(BACKOFF_S)
        self.paused.discard(at)
        self.consumer.resume(at)

    def on_partitions_revoked(self, revoked: Any) -> None:
        for timer in self.timers.values():
            timer.cancel()  # the partition may belong to another instance by then
        self.timers.clear()

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Pause partitions again that were paused before the rebalance."""
        for at in self.paused & set(assigned):
            if self.restarts_timers:
                self.pause(at)
            else:
                self.consumer.pause(at)  # the bug: no timer
        if self.restarts_timers:
            self.paused &= set(assigned)


class PriceService:
    """A service that is busy at the first call for some orders."""

    def __init__(self) -> None:
        self.asked: set[bytes] = set()

    async def is_busy(self, order: bytes) -> bool:
        await asyncio.sleep(0.1)
        is_first = order not in self.asked
        self.asked.add(order)
        return is_first and order.endswith(b"!")


async def run(bootstrap: str, *, restarts_timers: bool) -> None:
    """Bill orders, and pause partitions whose next order cannot be billed yet."""
    prices = PriceService()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="billing",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    pauses = Pauses(consumer, restarts_timers=restarts_timers)
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer, consumer:
        consumer.subscribe(["orders"], listener=pauses)
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=1)
            for at, (order,) in batches.items():
                if await prices.is_busy(order.value):
                    consumer.seek(at, order.offset)
                    pauses.pause(at)
                    continue
                await producer.send_and_wait("bills", order.value, key=order.key)
                await consumer.commit()


async def broken(bootstrap: str) -> None:
    await run(bootstrap, restarts_timers=False)


async def fixed(bootstrap: str) -> None:
    await run(bootstrap, restarts_timers=True)
