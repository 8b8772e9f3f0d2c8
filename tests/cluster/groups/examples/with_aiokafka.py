"""A producer and a consumer as in aiokafka's own examples. Arguments: BOOTSTRAP WHAT."""

import asyncio
import contextlib
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def produce(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        for line in sys.stdin:
            await producer.send_and_wait("mytopic", line.strip().encode("utf-8"))
    finally:
        await producer.stop()


async def consume(bootstrap: str) -> None:
    consumer = AIOKafkaConsumer("mytopic", bootstrap_servers=bootstrap, group_id="mygroup")
    await consumer.start()
    try:
        async for message in consumer:
            print(message.value.decode("utf-8"), flush=True)
    finally:
        await consumer.stop()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run({"produce": produce, "consume": consume}[sys.argv[2]](sys.argv[1]))
