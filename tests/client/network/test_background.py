"""Background tasks of a client's block."""

import trio
from trio.testing import MockClock, assert_checkpoints, assert_no_checkpoints

from ottla.client.network.background import (
    YIELD_AFTER_S,
    YIELD_COUNT_MAX,
    WakeUp,
    YieldTimer,
    now_ms,
)


async def test_who_slept_until_an_instant_finds_it_come(autojump_clock: MockClock) -> None:
    """1015 ms are 1.015 s, and 1.015 times 1000 is below 1015: the waiter would spin."""
    wake_up = WakeUp()
    for instant_ms in (1_015, 4_350, 8_029, 1_000_003):
        await wake_up.wait(instant_ms)
        assert now_ms() == instant_ms
    assert trio.current_time() < 1_001


async def questions_that_yield(asked: int, clock: MockClock, step_s: float) -> list[int]:
    """Return at which questions others had their turn."""
    turn, found = YieldTimer(), []
    for question in range(asked):
        try:
            with assert_no_checkpoints():
                await turn.yield_if_due()
        except AssertionError:
            found.append(question)
        clock.jump(step_s)
    return found


async def test_others_have_their_turn_when_its_time_is_over(mock_clock: MockClock) -> None:
    assert await questions_that_yield(7, mock_clock, YIELD_AFTER_S / 2) == [0, 2, 4, 6]


async def test_others_have_their_turn_though_the_clock_stands(mock_clock: MockClock) -> None:
    assert await questions_that_yield(2 * YIELD_COUNT_MAX + 1, mock_clock, 0) == [
        0, YIELD_COUNT_MAX, 2 * YIELD_COUNT_MAX,
    ]  # fmt: skip


async def test_a_signal_before_the_look_for_work_does_not_end_the_next_wait(
    autojump_clock: MockClock,
) -> None:
    wake_up = WakeUp()
    wake_up.set()
    wake_up.clear()

    await wake_up.wait(5_000)
    assert trio.current_time() == 5

    wake_up.set()
    with assert_checkpoints():
        await wake_up.wait()
    assert trio.current_time() == 5


async def test_a_task_that_has_waited_works_on_for_its_whole_time(mock_clock: MockClock) -> None:
    turn = YieldTimer()
    turn.restart(trio.current_time())
    mock_clock.jump(YIELD_AFTER_S / 2)
    with assert_no_checkpoints():
        await turn.yield_if_due()
    mock_clock.jump(YIELD_AFTER_S)
    with assert_checkpoints():
        await turn.yield_if_due()
