import trio

from ottla.model.background_driver import RESTART_PAUSE_MS, keep_running
from ottla.model.unexpected_errors import UnexpectedErrors


async def test_a_task_that_meets_a_bug_is_noted_and_started_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    errors = UnexpectedErrors()
    started_at: list[float] = []

    async def work() -> None:
        started_at.append(trio.current_time())
        if len(started_at) < 3:
            raise RuntimeError("a bug")

    began_at = trio.current_time()
    await keep_running("flusher", work, errors)
    assert [round(at - began_at, 3) for at in started_at] == [
        count * RESTART_PAUSE_MS / 1_000 for count in range(3)
    ]
    assert errors.counts == {"task": 2}


async def test_a_task_that_fails_while_it_is_cancelled_ends_without_a_word_to_its_nursery() -> None:
    errors = UnexpectedErrors()

    async def fail_when_cancelled() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise RuntimeError("a bug on the way out")

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            nursery.start_soon(fail_when_cancelled)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keep_running, "flusher", work, errors)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert errors.counts == {"task": 1}


async def test_an_error_that_is_meant_to_end_a_task_is_raised() -> None:
    errors = UnexpectedErrors()

    async def work() -> None:
        raise LookupError("this incarnation must end")

    try:
        await keep_running("heartbeats", work, errors, ends_with=LookupError)
    except* LookupError:
        pass
    else:
        raise AssertionError("it was caught")
    assert not errors.counts
