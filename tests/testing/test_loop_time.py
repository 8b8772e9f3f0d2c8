"""Time of a loop that a test advances."""

import time

import pytest
import trio
import trio._core._run as trio_run
import trio.testing

from ottla.testing.loop_time import ShiftedNodeClock, time_shift


def test_trio_still_has_what_this_leans_on() -> None:
    async def main() -> None:
        assert trio_run.GLOBAL_RUN_CONTEXT.runner.clock is trio.lowlevel.current_clock()

    trio.run(main)


async def test_sleeps_end_in_their_order_and_no_real_time_passes() -> None:
    ended: list[int] = []

    async def sleep(hours: int) -> None:
        await trio.sleep(hours * 3_600)
        ended.append(hours)

    began = time.monotonic()
    async with trio.open_nursery() as nursery:
        for hours in (3, 1, 2, 9):
            nursery.start_soon(sleep, hours)
        await time_shift().advance(5 * 3_600)
        assert ended == [1, 2, 3]
        nursery.cancel_scope.cancel()
    assert time.monotonic() - began < 3_600


async def test_between_two_steps_what_is_due_happens() -> None:
    beats: list[float] = []

    async def beat() -> None:
        while True:
            beats.append(trio.current_time())
            await trio.sleep(3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(beat)
        await time_shift().advance(30)
        assert len(beats) >= 8
        beats.clear()
        await time_shift().advance(30, step_s=30)
        assert len(beats) == 1
        nursery.cancel_scope.cancel()


async def test_a_nodes_clocks_and_the_loop_advance_alike() -> None:
    clock = ShiftedNodeClock(time_shift())
    before = (clock.monotonic_ms(), clock.wall_ms(), trio.current_time() * 1_000)
    await time_shift().advance(86_400)
    after = (clock.monotonic_ms(), clock.wall_ms(), trio.current_time() * 1_000)
    for one, other in zip(before, after, strict=True):
        assert 86_400_000 <= other - one < 86_460_000


async def test_a_loop_that_is_never_quiet_is_advanced_too() -> None:
    async def spin() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(spin)
        with trio.move_on_after(10) as scope:
            await time_shift().advance(11)
        assert scope.cancelled_caught
        nursery.cancel_scope.cancel()


async def test_a_clock_that_a_test_brought_is_advanced_too(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = trio.current_time()
    await time_shift().advance(1_000)
    assert trio.current_time() - began >= 1_000


async def test_a_time_that_is_none_is_refused() -> None:
    for seconds in (-1, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="seconds is"):
            await time_shift().advance(seconds)
    with pytest.raises(ValueError, match="step_s is 0"):
        await time_shift().advance(1, step_s=0)
