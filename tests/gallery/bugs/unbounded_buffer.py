"""Renders pictures. A reading task passes records to a slower worker through a queue without a
bound: the queue grows as long as records arrive faster than they are rendered."""

import math
from dataclasses import dataclass

import trio

from ottla.client import ConsumerConfig, ConsumerRecord, TopicPartition, open_consumer

CONFIG = ConsumerConfig(
    group_id="rendering", auto_offset_reset="earliest", enable_auto_commit=False
)


@dataclass
class Gauge:
    """A metric of the program: records that were read and are not rendered."""

    value: int = 0


async def run(bootstrap: str, gauge: Gauge, queue_length: float) -> None:
    """Read and render records, with a queue of a length between both."""
    gauge.value = 0
    send, receive = trio.open_memory_channel[ConsumerRecord](queue_length)
    async with open_consumer(bootstrap, CONFIG) as consumer, trio.open_nursery() as nursery:

        async def render() -> None:
            async for picture in receive:
                await trio.sleep(0.5)
                at = TopicPartition(picture.topic, picture.partition)
                if at in consumer.assignment:
                    await consumer.commit({at: picture.offset + 1})
                gauge.value -= 1

        nursery.start_soon(render)
        consumer.subscribe(["pictures"])
        async for picture in consumer:
            gauge.value += 1
            await send.send(picture)


async def broken(bootstrap: str, gauge: Gauge) -> None:
    await run(bootstrap, gauge, math.inf)  # the bug


async def fixed(bootstrap: str, gauge: Gauge) -> None:
    await run(bootstrap, gauge, 5)
