"""Cost of asyncio: compares `ottla.client.aio` with `ottla.client`, against one broker process.

`python -m ottla.bench.aio_cost [RECORDS]` prints the records per second for five kinds of client
use, each with trio and with asyncio. The trio and the asyncio client take turns, and each figure is
the median of three rounds. The broker runs on the same machine, so only figures in the same row are
comparable.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from statistics import median
from typing import Any

import trio

import ottla.client
from ottla.bench.local_cluster import open_local_cluster
from ottla.client import ConsumerConfig, TopicPartition, aio

VALUE = bytes(100)
AT = TopicPartition("aio-cost", 0)
TOGETHER = 100
"""Number of records that one `asyncio.gather` sends concurrently, like an application with many
tasks."""
ROUNDS = 3
FROM_START = ConsumerConfig(auto_offset_reset="earliest")

Work = Callable[[str, int], Awaitable[None]]


async def trio_sends(bootstrap: str, count: int) -> None:
    """Send `count` records one after the other, with the trio client."""
    async with ottla.client.open_producer(bootstrap) as producer:
        for _ in range(count):
            await producer.send(AT.topic, VALUE)


async def aio_sends(bootstrap: str, count: int) -> None:
    """Send `count` records one after the other, with the asyncio client."""
    async with aio.open_producer(bootstrap) as producer:
        for _ in range(count):
            await producer.send(AT.topic, VALUE)


async def trio_together(bootstrap: str, count: int) -> None:
    """Send `count` records from many concurrent tasks, with the trio client."""
    async with ottla.client.open_producer(bootstrap) as producer:
        for _ in range(count // TOGETHER):
            async with trio.open_nursery() as nursery:
                for _ in range(TOGETHER):
                    nursery.start_soon(producer.send, AT.topic, VALUE)


async def aio_together(bootstrap: str, count: int) -> None:
    """Send `count` records from many concurrent tasks, with the asyncio client."""
    async with aio.open_producer(bootstrap) as producer:
        for _ in range(count // TOGETHER):
            await asyncio.gather(*(producer.send(AT.topic, VALUE) for _ in range(TOGETHER)))


async def trio_delivered(bootstrap: str, count: int) -> None:
    """Send `count` records from many concurrent tasks of trio. Each task waits until its record is
    delivered."""
    async with ottla.client.open_producer(bootstrap) as producer:

        async def deliver() -> None:
            await (await producer.send(AT.topic, VALUE))

        for _ in range(count // TOGETHER):
            async with trio.open_nursery() as nursery:
                for _ in range(TOGETHER):
                    nursery.start_soon(deliver)


async def aio_delivered(bootstrap: str, count: int) -> None:
    """Send `count` records from many concurrent tasks of asyncio. Each task waits until its record
    is delivered."""
    async with aio.open_producer(bootstrap) as producer:

        async def deliver() -> None:
            await (await producer.send(AT.topic, VALUE))

        for _ in range(count // TOGETHER):
            await asyncio.gather(*(deliver() for _ in range(TOGETHER)))


async def trio_polls(bootstrap: str, count: int) -> None:
    """Read `count` records with `poll` of the trio client."""
    async with ottla.client.open_consumer(bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        while count > 0:
            count -= len(await consumer.poll())


async def aio_polls(bootstrap: str, count: int) -> None:
    """Read `count` records with `poll` of the asyncio client."""
    async with aio.open_consumer(bootstrap, FROM_START) as consumer:
        await consumer.assign([AT])
        while count > 0:
            count -= len(await consumer.poll())


async def trio_iterates(bootstrap: str, count: int) -> None:
    """Read `count` records with `async for` over the trio client."""
    async with ottla.client.open_consumer(bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        for _ in range(count):
            await anext(consumer)


async def aio_iterates(bootstrap: str, count: int) -> None:
    """Read `count` records with `async for` over the asyncio client."""
    async with aio.open_consumer(bootstrap, FROM_START) as consumer:
        await consumer.assign([AT])
        for _ in range(count):
            await anext(consumer)


PAIRS: tuple[tuple[str, Work, Work], ...] = (
    ("send, one after the other", trio_sends, aio_sends),
    (f"send, {TOGETHER} tasks at a time", trio_together, aio_together),
    (f"delivered, {TOGETHER} tasks at a time", trio_delivered, aio_delivered),
    ("poll", trio_polls, aio_polls),
    ("async for", trio_iterates, aio_iterates),
)


def rate(run: Callable[..., Any], count: int) -> float:
    """Run a function that sends or reads records once, and return its records per second."""
    began = time.perf_counter()
    run()
    return count / (time.perf_counter() - began)


def main() -> None:
    """Measure five ways to send or read records, with the trio client and with the asyncio client.
    Prints one row for each."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    with open_local_cluster(controllers=1, brokers=1) as cluster:
        trio.run(trio_sends, cluster.bootstrap, 1_000)
        print(f"{'records/s':32}{'trio':>12}{'asyncio':>12}")
        for name, by_trio, by_asyncio in PAIRS:
            found: tuple[list[float], list[float]] = ([], [])
            for _ in range(ROUNDS):
                found[0].append(
                    rate(lambda work=by_trio: trio.run(work, cluster.bootstrap, count), count)
                )
                found[1].append(
                    rate(lambda work=by_asyncio: asyncio.run(work(cluster.bootstrap, count)), count)
                )
            print(f"{name:32}{median(found[0]):12,.0f}{median(found[1]):12,.0f}")


if __name__ == "__main__":
    main()
