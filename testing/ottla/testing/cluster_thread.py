"""A thread that runs a cluster in its own trio event loop. Other threads call functions in that
loop."""

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from threading import Thread
from typing import TypeVar

import trio

from ottla.client.testing import ClusterUnderTest

T = TypeVar("T")

OpenCluster = Callable[[], AbstractAsyncContextManager[ClusterUnderTest]]


class ClusterThread:
    """The thread that runs one cluster. Its methods block, and may be called from any other thread.

    Methods raise RuntimeError if the cluster has ended, or if the calling thread itself runs a trio
    event loop. Tests that use trio use `ottla.client.testing` instead.
    """

    def __init__(self, open_cluster: OpenCluster) -> None:
        self._open_cluster = open_cluster
        self._opened: Future[ClusterUnderTest] = Future()
        self._ending = trio.Event()
        self._token: trio.lowlevel.TrioToken | None = None
        self._error: BaseException | None = None
        # A daemon thread, so that an interrupted test run can end although the cluster is still
        # running.
        self._thread = Thread(target=self._run, name="ottla-cluster", daemon=True)

    def start(self) -> ClusterUnderTest:
        """Start the cluster, and return it when its brokers accept requests. Raises the cluster's
        error if the cluster cannot start."""
        self._thread.start()
        return self._opened.result()

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run an async function in the cluster's event loop. Returns the function's result or
        raises its error."""
        try:
            return trio.from_thread.run(function, *arguments, trio_token=self._running_token())
        except (trio.RunFinishedError, trio.Cancelled):
            raise self._ended_error() from self._error

    def call_sync(self, function: Callable[..., T], *arguments: object) -> T:
        """Run a synchronous function in the cluster's event loop. Returns the function's result or
        raises its error."""
        try:
            return trio.from_thread.run_sync(function, *arguments, trio_token=self._running_token())
        except (trio.RunFinishedError, trio.Cancelled):
            raise self._ended_error() from self._error

    def close(self) -> None:
        """Stop the cluster and wait until its thread has ended. Raises the error with which the
        cluster ended, if there was one."""
        if self._thread.is_alive() and self._token is not None:
            with suppress(trio.RunFinishedError):  # it ended by itself; its error follows
                self._token.run_sync_soon(self._ending.set)
        self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _running_token(self) -> trio.lowlevel.TrioToken:
        if trio.lowlevel.in_trio_run():
            raise RuntimeError(
                "this call would block the trio loop; use ottla.client.testing there"
            )
        if self._token is None or not self._thread.is_alive():
            raise self._ended_error()
        return self._token

    def _ended_error(self) -> RuntimeError:
        return RuntimeError("the cluster is not running; was it closed?")

    def _run(self) -> None:
        try:
            trio.run(self._serve)
        except BaseException as error:  # The thread's owner raises it.
            if self._opened.done():
                self._error = error
            else:
                self._opened.set_exception(error)

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        async with self._open_cluster() as cluster:
            self._opened.set_result(cluster)
            await self._ending.wait()
