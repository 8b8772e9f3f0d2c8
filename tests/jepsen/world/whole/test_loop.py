"""trio's loop in virtual time: the internals it uses exist, and paused tasks do not run."""

from collections import deque

import trio
import trio._core._run as trio_run
from trio._core._instrumentation import Instruments

from ottla.jepsen.world.whole.loop import (
    INSTANTS_PER_S,
    SCHEDULING_FLAG,
    TASKS,
    Loop,
    Tasks,
    next_instant,
    own,
    run_in_virtual_time,
)


def test_what_trio_does_not_promise_is_there() -> None:
    assert getattr(trio_run, SCHEDULING_FLAG) in (False, True)
    assert trio_run._r.getstate()

    async def look() -> tuple[type, type]:
        runner = trio_run.GLOBAL_RUN_CONTEXT.runner
        return type(runner.runq), type(runner.instruments)

    assert trio.run(look) == (deque, Instruments)


def test_an_hour_passes_at_once() -> None:
    async def main(loop: Loop) -> float:
        await trio.sleep(3_600)
        return trio.current_time()

    assert run_in_virtual_time(main, seed=1) == 3_600


def order_of(seed: int) -> list[int]:
    """Return in which order tasks that are due at once run."""
    found: list[int] = []

    async def note(number: int) -> None:
        await trio.sleep(1)
        found.append(number)

    async def main(loop: Loop) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(note, number)

    run_in_virtual_time(main, seed=seed)
    return found


def test_the_seed_decides_who_goes_first() -> None:
    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)


def test_a_run_leaves_trio_as_it_was() -> None:
    before = trio_run._r.getstate(), getattr(trio_run, SCHEDULING_FLAG)
    order_of(1)
    assert (trio_run._r.getstate(), getattr(trio_run, SCHEDULING_FLAG)) == before


async def tick(tasks: Tasks, heard: list[tuple[str, int]]) -> None:
    """Note the time every second, in a task of a process and in a child of it."""
    TASKS.set(tasks)

    async def child() -> None:
        while True:
            await trio.sleep(1)
            heard.append(("child", round(trio.current_time())))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(child)
        while True:
            await trio.sleep(1)
            heard.append(("parent", round(trio.current_time())))


def test_a_paused_process_runs_on_late_and_a_killed_one_never() -> None:
    paused: list[tuple[str, int]] = []
    killed: list[tuple[str, int]] = []

    async def main(loop: Loop) -> None:
        first, second = Tasks("first"), Tasks("second")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick, first, paused)
            nursery.start_soon(tick, second, killed)
            await trio.sleep(2.5)
            loop.between_steps(lambda: loop.stop(first))
            loop.between_steps(lambda: loop.stop(second))
            await trio.sleep(7)
            loop.between_steps(lambda: loop.resume(first))
            await trio.sleep(1.5)
            loop.resume_all()
            nursery.cancel_scope.cancel()

    run_in_virtual_time(main, seed=1)
    for who in ("parent", "child"):
        # The sleep that was over while it stood still ends at once, at 9.5 s.
        assert [at for name, at in paused if name == who] == [1, 2, 10, 10]
        assert [at for name, at in killed if name == who] == [1, 2]


def test_a_killed_process_does_not_clean_up() -> None:
    cleaned: list[str] = []

    async def hold(tasks: Tasks) -> None:
        TASKS.set(tasks)
        try:
            await trio.sleep(1)
        finally:
            cleaned.append("up")

    async def main(loop: Loop) -> bool:
        tasks = Tasks("it")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold, tasks)
            await trio.sleep(0.5)
            loop.between_steps(lambda: loop.stop(tasks))
            await trio.sleep(10)
            was_clean = not cleaned
            loop.resume_all()
            nursery.cancel_scope.cancel()
        return was_clean

    assert run_in_virtual_time(main, seed=1)


def test_instants_are_never_early() -> None:
    for at in (0.0, 0.000_1, 1.015, 4.350_01, 12_345.678_9):
        assert 0 <= next_instant(at) - at <= 1 / INSTANTS_PER_S
        assert next_instant(next_instant(at)) == next_instant(at)


def test_an_action_comes_after_a_number_of_steps_unless_it_is_called_off() -> None:
    struck: list[int] = []

    async def main(loop: Loop) -> int:
        start = loop.step_count
        loop.call_after_steps(3, lambda: struck.append(loop.step_count - start))
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        loop.call_after_steps(3, lambda: struck.append(-1))
        await trio.lowlevel.checkpoint()
        loop.cancel_call()
        for _ in range(10):
            await trio.lowlevel.checkpoint()
        return loop.step_count - start

    assert run_in_virtual_time(main, seed=1) > 10
    assert struck == [3]


def test_a_late_task_is_held_back_until_its_process_is_resumed() -> None:
    found: list[float] = []
    tasks = Tasks("late")

    async def note() -> None:
        await trio.sleep(1)
        found.append(trio.current_time())

    async def main(loop: Loop) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(own(tasks, note))
            await trio.sleep(0.5)
            tasks.is_late = lambda: True
            await trio.sleep(1.5)
            assert found == []
            tasks.is_late = None
            loop.between_steps(lambda: loop.resume(tasks))

    run_in_virtual_time(main, seed=1)
    assert found == [2.0]
