"""The check of determinism, and programs of asyncio that pass it."""

import itertools
import random
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer

import ottla.testing.world as world
from ottla.testing.world.program_modules import Program
from tests.testing.world.copying_programs import FAULTS, PROGRAMS, CopyScenario

_numbers: Iterator[int] = itertools.count()


@pytest.mark.parametrize("program", sorted(PROGRAMS))
def test_programs_of_asyncio_are_deterministic_under_faults(program: str) -> None:
    report = world.check_determinism(
        CopyScenario(PROGRAMS[program]), world.ClusterPlan(seed=5), FAULTS
    )
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
