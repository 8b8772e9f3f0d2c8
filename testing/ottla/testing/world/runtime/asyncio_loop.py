"""asyncio's event loop for one life of an instance: virtual time, and the same order in every run.

A trio task of the instance's simulated machine drives the loop. It runs the ready callbacks in the
order in which they became ready, and then waits at a checkpoint of trio for the next timer or for
bytes from the simulated network. asyncio's running loop is set only while callbacks run. There is
no selector and no thread. A life whose machine was killed is never driven again; `AbandonedLives`
keeps its objects, so that no `finally` block of it runs before the end of the world's run.
"""

import asyncio
import contextvars
import heapq
import logging
import socket
import sys
import traceback
import weakref
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, TypeVar, TypeVarTuple, Unpack

import sniffio
import trio

from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.world.whole.net.streams import Stream
from ottla.testing.world.errors import NotInWorldError
from ottla.testing.world.runtime.asyncio_refusals import RefusingEventLoop
from ottla.testing.world.runtime.asyncio_streams import StreamTransport
from ottla.testing.world.runtime.asyncio_tasks import StableFuture, StableTask

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURNS_PER_INSTANT_MAX = 1_000
"""Number of consecutive iterations of a loop in the same virtual instant after which virtual time
advances by `SPIN_S`. Otherwise a program that polls with `asyncio.sleep(0)` would never end."""
SPIN_S = 0.001
TASKS_BEFORE_PRUNING = 256
"""Number of referenced tasks at which the loop begins to release completed tasks."""
CLOSES_MAX = 8
"""Largest number of attempts to close a coroutine of a killed program. Each `await` in a `finally`
block fails one attempt."""

logger = logging.getLogger("asyncio")

Program = Callable[[], Awaitable[object]]


class WorldEventLoop(RefusingEventLoop):
    """The asyncio event loop of one life of an instance. `drive` runs it within a trio task."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        """Nursery of the trio tasks that work for this loop. It ends with the loop."""
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled_timer_count = 0
        self._number = 0
        self._task_number = 0
        self._wake: trio.Event | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = TASKS_BEFORE_PRUNING
        self._generators: dict[int, weakref.ref[AsyncGenerator[Any, Any]]] = {}
        self._lost_generators: list[AsyncGenerator[Any, Any]] = []
        """Async generators that lost their last reference after the instance's program had ended or
        was killed. They are kept, so that none of their code runs."""
        self._signals: dict[int, asyncio.Handle] = {}
        self._task_factory: Any = None
        self._exception_handler: Any = None
        self._is_debug = False
        self._is_closed = False
        self._is_over = False
        self._turns_at = (-1.0, 0)
        self.unraised: BaseException | None = None
        """SystemExit or KeyboardInterrupt that a callback raised, which ends the program."""

    # ---- driving

    async def drive(self, program: Program, is_stopping: trio.Event | None = None) -> object:
        """Run a program to its end and return its result, as `asyncio.run` does.

        When `is_stopping` is set, the program is asked to stop: by its handler of SIGTERM or
        SIGINT, or else by cancelling it. Then the result is None.
        """

        async def main() -> object:
            return await program()

        stopper = _Stopper()
        try:
            task = self._call(lambda: self.create_task(main()))
            if is_stopping is not None:
                self.nursery.start_soon(self._stop_when, is_stopping, task, stopper)
            await self._drive_until(task)
            left = [other for other in self._tasks if not other.done()]
            for other in left:
                self._call(other.cancel)
            for other in left:
                await self._drive_until(other)
            closing = self._call(lambda: self.create_task(self.shutdown_asyncgens()))
            await self._drive_until(closing)
        except BaseException:
            # The machine's process has ended, or the run: no callback may run after it.
            self.abandon()
            raise
        self._is_closed = self._is_over = True
        if task.cancelled():
            if stopper.has_cancelled:
                return None
            raise asyncio.CancelledError
        return task.result()

    def abandon(self) -> None:
        """End this loop immediately. No callback, `finally` block or destructor runs afterwards."""
        if self._is_over:
            return
        self._is_over = self._is_closed = True
        for task in self._tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own
        if self._tasks:
            ABANDONED.add(self)

    def close_coroutines(self) -> None:
        """Close the coroutines of all tasks of an abandoned loop and release their objects, so that
        none is left for a later garbage collection. Errors of `finally` blocks are ignored."""
        for task in self._tasks:
            coroutine: Any = task.get_coro()
            for _ in range(CLOSES_MAX):
                try:
                    coroutine.close()
                    break
                except (Exception, SystemExit, asyncio.CancelledError):
                    continue
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()

    async def _drive_until(self, future: "asyncio.Future[Any]") -> None:
        while not future.done():
            if self._ready or self._has_due_timer():
                self._call(self._turn)
                if self.unraised is not None:
                    raise self.unraised
                await self._pass_on()
                continue
            self._wake = trio.Event()
            deadline = self._timers[0][0] if self._timers else float("inf")
            with trio.CancelScope(deadline=deadline):
                await self._wake.wait()
            self._wake = None

    async def _pass_on(self) -> None:
        """Yield to other tasks of the simulation. After `TURNS_PER_INSTANT_MAX` iterations of this
        loop at the same virtual time, advance virtual time by `SPIN_S`."""
        at_s, count = self._turns_at
        now_s = trio.current_time()
        self._turns_at = (now_s, count + 1 if at_s == now_s else 0)
        if count >= TURNS_PER_INSTANT_MAX:
            self._turns_at = (now_s, 0)
            await trio.sleep(SPIN_S)
        else:
            await trio.lowlevel.checkpoint()

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function while this loop is asyncio's running loop."""
        before = sys.get_asyncgen_hooks()
        library, sniffio.thread_local.name = sniffio.thread_local.name, "asyncio"
        sys.set_asyncgen_hooks(firstiter=self._on_generator, finalizer=self._on_lost_generator)
        running = events._get_running_loop()
        events._set_running_loop(self)
        try:
            return function()
        finally:
            events._set_running_loop(running)
            sys.set_asyncgen_hooks(*before)
            sniffio.thread_local.name = library

    def _has_due_timer(self) -> bool:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
            self._cancelled_timer_count -= 1
        return bool(timers) and timers[0][0] <= self.time()

    def _turn(self) -> None:
        """Run one iteration: the callbacks that are ready now. Callbacks that they schedule run in
        the next iteration."""
        now_s = self.time()
        timers = self._timers
        if self._cancelled_timer_count > 100 and self._cancelled_timer_count * 2 > len(timers):
            timers[:] = [one for one in timers if not one[2].cancelled()]
            heapq.heapify(timers)
            self._cancelled_timer_count = 0
        while timers and timers[0][0] <= now_s:
            timer = heapq.heappop(timers)[2]
            if timer.cancelled():
                self._cancelled_timer_count -= 1
            else:
                timer._scheduled = False  # type: ignore[attr-defined]  # as asyncio's loop does
                self._ready.append(timer)
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.cancelled():
                continue
            try:
                handle._run()
            except (SystemExit, KeyboardInterrupt) as error:
                self.unraised = error
                return

    async def _stop_when(
        self, is_stopping: trio.Event, task: "asyncio.Task[object]", stopper: "_Stopper"
    ) -> None:
        await is_stopping.wait()
        for number in (15, 2):  # SIGTERM, SIGINT
            handle = self._signals.get(number)
            if handle is not None:
                self.post(handle._run)
                return
        stopper.has_cancelled = True
        self.post(task.cancel)

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Schedule a call from outside the loop's callbacks, such as from the simulated network.
        Does nothing if the loop has ended."""
        if self._is_over:
            return
        self._ready.append(asyncio.Handle(function, args, self))
        self._wake_up()

    def next_number(self) -> int:
        """Return the next number for a future or task of this loop."""
        self._number += 1
        return self._number

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()

    # ---- asyncio's interface

    def run_forever(self) -> None:
        """Raise an error, because the simulation drives the event loop."""
        raise NotInWorldError("the world drives this event loop: start the program as a coroutine")

    def run_until_complete(self, future: Any) -> Any:
        """Raise an error, because the simulation drives the event loop."""
        if asyncio.iscoroutine(future):
            future.close()
        raise NotInWorldError("the world drives this event loop: await the coroutine instead")

    def stop(self) -> None:
        """Raise an error, because the simulation drives the event loop."""
        raise NotInWorldError("the world drives this event loop: return from the program instead")

    def is_running(self) -> bool:
        """Return True until the program of this event loop has ended."""
        return not self._is_over

    def is_closed(self) -> bool:
        """Return whether the program has returned or was killed."""
        return self._is_closed

    def close(self) -> None:
        """Raise an error, because the simulation closes the event loop."""
        raise NotInWorldError("the world closes this event loop when the program returns")

    async def shutdown_asyncgens(self) -> None:
        """Close all async generators that are not exhausted."""
        found = [reference() for reference in self._generators.values()]
        generators = [generator for generator in found if generator is not None]
        self._generators.clear()
        results = await asyncio.gather(
            *(generator.aclose() for generator in generators), return_exceptions=True
        )
        for result, generator in zip(results, generators, strict=True):
            if isinstance(result, Exception):
                self.call_exception_handler(
                    {
                        "message": f"an error while closing {generator!r}",
                        "exception": result,
                        "asyncgen": generator,
                    }
                )

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing, because there is no executor."""

    def time(self) -> float:
        """Return the virtual time in seconds since the start of the run."""
        return trio.current_time()

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call a function in the next iteration of the event loop."""
        handle = asyncio.Handle(callback, args, self, context)
        if not self._is_over:
            self._ready.append(handle)
            self._wake_up()
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Call a function in the next iteration of the event loop, like `call_soon`. Raises
        RuntimeError if the loop is closed."""
        if self._is_over:
            raise RuntimeError("Event loop is closed")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function after a delay in virtual seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call a function at a virtual time in seconds."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self._is_over:
            heapq.heappush(self._timers, (when, self.next_number(), timer))
            timer._scheduled = True  # type: ignore[attr-defined]  # as asyncio's loop does
            self._wake_up()
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        if handle._scheduled:  # type: ignore[attr-defined]  # as asyncio's loop does
            self._cancelled_timer_count += 1

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a new future, whose hash is the same in every run."""
        return StableFuture(loop=self)

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> "asyncio.Task[T]":
        """Start a task for a coroutine. Its default name is its number in this loop."""
        if self._is_over:
            raise RuntimeError("Event loop is closed")
        if name is None:
            self._task_number += 1
            name = f"Task-{self._task_number}"
        task: asyncio.Task[T]
        if self._task_factory is not None:
            task = self._task_factory(self, coro, context=context, **options)
            task.set_name(name)
        else:
            task = StableTask(coro, loop=self, name=name, context=context, **options)
        # asyncio has weak references only, so that garbage collection could drop a task.
        self._tasks.append(task)
        if len(self._tasks) >= self._prune_at:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._prune_at = max(TASKS_BEFORE_PRUNING, 2 * len(self._tasks))
        return task

    def set_task_factory(self, factory: Any) -> None:
        """Set the function that creates tasks. None restores the default."""
        self._task_factory = factory

    def get_task_factory(self) -> Any:
        """Return the function that creates tasks, or None."""
        return self._task_factory

    def run_in_executor(
        self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> "asyncio.Future[T]":
        """Call a function at once. The call takes no virtual time, because there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except StopIteration as error:
            future.set_exception(RuntimeError(f"the function raised {error!r}"))
        except Exception as error:
            future.set_exception(error)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """Do nothing, because functions of executors are called at once."""

    def get_exception_handler(self) -> Any:
        """Return the program's exception handler, or None."""
        return self._exception_handler

    def set_exception_handler(self, handler: Any) -> None:
        """Set the exception handler. None restores the default."""
        self._exception_handler = handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Log an error that a callback of the event loop raised."""
        error = context.get("exception")
        logger.error(context.get("message") or "unhandled exception", exc_info=error)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an error that a callback of the event loop raised to the exception handler."""
        if self._is_over:
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
            return
        try:
            self._exception_handler(self, context)
        except Exception as error:
            self.default_exception_handler(
                {"message": "the exception handler has failed", "exception": error}
            )

    def get_debug(self) -> bool:
        """Return whether asyncio's debug mode is on."""
        return self._is_debug

    def set_debug(self, enabled: bool) -> None:
        """Turn asyncio's debug mode on or off."""
        self._is_debug = enabled

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> None:
        """Register a function that is called when the simulation asks the instance to stop. The
        simulation sends SIGTERM, or SIGINT if SIGTERM has no handler."""
        self._signals[int(sig)] = asyncio.Handle(callback, args, self)

    def remove_signal_handler(self, sig: int) -> bool:
        """Remove the handler of a signal. Returns False if the signal has no handler."""
        return self._signals.pop(int(sig), None) is not None

    # ---- the simulated network

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> list[Any]:
        """Return the address of a simulated machine, which is its name."""
        name = host.decode() if isinstance(host, bytes) else host
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, int(port or 0)))]

    async def getnameinfo(self, sockaddr: Any, flags: int = 0) -> tuple[str, str]:
        """Return the name and the port of a simulated machine's address."""
        return sockaddr[0], str(sockaddr[1])

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        """Connect to a simulated machine. Returns the transport and its protocol."""
        if options.get("ssl"):
            raise NotInWorldError("listeners of the world are not encrypted: connect without TLS")
        if host is None or options.get("sock") is not None:
            raise NotInWorldError("a world has no sockets: connect to a host and a port of it")
        stream = await self.run_in_trio(TRANSPORT.get().connect, str(host), int(port))
        assert isinstance(stream, Stream)
        protocol = protocol_factory()
        transport = StreamTransport(self, stream, protocol)
        await asyncio.sleep(0)  # the protocol's `connection_made` is called before the return
        return transport, protocol

    async def run_in_trio(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Run an async function of trio in a trio task of this life, and return its result. If the
        asyncio task is cancelled, the function is cancelled, and the call waits for its end."""
        scope = trio.CancelScope()
        future: asyncio.Future[T] = self.create_future()

        async def work() -> None:
            with scope:
                try:
                    value = await function(*args)
                except Exception as error:
                    self.post(_set_exception, future, error)
                else:
                    self.post(_set_result, future, value)
                return
            self.post(future.cancel)

        self.nursery.start_soon(work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            scope.cancel()
            if not future.done():
                await asyncio.wait((future,))
            if not future.cancelled():
                future.exception()  # marks it as seen
            raise

    def start_trio_task(self, function: Callable[[], Awaitable[None]]) -> None:
        """Start a trio task that belongs to this event loop. The task ends with the loop at the
        latest."""
        self.nursery.start_soon(function)

    # ---- async generators

    def _on_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        number = self.next_number()
        self._generators[number] = weakref.ref(
            generator, lambda _: self._generators.pop(number, None)
        )

    def _on_lost_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if self._is_over:
            self._lost_generators.append(generator)
        else:
            self.post(self._close_generator, generator)

    def _close_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        self.create_task(generator.aclose())


class _Stopper:
    """State of a program that was requested to stop: whether its main task was cancelled."""

    def __init__(self) -> None:
        self.has_cancelled = False


class AbandonedLives:
    """Event loops of killed lives, kept until the end of the run.

    Otherwise the garbage collector would close the coroutines of a killed life in the middle of the
    run. Their `finally` blocks would then run in a process that no longer exists.
    """

    def __init__(self) -> None:
        self._loops: list[WorldEventLoop] = []
        self._failures: list[BaseException] = []

    def add(self, loop: WorldEventLoop) -> None:
        """Keep references to a loop and all its tasks until the end of the run."""
        self._loops.append(loop)

    def add_failure(self, error: BaseException) -> None:
        """Store the exception that ended a program. Its traceback refers to the program's local
        variables."""
        self._failures.append(error)

    def clear(self) -> None:
        """Release the event loops and local variables of all ended programs. Called only after the
        end of a run."""
        for loop in self._loops:
            loop.close_coroutines()
        self._loops.clear()
        for failure in self._failures:
            _clear_frames(failure)
        self._failures.clear()


def _clear_frames(error: BaseException) -> None:
    """Clear the local variables in an exception's traceback, and in those of its causes and of the
    exceptions in its group."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        traceback.clear_frames(one.__traceback__)
        left += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            left += one.exceptions


ABANDONED = AbandonedLives()


def _set_result(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


def _set_exception(future: "asyncio.Future[Any]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def closed_loop() -> WorldEventLoop:
    """Return an event loop that has ended. Code in a destructor then finds this loop, and asyncio
    does not create another."""
    loop: Any = WorldEventLoop
    found: WorldEventLoop = loop(None)
    found.abandon()
    return found


@asynccontextmanager
async def open_loop() -> AsyncIterator[WorldEventLoop]:
    """Open an event loop within the current trio task of a simulated machine."""
    async with trio.open_nursery() as nursery:
        # Its type does not show the refused methods, which are added to the class.
        loop: Any = WorldEventLoop
        yield loop(nursery)
        nursery.cancel_scope.cancel()


async def run_asyncio(program: Program, is_stopping: trio.Event | None = None) -> object:
    """Run an asyncio program in the current trio task of a simulated machine, and return its
    result. `is_stopping` asks the program to stop, as SIGTERM would.

    Raises the program's error. Connections use the transport of the task (`TRANSPORT`).
    """
    try:
        async with open_loop() as loop:
            return await loop.drive(program, is_stopping)
    except BaseExceptionGroup as group:
        # The nursery wraps the program's error, even if nothing else failed.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
    raise AssertionError("a nursery does not swallow errors")


async def run_in_trio(function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Run an async function of trio from a task of either runtime, and return its result."""
    loop = events._get_running_loop()
    if isinstance(loop, WorldEventLoop):
        return await loop.run_in_trio(function, *args)
    return await function(*args)
