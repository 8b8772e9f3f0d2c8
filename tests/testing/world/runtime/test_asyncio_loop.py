"""asyncio programs in virtual time on simulated machines."""

import asyncio
import contextvars
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import trio

from ottla.jepsen.world.whole.machine import SharedWorld
from ottla.testing.world.errors import NotInWorldError
from ottla.testing.world.runtime.asyncio_loop import run_in_trio
from ottla.testing.world.runtime.asyncio_refusals import REFUSED
from tests.testing.world.small_world import in_network, instance, result_of


def test_a_program_sleeps_in_virtual_time() -> None:
    async def program() -> float:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        await asyncio.sleep(86_400)
        return loop.time() - began_s

    assert result_of(program) == pytest.approx(86_400)


def test_callbacks_run_first_in_first_out_and_timers_by_time() -> None:
    async def program() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        done = loop.create_future()
        loop.call_later(2, seen.append, "2 s")
        loop.call_later(1, seen.append, "1 s, first")
        loop.call_later(1, seen.append, "1 s, second")
        loop.call_later(1.5, seen.append, "cancelled").cancel()
        loop.call_soon(seen.append, "soon, first")
        loop.call_soon(seen.append, "soon, second")
        loop.call_later(3, done.set_result, None)
        await done
        return seen

    assert result_of(program) == [
        "soon, first",
        "soon, second",
        "1 s, first",
        "1 s, second",
        "2 s",
    ]


def test_timeouts_groups_locks_and_queues_of_asyncio_work() -> None:
    async def program() -> list[object]:
        seen: list[object] = []
        queue: asyncio.Queue[int] = asyncio.Queue(1)

        async def fill() -> None:
            for number in range(3):
                await queue.put(number)

        async with asyncio.TaskGroup() as group:
            group.create_task(fill())
            seen.extend([await queue.get() for _ in range(3)])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.Event().wait()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.sleep(60), 1)
        seen.append(asyncio.get_running_loop().time())
        return seen

    assert result_of(program) == [0, 1, 2, 6.0]


def test_an_error_of_the_program_is_raised() -> None:
    async def program() -> None:
        await asyncio.sleep(1)
        raise ValueError("poison")

    with pytest.raises(ValueError, match="poison"):
        result_of(program)


def test_functions_for_threads_are_called_at_once() -> None:
    async def program() -> tuple[int, float]:
        number = await asyncio.to_thread(lambda: 7)
        return number, asyncio.get_running_loop().time()

    assert result_of(program) == (7, 0.0)


def test_a_program_that_polls_makes_time_pass() -> None:
    async def program() -> bool:
        done: list[int] = []
        asyncio.get_running_loop().call_later(0.1, done.append, 1)
        while not done:
            await asyncio.sleep(0)
        return True

    assert result_of(program)


def test_tasks_that_are_left_at_the_end_are_cancelled() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1_000)
        finally:
            await asyncio.sleep(1)
            seen.append("cleaned up")

    async def program() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        seen.append(f"done: {task.done()}")

    result_of(program)
    assert seen == ["done: False", "cleaned up"]


def test_an_abandoned_async_generator_is_closed() -> None:
    seen: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            seen.append("closed")

    async def program() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(1)
        seen.append("end")

    result_of(program)
    assert seen == ["closed", "end"]


def test_a_stopped_program_is_cancelled_and_may_clean_up() -> None:
    seen: list[str] = []

    async def program() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(2)
            seen.append("cleaned up")

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        machine.start()
        await trio.sleep(1)
        await machine.stop()
        assert machine.failure is None
        assert trio.current_time() >= 3

    in_network(scenario)
    assert seen == ["cleaned up"]


def test_a_handler_of_sigterm_is_called_instead_of_cancelling() -> None:
    async def program() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(15, stop.set)
        await stop.wait()
        seen.append("stopped")

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        machine.start()
        await trio.sleep(1)
        await machine.stop()

    seen: list[str] = []
    in_network(scenario)
    assert seen == ["stopped"]


def test_a_killed_program_never_acts_again(capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []
    is_run = True

    def note(text: str) -> None:
        if is_run:
            seen.append(text)
        print(text)

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            note("generator")

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            note("task")

    async def program() -> None:
        task = asyncio.create_task(work())
        try:
            async for _ in generator():
                note("begun")
                assert not task.done()
                await asyncio.sleep(2)
        finally:
            note("program")

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        for _ in range(2):
            machine.start()
            await trio.sleep(1)
            machine.kill()
            await trio.sleep(5)
        nonlocal is_run
        is_run = False

    in_network(scenario)
    assert seen == ["begun", "begun"]
    output, errors = capfd.readouterr()
    assert output == "begun\nbegun\n"
    assert errors == ""


def test_code_of_a_killed_program_that_is_released_starts_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    policy = asyncio.get_event_loop_policy()
    monkeypatch.setattr(policy, "get_event_loop", lambda: seen.append("a new event loop"))

    async def program() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("released")
            try:
                time.sleep(3_600)
            finally:
                asyncio.get_event_loop().create_task(asyncio.sleep(1))
                seen.append("a task")

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        machine.start()
        await trio.sleep(1)
        machine.kill()
        await trio.sleep(1)

    in_network(scenario)
    assert seen == ["released"]


def test_a_paused_program_finds_its_timers_expired() -> None:
    seen: list[float] = []

    async def program() -> None:
        await asyncio.sleep(1)
        seen.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        seen.append(asyncio.get_running_loop().time())

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        machine.start()
        await trio.sleep(0.5)
        machine.pause()
        await trio.sleep(10)
        machine.resume()
        await machine.has_ended.wait()

    in_network(scenario)
    assert seen == [pytest.approx(10.5), pytest.approx(11.5)]


def test_a_task_runs_functions_of_trio() -> None:
    async def double(number: int) -> int:
        await trio.sleep(3)
        return 2 * number

    async def fail() -> None:
        raise ValueError("of trio")

    async def program() -> tuple[int, float]:
        with pytest.raises(ValueError, match="of trio"):
            await run_in_trio(fail)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(run_in_trio(trio.sleep_forever), 2)
        return await run_in_trio(double, 21), asyncio.get_running_loop().time()

    assert result_of(program) == (42, 5.0)


def test_sets_of_tasks_have_the_order_of_creation() -> None:
    async def program() -> list[int]:
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(50)]
        order = {id(future): at for at, future in enumerate(futures)}
        return [order[id(future)] for future in set(futures)]

    first = result_of(program)
    assert sorted(first) == list(range(50))
    assert first == result_of(program)


def test_context_variables_belong_to_tasks() -> None:
    variable = contextvars.ContextVar("variable", default=0)

    async def work(number: int) -> int:
        variable.set(number)
        await asyncio.sleep(1)
        return variable.get()

    async def program() -> tuple[list[int], int]:
        return list(await asyncio.gather(*map(work, range(3)))), variable.get()

    assert result_of(program) == ([0, 1, 2], 0)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_methods_without_a_meaning_are_refused_with_advice(name: str) -> None:
    async def program() -> None:
        method: Any = getattr(asyncio.get_running_loop(), name)
        refused = method(None)
        if asyncio.iscoroutine(refused):
            await refused

    with pytest.raises(NotInWorldError, match=rf"^loop\.{name} does not exist in a world: .+"):
        result_of(program)


def test_the_loop_cannot_be_driven_by_the_program() -> None:
    async def program() -> None:
        loop = asyncio.get_running_loop()
        for call in (
            loop.run_forever,
            partial(loop.run_until_complete, loop.create_future()),
            loop.stop,
            loop.close,
        ):
            with pytest.raises(NotInWorldError, match="world"):
                call()

    result_of(program)


def test_no_event_loop_is_running_in_other_tasks() -> None:
    async def program() -> None:
        await asyncio.sleep(5)

    async def scenario(world: SharedWorld) -> None:
        machine = instance(world, "a", program)
        machine.start()
        for _ in range(5):
            await trio.sleep(1)
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()

    in_network(scenario)
