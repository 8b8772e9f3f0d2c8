"""A trio event loop in a thread, for blocking callers such as Spark's Python processes, which have
no event loop.

`call` runs an async function in the loop, and returns its result or raises its error. `enter` opens
an async context manager (a cluster, an admin client) and keeps it open over many calls. `close`
closes all of them in reverse order, and ends the loop. The thread is a daemon, so that a process
can end without closing the loop. Several threads may call at once.
"""

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from typing import Any, TypeVar, TypeVarTuple

import trio

T = TypeVar("T")
A = TypeVarTuple("A")


class _KeptManager:
    """Async context manager that `LoopThread.enter` keeps open. `opened` is set once the manager is
    open or has failed; `release` closes it."""

    def __init__(self, manager: AbstractAsyncContextManager[Any]) -> None:
        self.manager = manager
        self.opened = trio.Event()
        self.release = trio.Event()
        self.closed = trio.Event()
        self.value: Any = None
        self.failure: Exception | None = None

    async def run(self) -> None:
        """Open the context manager, wait for `release`, and close the manager, all in one task, as
        nurseries require."""
        try:
            async with self.manager as self.value:
                self.opened.set()
                await self.release.wait()
        except Exception as error:
            if self.opened.is_set():
                raise
            self.failure = error
        finally:
            self.opened.set()
            self.closed.set()


class LoopThread:
    """A thread with a running event loop, created by `start_loop_thread`."""

    def __init__(self) -> None:
        self._is_ready = threading.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._nursery: trio.Nursery | None = None
        self._end: trio.Event | None = None
        self._kept: list[_KeptManager] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ottla loop", daemon=True)

    def start(self) -> None:
        """Start the thread. Returns once the thread's event loop is running."""
        self._thread.start()
        self._is_ready.wait()

    def call(self, function: Callable[[*A], Awaitable[T]], *arguments: *A) -> T:
        """Run `function(*arguments)` in the thread's event loop, and return its result.

        Raises trio.RunFinishedError after `close`.
        """
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    def enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        """Open the async context manager `manager` and return the object that it yields. The
        manager stays open until `close`."""
        return self.call(self._enter, manager)

    def close(self) -> None:
        """Close the context managers that `enter` has opened, and end the event loop. A second call
        has no effect."""
        if self._thread.is_alive():
            # Another thread may have closed the loop first.  If the loop has failed, its error is
            # raised below.
            with suppress(trio.RunFinishedError, trio.Cancelled):
                self.call(self._finish)
            self._thread.join()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _enter(self, manager: AbstractAsyncContextManager[T]) -> T:
        assert self._nursery is not None
        kept = _KeptManager(manager)
        self._nursery.start_soon(kept.run)
        await kept.opened.wait()
        if kept.failure is not None:
            raise kept.failure
        self._kept.append(kept)
        value: T = kept.value
        return value

    async def _finish(self) -> None:
        assert self._end is not None
        while self._kept:
            kept = self._kept.pop()
            kept.release.set()
            await kept.closed.wait()
        self._end.set()

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._failure = error
        finally:
            self._is_ready.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._end = trio.Event()
        async with trio.open_nursery() as self._nursery:
            self._is_ready.set()
            await self._end.wait()
            self._nursery.cancel_scope.cancel()


def start_loop_thread() -> LoopThread:
    """Start an event loop in a thread, and return the thread. The caller must close it."""
    loop = LoopThread()
    loop.start()
    return loop


@contextmanager
def open_loop_thread() -> Iterator[LoopThread]:
    """Run an event loop in a thread during the `with` block. Yields the `LoopThread`."""
    loop = start_loop_thread()
    try:
        yield loop
    finally:
        loop.close()
