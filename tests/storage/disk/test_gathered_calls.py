"""Calls that a worker does some at a time."""

import errno
import os
import threading

import pytest
import trio
import trio.testing

from ottla.storage.disk.gathered_calls_driver import GatheredCalls
from ottla.storage.disk.real_disk_driver import NAMES_TOGETHER, RealDisk


class Work:
    """Records the order of calls, and blocks the first one until it is released."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.may_go = threading.Event()
        self.hold_next = threading.Event()
        """If set, the call after the next one waits to be released, too."""
        self.is_held = threading.Event()

    def do(self, number: int) -> None:
        if self.done and self.hold_next.is_set():
            self.is_held.set()
        assert self.may_go.wait(9)
        if self.hold_next.is_set():
            self.may_go.clear()
        self.done.append(number)
        if number < 0:
            raise OSError(errno.EIO, "broken", str(number))


@pytest.fixture
def work() -> Work:
    return Work()


def gathered(work: Work, *, most: int, workers: int = 1) -> GatheredCalls[int]:
    return GatheredCalls(work.do, trio.CapacityLimiter(workers), most=most)


def hand_overs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list to which each hand-over to a thread adds an entry."""
    found: list[int] = []
    original = trio.to_thread.run_sync

    async def counting(*arguments: object, **named: object) -> object:
        found.append(len(found))
        return await original(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(trio.to_thread, "run_sync", counting)
    return found


async def test_calls_that_wait_for_a_worker_are_done_together_in_their_order(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = gathered(work, most=16)
    handed = hand_overs(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, 0)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for number in range(1, 33):
            nursery.start_soon(calls.run, number)
            await trio.lowlevel.checkpoint()
        work.may_go.set()
    assert work.done == list(range(33))
    assert len(handed) == 1 + 32 // 16


async def test_each_caller_hears_of_its_own_error_only(work: Work) -> None:
    calls, failed = gathered(work, most=16), list[int]()
    work.may_go.set()

    async def ask(number: int) -> None:
        try:
            await calls.run(number)
        except OSError as error:
            assert error.filename == str(number)
            failed.append(number)

    async with trio.open_nursery() as nursery:
        for number in (1, -2, 3, -4):
            nursery.start_soon(ask, number)
    assert sorted(work.done) == [-4, -2, 1, 3]
    assert sorted(failed) == [-4, -2]


async def test_a_cancelled_caller_that_was_to_begin_leaves_the_calls_of_others(work: Work) -> None:
    calls = gathered(work, most=16)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, 0)
        await trio.testing.wait_all_tasks_blocked(0.01)
        with trio.CancelScope() as first:
            async with trio.open_nursery() as inner:
                inner.start_soon(calls.run, 1)
                await trio.testing.wait_all_tasks_blocked(0.01)
                nursery.start_soon(calls.run, 2)
                await trio.testing.wait_all_tasks_blocked(0.01)
                first.cancel()
        work.may_go.set()
    assert sorted(work.done) == [0, 2]


async def test_what_a_worker_has_taken_is_waited_for_also_by_who_is_cancelled(work: Work) -> None:
    calls, ended, second = gathered(work, most=16), list[list[int]](), trio.CancelScope()

    async def ask(number: int) -> None:
        with second:
            try:
                await calls.run(number)
            finally:
                ended.append(list(work.done))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(calls.run, 0)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(calls.run, 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(ask, 2)
        await trio.testing.wait_all_tasks_blocked(0.01)
        work.hold_next.set()
        work.may_go.set()
        await trio.to_thread.run_sync(work.is_held.wait, 9)
        second.cancel()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert not ended
        work.hold_next.clear()
        work.may_go.set()
    assert second.cancelled_caught
    assert ended == [[0, 1, 2]]


async def test_many_directories_are_made_in_few_hand_overs(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hand-over costs more than the directory."""
    disk = RealDisk([str(tmp_path)])
    handed = hand_overs(monkeypatch)
    count = 4 * NAMES_TOGETHER
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(
                disk.make_directory, f"{tmp_path}/d-{number}", {"log": b"", "name": b"x"}
            )
    assert len(handed) <= count / NAMES_TOGETHER
    assert len(await disk.listdir(str(tmp_path))) == count
    handed.clear()
    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(disk.rename, f"{tmp_path}/d-{number}", f"{tmp_path}/e-{number}")
    assert len(handed) <= count / NAMES_TOGETHER


async def test_of_many_directories_the_first_are_there_long_before_the_last(
    tmp_path: object,
) -> None:
    disk = RealDisk([str(tmp_path)])
    count, seen = 20 * NAMES_TOGETHER, list[int]()

    async def make(number: int) -> None:
        await disk.make_directory(f"{tmp_path}/d-{number}", {"log": b""})
        seen.append(len(os.listdir(str(tmp_path))))

    async with trio.open_nursery() as nursery:
        for number in range(count):
            nursery.start_soon(make, number)
    assert len(seen) == count
    assert seen[0] < count / 2
