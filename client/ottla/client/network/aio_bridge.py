"""Wrappers that make trio clients usable in asyncio programs. The trio client runs in a background
thread."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import trio

from ottla.client.network.trio_thread import EmbeddedLoop, KeptManager, TrioTasks, TrioThread

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, TrioThread] = WeakKeyDictionary()


class Bridge(Generic[T_co]):
    """Base class of asyncio clients. Each wraps a trio client that is open in a background
    thread."""

    def __init__(self, thread: TrioThread, kept: KeptManager[T_co]) -> None:
        self._thread = thread
        self._kept = kept

    async def _run(self, function: Callable[..., Awaitable[R]], *args: Any) -> R:
        return await self._thread.run(function, *args, kept=self._kept)


def asked(
    method: Callable[Concatenate[T, P], Awaitable[R]],
) -> Callable[Concatenate[Bridge[T], P], Coroutine[Any, Any, R]]:
    """Wrap an async method of a trio client as an async method of the asyncio client."""

    async def call(self: Bridge[T], /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def ask() -> R:
            return await method(self._kept.value, *args, **kwargs)

        return await self._run(ask)

    call.__name__, call.__doc__ = method.__name__, method.__doc__
    call.__wrapped__ = method  # type: ignore[attr-defined]  # inspect reads it
    return call


def done(
    method: Callable[Concatenate[T, P], R],
) -> Callable[Concatenate[Bridge[T], P], Coroutine[Any, Any, R]]:
    """Wrap a synchronous method of a trio client as an async method of the asyncio client."""

    async def ask(client: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(client, *args, **kwargs)

    ask.__name__, ask.__doc__ = method.__name__, method.__doc__
    ask.__wrapped__ = method  # type: ignore[attr-defined]  # inspect reads it
    return asked(ask)


@asynccontextmanager
async def borrowed_thread() -> AsyncIterator[TrioThread]:
    """Yield the background thread that runs trio for the current asyncio event loop.

    The thread starts when the first client is opened and ends when the last client is closed. In an
    event loop that runs within trio (`EmbeddedLoop`), trio tasks replace the thread. Raises
    RuntimeError in a trio program.
    """
    running = asyncio._get_running_loop()
    is_embedded = isinstance(running, EmbeddedLoop)
    if trio.lowlevel.in_trio_run() and not is_embedded:
        raise RuntimeError("this is the client for asyncio; with trio import it from ottla.client")
    loop = asyncio.get_running_loop()
    thread = _threads.get(loop)
    if thread is None:
        _forget_closed_loops()
        thread = _threads[loop] = TrioTasks(loop) if is_embedded else TrioThread(loop)
    thread.client_count += 1
    try:
        await thread.ready()
        yield thread
    finally:
        thread.client_count -= 1
        if not thread.client_count:
            _threads.pop(loop, None)
            thread.stop()


def _forget_closed_loops() -> None:
    """Remove the threads of event loops that were closed while a client was open. Otherwise,
    neither the thread nor its event loop would ever be freed."""
    for loop in [loop for loop in _threads if loop.is_closed()]:
        del _threads[loop]


@asynccontextmanager
async def opened(
    manager: AbstractAsyncContextManager[T],
) -> AsyncIterator[tuple[TrioThread, KeptManager[T]]]:
    """Open a trio client in the background thread of the running asyncio event loop. Yields the
    thread, and the `KeptManager` that keeps the client open."""
    async with borrowed_thread() as thread, kept_open(thread, manager) as kept:
        yield thread, kept


@asynccontextmanager
async def kept_open(
    thread: TrioThread, manager: AbstractAsyncContextManager[T]
) -> AsyncIterator[KeptManager[T]]:
    """Keep an async context manager of trio open, in trio's thread, during the caller's block.
    Yields the `KeptManager` of the context manager.

    If the block raises an error, the context manager is also exited with an error.
    """
    kept, end = await thread.keep(manager)
    try:
        yield kept
    except BaseException:
        await thread.close(kept, end, True)
        raise
    await thread.close(kept, end, False)
