"""Bridge between trio and an asyncio loop on its own thread, for libraries that need asyncio: gRPC,
and the client of an object store.

Trio tasks await coroutines of the asyncio loop (`run`). Callbacks of the asyncio loop are posted to
trio (`post_to_trio`). No call blocks a thread: a thousand long polls need only a thousand small
objects. If a trio task is cancelled, its coroutine is cancelled, and a late result of the coroutine
is dropped.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Generic, TypeVar

import outcome
import trio

T = TypeVar("T")


class AsyncioThread:
    """An asyncio loop on its own thread, used from the trio loop that opened it."""

    def __init__(self, token: trio.lowlevel.TrioToken, name: str) -> None:
        self._token = token
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The asyncio loop of the thread, for code that already runs on that loop."""
        return self._loop

    async def run(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `start` returns on the asyncio loop, and return its result."""
        call = AsyncioCall(self, start, trio.lowlevel.current_task())
        self.post_to_asyncio(call.begin)

        def abandon(_raise_cancel: Callable[[], Any]) -> trio.lowlevel.Abort:
            call.is_abandoned = True
            self.post_to_asyncio(call.cancel)
            return trio.lowlevel.Abort.SUCCEEDED

        result: T = await trio.lowlevel.wait_task_rescheduled(abandon)
        return result

    def post_to_asyncio(self, callback: Callable[..., object], *arguments: object) -> None:
        """Schedule a function on the asyncio loop without waiting for it. Does nothing if the loop
        is closed."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def post_to_trio(self, callback: Callable[..., object], *arguments: object) -> None:
        """Schedule a function on the trio loop without waiting for it. Does nothing if trio has
        ended."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(callback, *arguments)

    def start(self) -> None:
        """Start the thread that runs the asyncio loop."""
        self._thread.start()

    async def stop(self) -> None:
        """Stop the asyncio loop and wait until its thread has ended."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        await trio.to_thread.run_sync(self._thread.join)

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._drain())
        finally:
            self._loop.close()

    async def _drain(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


class AsyncioCall(Generic[T]):
    """A coroutine that runs on the asyncio loop while a trio task waits for it."""

    __slots__ = ("_start", "_task", "_thread", "_waiter", "is_abandoned")

    def __init__(
        self,
        thread: AsyncioThread,
        start: Callable[[], Coroutine[Any, Any, T]],
        waiter: trio.lowlevel.Task,
    ) -> None:
        self._thread = thread
        self._start = start
        self._waiter = waiter
        self._task: asyncio.Task[T] | None = None
        self.is_abandoned = False

    def begin(self) -> None:
        """Start the call's coroutine. Must be called on the asyncio loop."""
        if self.is_abandoned:
            return
        self._task = self._thread.loop.create_task(self._start())
        self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        """Cancel the call's coroutine. Must be called on the asyncio loop."""
        if self._task is not None:
            self._task.cancel()

    def _on_done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            result: outcome.Outcome[T] = outcome.Error(
                ConnectionAbortedError("the asyncio loop ended")
            )
        else:
            error = task.exception()
            result = outcome.Value(task.result()) if error is None else outcome.Error(error)
        self._thread.post_to_trio(self._deliver, result)

    def _deliver(self, result: outcome.Outcome[T]) -> None:
        if not self.is_abandoned:
            trio.lowlevel.reschedule(self._waiter, result)


@asynccontextmanager
async def open_asyncio_thread(name: str) -> AsyncIterator[AsyncioThread]:
    """Run an asyncio loop on a thread of the given name for the duration of the `async with` block.
    Yields the AsyncioThread."""
    thread = AsyncioThread(trio.lowlevel.current_trio_token(), name)
    thread.start()
    try:
        yield thread
    finally:
        with trio.CancelScope(shield=True):
            await thread.stop()
