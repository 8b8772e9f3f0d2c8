"""Disk work: in order for each partition, and partly deferred unless a request waits for it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.broker.replicas.log_work_driver import (
    LATER_AT_ONCE,
    LATER_PER_PARTITION_S,
    LATER_S,
    LATER_S_MAX,
    LogWork,
)
from ottla.model.ids import TopicPartition


@asynccontextmanager
async def running() -> AsyncIterator[LogWork]:
    work = LogWork()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(work.run)
        yield work
        nursery.cancel_scope.cancel()


def at(index: int) -> TopicPartition:
    return TopicPartition("t", index)


def noting(done: list[str], name: str) -> Callable[[], Awaitable[None]]:
    async def step() -> None:
        done.append(name)

    return step


async def test_a_deferred_step_runs_a_little_later(autojump_clock: MockClock) -> None:
    async with running() as work:
        done: list[str] = []
        work.add_later(at(0), noting(done, "later"))
        work.add(at(1), noting(done, "now"))
        await trio.sleep(LATER_S / 2)
        assert done == ["now"]
        assert work.has_steps(at(0))
        await work.wait_done()
        assert done == ["now", "later"]


async def test_many_deferred_steps_run_later_than_few(autojump_clock: MockClock) -> None:
    async with running() as work:
        done: list[str] = []
        for index in range(500):
            work.add_later(at(index), noting(done, "later"))
        began = trio.current_time()
        await trio.sleep(LATER_S + 400 * LATER_PER_PARTITION_S)
        assert not done
        await work.wait_done()
        assert len(done) == 500
        assert trio.current_time() - began <= LATER_S_MAX


async def test_waiting_for_a_partition_runs_its_deferred_step_at_once(
    autojump_clock: MockClock,
) -> None:
    async with running() as work:
        done: list[str] = []
        for index in range(3):
            work.add_later(at(index), noting(done, f"{index}"))
        began = trio.current_time()
        await work.until_done([at(2), at(7)], 1)
        assert (done, trio.current_time()) == (["2"], began)


async def test_a_wait_is_over_when_its_time_is(autojump_clock: MockClock) -> None:
    async with running() as work:
        work.add(at(0), trio.sleep_forever)
        began = trio.current_time()
        await work.until_done([at(0)], 2)
        assert trio.current_time() == began + 2


async def test_a_step_that_follows_begins_those_before_it(autojump_clock: MockClock) -> None:
    """A deletion waits for no log of another topic to be made."""
    async with running() as work:
        done: list[str] = []
        work.add_later(at(0), noting(done, "open"))
        work.add(at(0), noting(done, "delete"))
        await trio.sleep(LATER_S / 2)
        assert done == ["open", "delete"]


async def test_the_number_of_deferred_steps_that_run_at_once_is_bounded(
    autojump_clock: MockClock,
) -> None:
    async with running() as work:
        may_end = trio.Event()
        begun: list[int] = []
        deleted: list[str] = []

        def waiting(index: int) -> Callable[[], Awaitable[None]]:
            async def step() -> None:
                begun.append(index)
                await may_end.wait()

            return step

        for index in range(2 * LATER_AT_ONCE):
            work.add_later(at(index), waiting(index))
        await trio.sleep(LATER_S_MAX)
        assert begun == list(range(LATER_AT_ONCE))
        work.add(at(1_000), noting(deleted, "another"))
        await wait_all_tasks_blocked()
        assert deleted
        may_end.set()
        await work.wait_done()
        assert begun == list(range(2 * LATER_AT_ONCE))


async def test_a_partition_that_is_added_while_others_are_done_is_done_too(
    autojump_clock: MockClock,
) -> None:
    async with running() as work:
        done: list[str] = []
        work.add_later(at(0), noting(done, "first"))
        await trio.sleep(LATER_S / 2)
        work.start_delayed([at(0)])
        await wait_all_tasks_blocked()
        work.add_later(at(1), noting(done, "second"))
        await work.wait_done()
        assert done == ["first", "second"]
