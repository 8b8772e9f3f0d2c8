"""Programs of asyncio that copy records, and their scenario. Run as a script, it prints the digests
of runs: `python -m tests.testing.world.copying_programs PROGRAM FIRST_SEED END_SEED`."""

import asyncio
import random
import sys
import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import ottla.testing.world as world
from ottla.client.aio import open_consumer, open_producer
from ottla.model.settings.client import ConsumerConfig
from ottla.testing.world.program_modules import Program

FAULTS = world.FaultSchedule(
    (
        world.Kill(0, world.Request("OffsetCommit", 3)),
        world.Pause(1, world.At(4), 15),
        world.Stop(1, world.At(25)),
    )
)
TOPICS = ("orders", "letters", "parcels")


async def copy_with_aiokafka(bootstrap: str) -> None:
    async with (
        AIOKafkaConsumer(
            *TOPICS,
            bootstrap_servers=bootstrap,
            group_id="copiers",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        ) as consumer,
        AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer,
    ):
        while True:
            found = await consumer.getmany(timeout_ms=500, max_records=4)
            for records in found.values():
                for record in records:
                    await producer.send("copies", record.value, key=uuid.uuid4().bytes)
                    await asyncio.sleep(random.random())
            await producer.flush()
            await consumer.commit()


async def copy_with_ottla(bootstrap: str) -> None:
    config = ConsumerConfig(
        group_id="copiers", auto_offset_reset="earliest", enable_auto_commit=False
    )
    async with open_consumer(bootstrap, config) as consumer, open_producer(bootstrap) as producer:
        await consumer.subscribe(list(TOPICS))
        while True:
            for record in await consumer.poll(1.0):
                await (await producer.send("copies", record.value)).wait()
                await asyncio.sleep(random.random())
            await consumer.commit()


PROGRAMS: dict[str, Program] = {"aiokafka": copy_with_aiokafka, "ottla": copy_with_ottla}


class CopyScenario:
    """Scenario in which two instances copy the records of three topics."""

    def __init__(self, program: Program) -> None:
        self.program = program

    async def __call__(self, w: world.World) -> None:
        sent = []
        for topic in TOPICS:
            await w.create_topic(topic, partition_count=2)
        await w.create_topic("copies", partition_count=2)
        for topic in TOPICS:
            sent += await w.produce(topic, [f"{topic} {n}".encode() for n in range(8)])
        for name in ("a", "b"):
            w.start(name, self.program, w.bootstrap)
        await w.settle()
        world.at_least_once(sent, await w.read("copies"), key=lambda record: record.value)


if __name__ == "__main__":
    for name, program in PROGRAMS.items():
        for seed in range(int(sys.argv[1])):
            report = world.run(CopyScenario(program), world.ClusterPlan(seed=seed), FAULTS)
            print(name, seed, report.digest, report.event_count, flush=True)
