"""The check of determinism, and programs of asyncio that pass it."""

import asyncio
import itertools
import random
import time
import uuid
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import ottla.testing.world as world
from ottla.client.aio import open_consumer, open_producer
from ottla.model.settings.client import ConsumerConfig
from ottla.testing.world.instances import Program

_numbers: Iterator[int] = itertools.count()
FAULTS = world.FaultSchedule(
    (
        world.Kill(0, world.Request("OffsetCommit", 3)),
        world.Pause(1, world.At(4), 15),
        world.Stop(1, world.At(25)),
    )
)


async def copy_with_aiokafka(bootstrap: str) -> None:
    async with (
        AIOKafkaConsumer(
            "orders",
            "letters",
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
        await consumer.subscribe(["orders", "letters"])
        while True:
            for record in await consumer.poll(1.0):
                await (await producer.send("copies", record.value)).wait()
                await asyncio.sleep(random.random())
            await consumer.commit()


class CopyScenario:
    """Scenario in which two instances copy the records of two topics."""

    def __init__(self, program: Program) -> None:
        self.program = program

    async def __call__(self, w: world.World) -> None:
        for topic in ("orders", "letters"):
            await w.create_topic(topic, partition_count=3)
        await w.create_topic("copies", partition_count=2)
        sent = []
        for topic in ("orders", "letters"):
            sent += await w.produce(topic, [f"{topic} {n}".encode() for n in range(12)])
        for name in ("a", "b"):
            w.start(name, self.program, w.bootstrap)
        await w.settle()
        world.at_least_once(sent, await w.read("copies"), key=lambda record: record.value)


@pytest.mark.parametrize("program", [copy_with_aiokafka, copy_with_ottla])
def test_programs_of_asyncio_are_deterministic_under_faults(program: Program) -> None:
    report = world.check_determinism(CopyScenario(program), world.ClusterPlan(seed=5), FAULTS)
    text = report.timeline.as_text()
    assert "killed" in text
    assert report.event_count > 500


async def send_module_state(bootstrap: str) -> None:
    time.time()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("copies", b"number %d" % next(_numbers))


async def wait_for_module_state(bootstrap: str) -> None:
    for _ in range(next(_numbers) % 2):
        random.random()
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        await producer.send_and_wait("copies", b"%d" % int(random.random() * 1_000_000))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (send_module_state, "a broker-1 9092"),
        (wait_for_module_state, "random"),
    ],
)
def test_a_program_with_state_of_its_own_is_named(program: Program, expected: str) -> None:
    async def scenario(w: world.World) -> None:
        await w.create_topic("copies")
        w.start("a", program, w.bootstrap)
        await w.sleep(5)

    with pytest.raises(world.NondeterminismError) as caught:
        world.check_determinism(scenario)
    assert "Then one run had" in str(caught.value)
    assert expected in str(caught.value)


def test_a_scenario_that_fails_in_both_runs_raises_its_error() -> None:
    async def scenario(w: world.World) -> None:
        raise ValueError("always")

    with pytest.raises(ValueError, match="always"):
        world.check_determinism(scenario)


def test_a_scenario_that_fails_in_one_run_is_named() -> None:
    async def scenario(w: world.World) -> None:
        if next(_numbers) % 2:
            raise ValueError("sometimes")

    with pytest.raises(world.NondeterminismError, match="scenario itself"):
        world.check_determinism(scenario)
