"""Finishes costly requests: one step of one of them in a turn of the loop, what can be apart is.

A handler's steps are done in turn with those of all others, first come first served.  A large
request is decoded, and an answer that took several steps is encoded, in a worker thread: neither
holds anything that the loop changes.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeVar

import trio

from ottla.broker.network.loop_clock import LoopClock
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.network.steps import Apart, is_steps
from ottla.node.collector_pause_driver import COLLECTOR_PAUSE
from ottla.wire.codec import encode_large
from ottla.wire.codec_types import Message

T = TypeVar("T")


class RunApart(Protocol):
    """Does work elsewhere than on the loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Return what the work comes to."""
        ...


class PacedWork:
    """Runs what handlers left unfinished, for all connections of a server."""

    def __init__(
        self, run_apart: RunApart | None = None, *, clock: LoopClock | None = None
    ) -> None:
        """`run_apart` does work in a thread by default; the simulated world has none."""
        self._run_apart = run_apart or _run_in_thread
        self._clock = clock or LoopClock()
        # The processor's time, not the clock's: a thread also waits for the loop.
        self._thread_ns: Callable[[], int] = int if run_apart else time.thread_time_ns
        self._turn = trio.Lock()
        self._apart = trio.Lock()

    async def result_of(self, slot: ResponseSlot, pending: Any) -> Message | None:
        """Return what a handler's coroutine or steps come to, once they are done.

        A costly answer is encoded apart and completes the slot here: then that is None.
        """
        is_costly = False
        while pending is not None and (is_costly or not isinstance(pending, Message)):
            if isinstance(pending, Apart | Message) or is_steps(pending):
                is_costly = True
                with COLLECTOR_PAUSE.paused():
                    pending = await self._costly_result_of(slot, pending)
            else:
                # It may wait for long, so that garbage is collected meanwhile.
                pending = await pending
        return pending

    async def _costly_result_of(self, slot: ResponseSlot, pending: Any) -> Any:
        """Do costly work and answer; return None, or a coroutine that waits for something."""
        while isinstance(pending, Apart) or is_steps(pending):
            if isinstance(pending, Apart):
                # One at a time: what they come to takes memory.
                async with self._apart:
                    result = await self._done_apart(slot, pending.work)
                pending = pending.then(result)
            else:
                pending = await self._stepped(slot, pending)
        if isinstance(pending, Message):
            await self._complete(slot, pending)
            return None
        return pending

    async def _stepped(self, slot: ResponseSlot, steps: Generator[None, None, Any]) -> Any:
        try:
            while not slot.is_abandoned:
                # The lock goes to whoever waits for the longest; it is held for a whole turn.
                async with self._turn:
                    began_ns = self._clock.now_ns()
                    try:
                        next(steps)
                    except StopIteration as end:
                        return end.value
                    finally:
                        if slot.charge is not None:
                            slot.charge.used_ns += self._clock.now_ns() - began_ns
                    await trio.lowlevel.checkpoint()
        finally:
            steps.close()
        return None

    async def _complete(self, slot: ResponseSlot, response: Message) -> None:
        version = slot.header.api_version
        if slot.is_abandoned:
            return
        slot.finish_answer(response)
        chunks = await self._done_apart(slot, lambda: encode_large(response, version))
        slot.complete_encoded(response, chunks)

    async def _done_apart(self, slot: ResponseSlot, work: Callable[[], T]) -> T:
        """Return the result of work in a thread, and charge its time to the client."""
        charge = slot.charge
        if charge is None:
            return await self._run_apart(work)
        thread_ns = self._thread_ns

        def timed() -> tuple[T, int]:
            began_ns = thread_ns()
            result = work()
            return result, thread_ns() - began_ns

        result, used_ns = await self._run_apart(timed)
        charge.note_apart(used_ns)
        return result


async def _run_in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
