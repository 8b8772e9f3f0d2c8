"""A trio loop in a thread of its own, for the clients of one asyncio loop.

`TrioThread.run` runs an async function of trio and gives its result, or raises its error, in the
asyncio task that asked.  Cancelling that task cancels the function, and waits for its end: nothing
goes on behind.  `keep` holds an async context manager of trio open.  The thread ends with its last
client, or within `LOOK_S` once the asyncio loop is closed.
"""

import asyncio
import contextvars
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOOK_S = 1.0
"""How often the thread looks whether its asyncio loop is closed: a loop does not say so."""


class ClientClosedError(RuntimeError):
    """The client was used after the end of its `async with` block."""

    def __init__(self) -> None:
        super().__init__("the client is closed: use it within its `async with` block")


class _BlockFailedError(Exception):
    """The application's block ended by an error, which the application itself knows."""


class Kept(Generic[T_co]):
    """An open context manager of trio; the calls of its value end with it."""

    def __init__(self, manager: AbstractAsyncContextManager[T_co]) -> None:
        self.value: T_co
        self.is_open = False
        self._manager = manager
        self._nursery: trio.Nursery | None = None
        self._release = trio.Event()
        self._has_failed = False
        self._on_open: Callable[[], None] = lambda: None

    async def hold(self, on_open: Callable[[], None]) -> None:
        """Open, wait for `release`, close: in one task, as trio demands."""
        with suppress(_BlockFailedError):
            async with self._manager as self.value:
                try:
                    async with trio.open_nursery() as self._nursery:
                        self.is_open = True
                        on_open()
                        await self._release.wait()
                        self.is_open = False
                        self._nursery.cancel_scope.cancel()
                finally:
                    self.is_open = False
                if self._has_failed:
                    raise _BlockFailedError

    def release(self, has_failed: bool) -> None:
        """Let the manager close, by an error or without."""
        self._has_failed = has_failed
        self._release.set()

    def start(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Start a call; return False if it is too late for one."""
        if self.is_open and self._nursery is not None:
            self._nursery.start_soon(work)
        return self.is_open


class TrioThread:
    """The trio loop of one asyncio loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.client_count = 0
        self._loop = loop
        self._pending: set[asyncio.Future[Any]] = set()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._stop: trio.Event
        self._thread = threading.Thread(target=self._main, name="ottla.client.aio", daemon=True)
        self._thread.start()

    async def ready(self) -> None:
        """Wait until the loop runs."""
        await asyncio.shield(self._ready)

    def stop(self) -> None:
        """Let the loop end."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stop.set)

    async def run(
        self,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        kept: Kept[Any] | None = None,
        on_unclaimed: Callable[[T], None] | None = None,
    ) -> T:
        """Run an async function of trio, within what is kept open; return what it returns.

        `on_unclaimed` takes a result that arrived when the asyncio task was cancelled already.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        scope = trio.CancelScope()

        async def work() -> None:
            value: Any = None
            failure: Exception | None = ClientClosedError()
            try:
                with scope:
                    try:
                        value, failure = await function(*args), None
                    except Exception as error:
                        failure = error  # it belongs to the task that asked
            finally:
                self._post(_settle, future, value, failure)

        def start() -> None:
            if kept is None:
                self._nursery.start_soon(work)
            elif not kept.start(work):
                self._post(_settle, future, None, ClientClosedError())

        return await self._wait(future, scope, start, on_unclaimed)

    async def keep(self, manager: AbstractAsyncContextManager[T]) -> tuple[Kept[T], Any]:
        """Open a context manager; return it, and the future of its end."""
        kept = Kept(manager)
        opened: asyncio.Future[None] = self._loop.create_future()
        end = asyncio.ensure_future(
            self.run(kept.hold, lambda: self._post(_settle, opened, None, None))
        )
        try:
            await asyncio.wait((opened, end), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            end.cancel()
            await asyncio.wait((end,))
            raise
        if not opened.done():
            end.result()
        return kept, end

    async def close(self, kept: Kept[Any], end: "asyncio.Future[None]", has_failed: bool) -> None:
        """Close what is kept open; raise what its closing raises."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(kept.release, has_failed)
        try:
            await asyncio.wait((end,))
        except asyncio.CancelledError:
            end.cancel()
            await asyncio.wait((end,))
            raise
        end.result()

    async def call_back(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run an async function of asyncio from a task of trio, to its end."""
        done, failures, tasks = trio.Event(), [], []

        async def work() -> None:
            try:
                await function(*args)
            except Exception as error:
                failures.append(error)
            finally:
                with suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(done.set)

        self._post(lambda: tasks.append(self._loop.create_task(work())))
        try:
            await done.wait()
        except trio.Cancelled:
            self._post(lambda: [task.cancel() for task in tasks])
            raise
        for failure in failures:
            raise failure

    async def _wait(
        self,
        future: "asyncio.Future[T]",
        scope: trio.CancelScope,
        start: Callable[[], None],
        on_unclaimed: Callable[[T], None] | None,
    ) -> T:
        context = contextvars.copy_context()
        try:
            self._token.run_sync_soon(context.run, start)
        except trio.RunFinishedError:
            raise ClientClosedError from None
        self._pending.add(future)
        cancelled: asyncio.CancelledError | None = None
        try:
            while not future.done():
                try:
                    await asyncio.wait((future,))
                except asyncio.CancelledError as error:
                    cancelled = error
                    with suppress(trio.RunFinishedError):
                        self._token.run_sync_soon(scope.cancel)
        finally:
            self._pending.discard(future)
        if cancelled is not None:
            if future.exception() is None and on_unclaimed is not None:
                on_unclaimed(future.result())
            raise cancelled
        return future.result()

    def _post(self, function: Callable[..., Any], *args: Any) -> None:
        # A closed loop waits for no answer.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _main(self) -> None:
        try:
            trio.run(self._serve)
        finally:
            self._post(self._fail_pending)

    def _fail_pending(self) -> None:
        for future in self._pending:
            _settle(future, None, ClientClosedError())

    async def _serve(self) -> None:
        self._token, self._stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with trio.open_nursery() as self._nursery:
            self._post(_settle, self._ready, None, None)
            while not self._stop.is_set() and not self._loop.is_closed():
                with trio.move_on_after(LOOK_S):
                    await self._stop.wait()
            self._nursery.cancel_scope.cancel()


def _settle(future: "asyncio.Future[Any]", value: Any, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(failure)
