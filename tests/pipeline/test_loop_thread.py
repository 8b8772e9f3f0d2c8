"""An event loop in a thread of its own, for a thread that blocks."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.pipeline.loop_thread import open_loop_thread, start_loop_thread


async def add(one: int, other: int) -> int:
    await trio.lowlevel.checkpoint()
    return one + other


async def refuse() -> None:
    await trio.lowlevel.checkpoint()
    raise RefusedError(ErrorCode.INVALID_REQUEST, "no")


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_call_returns_what_the_function_returns() -> None:
    with open_loop_thread() as loop:
        assert loop.call(add, 1, 2) == 3
        assert "ottla loop" in threads()
    assert "ottla loop" not in threads()


def test_a_call_raises_what_the_function_raises_and_the_loop_goes_on() -> None:
    with open_loop_thread() as loop:
        with pytest.raises(RefusedError, match="no"):
            loop.call(refuse)
        assert loop.call(add, 1, 2) == 3


def test_what_is_entered_stays_open_and_closes_last_first() -> None:
    story: list[str] = []

    @asynccontextmanager
    async def opened(name: str) -> AsyncIterator[trio.Nursery]:
        # A nursery closes only in the task that opened it.
        async with trio.open_nursery() as nursery:
            story.append(f"open {name}")
            yield nursery
            await trio.lowlevel.checkpoint()
            story.append(f"close {name}")

    async def start(nursery: trio.Nursery) -> None:
        nursery.start_soon(trio.lowlevel.checkpoint)
        await trio.lowlevel.checkpoint()

    with open_loop_thread() as loop:
        nursery = loop.enter(opened("first"))
        loop.enter(opened("second"))
        loop.call(start, nursery)
    assert story == ["open first", "open second", "close second", "close first"]


def test_what_cannot_be_opened_says_why_and_the_loop_goes_on() -> None:
    @asynccontextmanager
    async def refused() -> AsyncIterator[None]:
        await refuse()
        yield

    with open_loop_thread() as loop:
        with pytest.raises(RefusedError):
            loop.enter(refused())
        assert loop.call(add, 1, 2) == 3


def test_closing_twice_does_nothing_and_a_call_afterwards_is_refused() -> None:
    loop = start_loop_thread()
    loop.close()
    loop.close()
    with pytest.raises(trio.RunFinishedError):
        loop.call(add, 1, 2)


def test_several_threads_may_call_at_once() -> None:
    both = trio.Event()
    arrived: list[int] = []

    async def meet(one: int) -> int:
        arrived.append(one)
        if len(arrived) == 2:
            both.set()
        await both.wait()
        return one

    found: list[int] = []
    with open_loop_thread() as loop:
        others = [
            threading.Thread(target=lambda one=one: found.append(loop.call(meet, one)))
            for one in (1, 2)
        ]
        for other in others:
            other.start()
        for other in others:
            other.join()
    assert sorted(found) == [1, 2]
