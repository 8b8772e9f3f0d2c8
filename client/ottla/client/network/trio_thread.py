"""A trio loop in a thread of its own, for the clients of one asyncio loop.

`TrioThread.run` runs an async function of trio and gives its result, or raises its error, in the
asyncio task that asked.  Cancelling that task cancels the function, and waits for its end: nothing
goes on behind.  `keep` holds an async context manager of trio open.  The thread ends with its last
client, or within `LOOK_S` once the asyncio loop is closed.

Waking a loop costs far more than a call: what is asked while one is being woken shares the wake-up,
in either direction (`Mailbox`).
"""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

import trio

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LOOK_S = 1.0
"""How often the thread looks whether its asyncio loop is closed: a loop does not say so."""
CALLS_PER_TURN = 256
"""Calls of the other loop that are made before tasks of this one get their turn."""


class ClientClosedError(RuntimeError):
    """The client was used after the end of its `async with` block."""

    def __init__(self) -> None:
        super().__init__("the client is closed: use it within its `async with` block")


class Mailbox:
    """Calls from one thread to the loop of another, where all that have come are made at once.

    `wake` has `deliver` called in the other thread, soon; it may raise if that loop has ended.
    """

    def __init__(self, wake: Callable[[Callable[[], None]], object]) -> None:
        self._wake = wake
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._is_waking = False

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called that does not raise, after all that were posted before."""
        self._calls.append((function, args))
        # The reader clears the mark before it looks: a call is never left lying.
        if not self._is_waking:
            self._is_waking = True
            try:
                self._wake(self.deliver)
            except BaseException:
                self._is_waking = False
                raise

    def deliver(self) -> None:
        """Make the calls that have come, as far as others need not wait for it."""
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
    """A call that was asked for in the asyncio loop; it is settled there once."""

    __slots__ = ("_failure", "_future", "_loop", "_value", "is_settled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.is_settled = False
        self._loop = loop
        self._future: asyncio.Future[None] = loop.create_future()
        self._value: T
        self._failure: Exception | None = None

    def settle(self, value: Any, failure: Exception | None) -> None:
        """Say what became of it; the first word holds."""
        if self.is_settled:
            return
        self.is_settled = True
        self._value, self._failure = value, failure
        if not self._future.done():
            self._future.set_result(None)

    @property
    def has_failed(self) -> bool:
        """Whether it was settled by an error."""
        return self._failure is not None

    def result(self) -> T:
        """Return its value, or raise its error; it must be settled."""
        if self._failure is not None:
            raise self._failure
        return self._value

    async def wait(self) -> None:
        """Wait until it is settled; a cancelled task may wait again."""
        if self._future.cancelled():
            self._future = self._loop.create_future()
        if not self.is_settled:
            await self._future


class _BlockFailedError(Exception):
    """The application's block ended by an error, which the application itself knows."""


class Kept(Generic[T_co]):
    """An open context manager of trio; the calls of its value end with it."""

    def __init__(self, manager: AbstractAsyncContextManager[T_co]) -> None:
        self.value: T_co
        self.is_open = False
        self.is_closed = False
        self._manager = manager
        self._nursery: trio.Nursery | None = None
        self._release = trio.Event()
        self._has_failed = False
        self.on_close: dict[object, Callable[[], None]] = {}
        """What is called once it has closed, by whatever it belongs to."""

    async def hold(self, on_open: Callable[[], None]) -> None:
        """Open, wait for `release`, close: in one task, as trio demands."""
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
        self._to_trio = Mailbox(lambda deliver: self._token.run_sync_soon(deliver))
        self._to_asyncio = Mailbox(lambda deliver: loop.call_soon_threadsafe(deliver))
        self._pending: set[Call[Any]] = set()
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
                        failure = error  # it belongs to the task that asked
            finally:
                self.post(call.settle, value, failure)

        def start() -> None:
            if kept is None:
                self._nursery.start_soon(work)
            elif not kept.start(work):
                self.post(call.settle, None, ClientClosedError())

        self.call_soon(contextvars.copy_context().run, start)
        return await self.result_of(call, scope.cancel, on_unclaimed)

    async def keep(self, manager: AbstractAsyncContextManager[T]) -> tuple[Kept[T], Any]:
        """Open a context manager; return it, and the future of its end."""
        kept = Kept(manager)
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

    async def close(self, kept: Kept[Any], end: "asyncio.Future[None]", has_failed: bool) -> None:
        """Close what is kept open; raise what its closing raises."""
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
        """Run an async function of asyncio from a task of trio, to its end."""
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
        """Return what became of a call; `cancel` is called in trio's thread when its task is.

        The call is waited for nevertheless.
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
        """Call a function that does not raise in trio's thread.

        Raises ClientClosedError if the thread has ended.
        """
        try:
            self._to_trio.post(function, *args)
        except trio.RunFinishedError:
            raise ClientClosedError from None

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Call a function that does not raise in the asyncio loop, if that still runs."""
        # A closed loop waits for no answer.
        with suppress(RuntimeError):
            self._to_asyncio.post(function, *args)

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


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
