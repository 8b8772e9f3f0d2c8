"""A background thread with a trio event loop, which runs the trio clients of one asyncio event
loop.

`TrioThread.run` runs an async function of trio, and returns its result or raises its error in the
calling asyncio task. Cancelling that task cancels the function and waits for its end. `keep` keeps
an async context manager of trio open. The thread ends when its last client is closed, or within
`LOOK_S` seconds after the asyncio loop was closed.

In simulations, the asyncio event loop runs within a trio task (`EmbeddedLoop`). Then no thread is
needed: `TrioTasks` runs the trio clients in other tasks of the same trio event loop.

Waking the event loop of another thread costs far more than a function call. Calls to the other
thread that are made before its event loop has woken up therefore share one wake-up (`Mailbox`).
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import trio

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOOK_S = 1.0
"""Seconds between checks whether the asyncio event loop has been closed. The checks are necessary
because asyncio sends no notification."""
CALLS_PER_TURN = 256
"""Maximum number of calls from the other thread that an event loop makes before it runs other
tasks."""


class ClientClosedError(RuntimeError):
    """Error if a client is used after the end of its `async with` block."""

    def __init__(self) -> None:
        super().__init__("the client is closed: use it within its `async with` block")


class Mailbox:
    """Queue of function calls from one thread to the event loop of another thread. One wake-up
    delivers all queued calls.

    `wake` schedules `deliver` in the other thread. It may raise an error if the event loop of that
    thread has ended.
    """

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_waking = False

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Queue a call of `function` behind all calls that were posted earlier. The function must
        not raise an exception."""
        self._calls.append((function, args))
        # `deliver` clears the mark before it reads the queue, so no call is left behind.
        if not self._is_waking:
            self._is_waking = True
            try:
                self._wake(self.deliver)
            except BaseException:
                self._is_waking = False
                raise

    def deliver(self) -> None:
        """Call the queued functions, in the receiving thread. After `CALLS_PER_TURN` calls, other
        tasks run first."""
        self._is_waking = False
        for _ in range(CALLS_PER_TURN):
            try:
                function, args = self._calls.popleft()
            except IndexError:
                return
            function(*args)
        if self._calls and not self._is_waking:
            self._is_waking = True
            self._wake(self.deliver)


class Call(Generic[T]):
    """A call from an asyncio task to a function in trio's thread, and its result. The result is set
    once, in asyncio's thread."""

    __slots__ = ("_failure", "_future", "_loop", "_value", "is_settled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_settled = False
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()
        self._value: T
        self._failure: Exception | None = None

    def settle(self, value: Any, failure: Exception | None) -> None:
        """Set the result or the error of the call. Only the first `settle` of a call has an
        effect."""
        if self.is_settled:
            return
        self.is_settled = True
        self._value, self._failure = value, failure
        if not self._future.done():
            self._future.set_result(None)

    @property
    def has_failed(self) -> bool:
        """True if the call has ended with an error."""
        return self._failure is not None

    def result(self) -> T:
        """Return the result of the call, or raise its error. The caller must first wait until
        `settle` was called."""
        if self._failure is not None:
            raise self._failure
        return self._value

    async def wait(self) -> None:
        """Wait until the result of the call is set. If the waiting task was cancelled in this
        method, it may wait again."""
        if self._future.cancelled():
            self._future = self._loop.create_future()
        if not self.is_settled:
            await self._future


class _BlockFailedError(Exception):
    """Error that is raised inside a trio context manager if the application's block ended with an
    error. The application receives its own error instead."""


class KeptManager(Generic[T_co]):
    """A trio context manager that is kept open in trio's thread. When it closes, pending calls to
    the object that it manages are cancelled."""

    def __init__(self, manager: AbstractAsyncContextManager[T_co]) -> None:
        self.value: T_co
        self.is_open = False
        self.is_closed = False
        self._manager = manager
        self._nursery: trio.Nursery | None = None
        self._release = trio.Event()
        self._has_failed = False
        self.on_close: dict[object, Callable[[], None]] = {}
        """Functions to call when the context manager closes, by the object that registered each
        function."""

    async def hold(self, on_open: Callable[[], None]) -> None:
        """Enter the context manager, wait for `release`, and exit it. One task does all of this, as
        trio requires."""
        try:
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
        finally:
            self.is_closed = True
            while self.on_close:
                self.on_close.popitem()[1]()

    def release(self, has_failed: bool) -> None:
        """Ask `hold` to exit the context manager. If `has_failed` is True, the context manager is
        exited with an error."""
        self._has_failed = has_failed
        self._release.set()

    def start(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Start `work` in trio's thread, as a task that is cancelled when the context manager
        closes. Returns False if the context manager is closing or closed."""
        if self.is_open and self._nursery is not None:
            self._nursery.start_soon(work)
        return self.is_open


class TrioThread:
    """Background thread whose trio event loop runs the trio clients of one asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.client_count = 0
        self._loop = loop
        self._to_trio = Mailbox(self._wake_trio)
        self._to_asyncio = Mailbox(lambda deliver: loop.call_soon_threadsafe(deliver))
        self._pending: set[Call[Any]] = set()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._token: trio.lowlevel.TrioToken
        self._nursery: trio.Nursery
        self._stop: trio.Event
        self._start()

    async def ready(self) -> None:
        """Wait until the trio event loop in the thread runs."""
        await asyncio.shield(self._ready)

    def stop(self) -> None:
        """Stop the trio event loop, so that the thread ends."""
        with suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stop.set)

    async def run(
        self,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        kept: KeptManager[Any] | None = None,
        on_unclaimed: Callable[[T], None] | None = None,
    ) -> T:
        """Run an async function in trio's thread, and return its result.

        If `kept` is not None, the function is cancelled when that context manager closes. If the
        asyncio task was cancelled before the result arrived, `on_unclaimed` is called with the
        result.
        """
        call: Call[T] = Call(self._loop)
        scope = trio.CancelScope()

        async def work() -> None:
            value: Any = None
            failure: Exception | None = ClientClosedError()
            try:
                with scope:
                    try:
                        value, failure = await function(*args), None
                    except Exception as error:
                        failure = error  # raised in the calling asyncio task instead
            finally:
                self.post(call.settle, value, failure)

        def start() -> None:
            if kept is None:
                self._nursery.start_soon(work)
            elif not kept.start(work):
                self.post(call.settle, None, ClientClosedError())

        self.call_soon(contextvars.copy_context().run, start)
        return await self.result_of(call, scope.cancel, on_unclaimed)

    async def keep(self, manager: AbstractAsyncContextManager[T]) -> tuple[KeptManager[T], Any]:
        """Enter a context manager in trio's thread. Returns its `KeptManager`, and a future that is
        done when the context manager has closed."""
        kept = KeptManager(manager)
        opened: asyncio.Future[None] = self._loop.create_future()
        end = asyncio.ensure_future(self.run(kept.hold, lambda: self.post(_set_done, opened)))
        try:
            await asyncio.wait((opened, end), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            end.cancel()
            await asyncio.wait((end,))
            raise
        if not opened.done():
            end.result()
        return kept, end

    async def close(
        self, kept: KeptManager[Any], end: "asyncio.Future[None]", has_failed: bool
    ) -> None:
        """Exit an open context manager and wait until it has closed. If closing fails, raises its
        error."""
        with suppress(ClientClosedError):
            self.call_soon(kept.release, has_failed)
        try:
            await asyncio.wait((end,))
        except asyncio.CancelledError:
            end.cancel()
            await asyncio.wait((end,))
            raise
        end.result()

    async def call_back(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run an async function in the asyncio event loop and wait for its end. The caller is a
        trio task."""
        done, failures, tasks = trio.Event(), [], []

        async def work() -> None:
            try:
                await function(*args)
            except Exception as error:
                failures.append(error)
            finally:
                with suppress(ClientClosedError):
                    self.call_soon(done.set)

        self.post(lambda: tasks.append(self._loop.create_task(work())))
        try:
            await done.wait()
        except trio.Cancelled:
            self.post(lambda: [task.cancel() for task in tasks])
            raise
        for failure in failures:
            raise failure

    async def result_of(
        self,
        call: Call[T],
        cancel: Callable[[], object],
        on_unclaimed: Callable[[T], None] | None = None,
    ) -> T:
        """Wait for the end of a call, and return its result or raise its error.

        If the asyncio task is cancelled, `cancel` is called in trio's thread, and the method still
        waits until the call has ended.
        """
        self._pending.add(call)
        cancelled: asyncio.CancelledError | None = None
        try:
            while True:
                try:
                    await call.wait()
                    break
                except asyncio.CancelledError as error:
                    cancelled = error
                    if call.is_settled:
                        break
                    with suppress(ClientClosedError):
                        self.call_soon(cancel)
        finally:
            self._pending.discard(call)
        if cancelled is not None:
            if not call.has_failed and on_unclaimed is not None:
                on_unclaimed(call.result())
            raise cancelled
        return call.result()

    def call_soon(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a call of `function` in trio's thread. The function must not raise an exception.

        Raises ClientClosedError if the thread has ended.
        """
        try:
            self._to_trio.post(function, *args)
        except trio.RunFinishedError:
            raise ClientClosedError from None

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a call of `function` in the asyncio event loop. The function must not raise an
        exception. Does nothing if that event loop is closed."""
        # Nothing waits for the call if the loop is closed.
        with suppress(RuntimeError):
            self._to_asyncio.post(function, *args)

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._main, name="ottla.client.aio", daemon=True)
        self._thread.start()

    def _wake_trio(self, deliver: Callable[[], None]) -> None:
        self._token.run_sync_soon(deliver)

    def _main(self) -> None:
        try:
            trio.run(self._serve)
        finally:
            self.post(self._fail_pending)

    def _fail_pending(self) -> None:
        for call in self._pending:
            call.settle(None, ClientClosedError())

    async def _serve(self) -> None:
        self._token, self._stop = trio.lowlevel.current_trio_token(), trio.Event()
        async with trio.open_nursery() as self._nursery:
            self.post(_set_done, self._ready)
            while not self._stop.is_set() and not self._loop.is_closed():
                with trio.move_on_after(LOOK_S):
                    await self._stop.wait()
            self._nursery.cancel_scope.cancel()


@runtime_checkable
class EmbeddedLoop(Protocol):
    """Interface of an asyncio event loop that itself runs within a trio task."""

    def start_trio_task(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a trio task that ends at the latest with this event loop."""
        ...


class TrioTasks(TrioThread):
    """Trio tasks for the trio clients of an asyncio event loop that runs in the same trio program.

    The class has the interface of `TrioThread`, but uses no thread.
    """

    def stop(self) -> None:
        """Ask the trio tasks to stop. Does not wait for their end."""
        self._stop.set()

    def _start(self) -> None:
        assert isinstance(self._loop, EmbeddedLoop)
        self._loop.start_trio_task(self._serve_and_fail)

    def _wake_trio(self, deliver: Callable[[], None]) -> None:
        deliver()

    async def _serve_and_fail(self) -> None:
        try:
            await self._serve()
        finally:
            self.post(self._fail_pending)


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
