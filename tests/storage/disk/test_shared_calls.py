"""Work that overlapping callers share."""

import errno

import pytest
import trio
from trio.testing import MockClock

from ottla.storage.disk.shared_calls_driver import SharedCalls


class Work:
    """Takes a second each time; counts how often it ran."""

    def __init__(self) -> None:
        self.count = 0
        self.error: OSError | None = None

    async def run(self) -> None:
        self.count += 1
        await trio.sleep(1)
        if self.error is not None:
            raise self.error


async def test_callers_that_overlap_share_the_work_that_begins_after_they_asked(
    autojump_clock: MockClock,
) -> None:
    calls, work = SharedCalls(), Work()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, "/a", work.run)
        await trio.sleep(0.5)
        for _ in range(10):
            nursery.start_soon(calls.run, "/a", work.run)
    assert work.count == 2
    assert trio.current_time() == 2


async def test_work_on_other_things_is_not_waited_for(autojump_clock: MockClock) -> None:
    calls, work = SharedCalls(), Work()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, "/a", work.run)
        nursery.start_soon(calls.run, "/b", work.run)
    assert trio.current_time() == 1


async def test_every_caller_hears_of_a_failure_and_the_next_one_tries_again(
    autojump_clock: MockClock,
) -> None:
    calls, work, failed = SharedCalls(), Work(), list[int | None]()
    work.error = OSError(errno.EIO, "broken", "/a")

    async def ask() -> None:
        try:
            await calls.run("/a", work.run)
        except OSError as error:
            failed.append(error.errno)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.sleep(0.5)
        nursery.start_soon(ask)
        nursery.start_soon(ask)
    assert failed == [errno.EIO] * 3
    work.error = None
    await calls.run("/a", work.run)
    assert work.count == 3


@pytest.mark.parametrize("cancelled_after_s", [0.7, 1.5])
async def test_who_is_cancelled_leaves_the_work_to_the_others(
    cancelled_after_s: float, autojump_clock: MockClock
) -> None:
    calls, work, done = SharedCalls(), Work(), list[float]()

    async def ask() -> None:
        await calls.run("/a", work.run)
        done.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, "/a", work.run)
        await trio.sleep(0.5)
        with trio.move_on_after(cancelled_after_s):
            async with trio.open_nursery() as second:
                second.start_soon(calls.run, "/a", work.run)
                await trio.sleep(0.1)
                nursery.start_soon(ask)
                nursery.start_soon(ask)
    assert len(done) == 2
    assert done[0] >= 2
