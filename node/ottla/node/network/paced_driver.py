"""Runs costly requests: handlers' steps on the event loop, and decoding and encoding in threads.

Each iteration of the event loop runs one step. The steps of all handlers run in turn, in the order
in which the handlers were started. A large request is decoded in a worker thread, and a response
that took several steps is encoded in a worker thread. These threads use no object that the event
loop changes.
"""

import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Protocol, TypeVar

import trio

from ottla.node.collector_pause_driver import COLLECTOR_PAUSE
from ottla.node.network.loop_clock import LoopClock
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import ThreadWork, is_steps
from ottla.wire.codec import encode_large
from ottla.wire.codec_types import Message

T = TypeVar("T")


class RunInThread(Protocol):
    """Interface of a function that runs another function in a thread, off the event loop."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]:
        """Run a function in a thread, off the event loop, and return the function's result."""
        ...


class PacedWork:
    """Runner of the pending work of request handlers (steps, and work for threads), for all
    connections of a server."""

    def __init__(
        self, run_in_thread: RunInThread | None = None, *, clock: LoopClock | None = None
    ) -> None:
        """Create the runner. `run_in_thread` runs a function in a thread by default; a simulation
        passes its own function."""
        self._run_in_worker = run_in_thread or _run_in_thread
        self._clock = clock or LoopClock()
        # CPU time, not wall time: a thread also waits for the event loop.
        self._thread_ns: Callable[[], int] = int if run_in_thread else time.thread_time_ns
        self._turn = trio.Lock()
        self._thread_lock = trio.Lock()

    async def result_of(self, slot: ResponseSlot, pending: Any) -> Message | None:
        """Finish a request handler's coroutine or steps, and return the response.

        Returns None for a costly response: it is encoded off the event loop, and this method
        completes the response slot.
        """
        is_costly = False
        while pending is not None and (is_costly or not isinstance(pending, Message)):
            if isinstance(pending, ThreadWork | Message) or is_steps(pending):
                is_costly = True
                with COLLECTOR_PAUSE.paused():
                    pending = await self._costly_result_of(slot, pending)
            else:
                # May wait for long; garbage can be collected meanwhile.
                pending = await pending
        return pending

    async def _costly_result_of(self, slot: ResponseSlot, pending: Any) -> Any:
        """Finish costly work of a request handler and answer the request. Returns None, or a
        coroutine that waits for an event."""
        while isinstance(pending, ThreadWork) or is_steps(pending):
            if isinstance(pending, ThreadWork):
                # One at a time, since their results take memory.
                async with self._thread_lock:
                    result = await self._done_in_thread(slot, pending.work)
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
                # The lock is fair, and is held for a whole iteration.
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
        chunks = await self._done_in_thread(slot, lambda: encode_large(response, version))
        slot.complete_encoded(response, chunks)

    async def _done_in_thread(self, slot: ResponseSlot, work: Callable[[], T]) -> T:
        """Run `work` in a thread and return its result. The duration is charged to the client of
        the request."""
        charge = slot.charge
        if charge is None:
            return await self._run_in_worker(work)
        thread_ns = self._thread_ns

        def timed() -> tuple[T, int]:
            began_ns = thread_ns()
            result = work()
            return result, thread_ns() - began_ns

        result, used_ns = await self._run_in_worker(timed)
        charge.note_thread_time(used_ns)
        return result


async def _run_in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)
