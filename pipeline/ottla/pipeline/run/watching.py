"""Watches streaming queries while they run, and stops them between two batches.

Invariants: Every batch is shown once. A query is stopped only between two batches, unless the stop
is requested twice. An interrupted batch does not damage stored data, because the next start repeats
it.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ottla.model.signal_handlers_driver import signal_handlers
from ottla.pipeline.run.progress import BatchProgress, is_batch, progress_of

POLL_S = 0.2
"""Interval in seconds between checks of streaming queries. A check is much cheaper than a batch,
and users do not notice the delay."""


class WatchedQuery(Protocol):
    """Interface of a streaming query: the members of pyspark's StreamingQuery that this module
    uses."""

    @property
    def runId(self) -> Any: ...  # noqa: N802, D102
    @property
    def isActive(self) -> bool: ...  # noqa: N802, D102
    @property
    def status(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802, D102
    @property
    def recentProgress(self) -> list[Any]: ...  # noqa: N802, D102
    def stop(self) -> None: ...  # noqa: D102
    def exception(self) -> Exception | None: ...  # noqa: D102


class QueriesEnding:
    """Request to stop streaming queries after their present batch, or at once. Set by signals or by
    code."""

    def __init__(self) -> None:
        self.after_batch = False
        self.at_once = False

    def ask(self) -> None:
        """Request that the streaming queries stop after their present batch. A second request stops
        them at once."""
        self.at_once = self.after_batch
        self.after_batch = True


class QueryWatch:
    """Watch over streaming queries. It stores the last batch of each query that was shown to the
    user."""

    def __init__(self, show: Callable[[BatchProgress], None], ending: QueriesEnding) -> None:
        self.is_any_active = False
        """True if any of the watched queries was running at the last check."""
        self._show = show
        self._ending = ending
        self._seen: dict[Any, int] = {}
        """Number of the last batch that was shown to the user, by the run id of its query."""
        self._ending_seen: dict[Any, int] = {}
        """Number of the last batch that each query completed before the stop was requested, by the
        query's run id."""

    def look(self, queries: Iterable[WatchedQuery]) -> bool:
        """Show new batches of the watched queries, and stop queries that should end. Returns True
        if any query is still running."""
        is_any_active = False
        for query in queries:
            # Read before the progress, so that the reports before the query's end are not missed.
            is_active = query.isActive
            self._show_new(query)
            if is_active and self._ending.after_batch:
                self._end(query)
            is_any_active |= is_active
        self.is_any_active = is_any_active
        return is_any_active

    def _show_new(self, query: WatchedQuery) -> None:
        run = query.runId
        last = self._seen.get(run)
        newest = query.lastProgress
        if newest is None or newest.batchId == last:
            return
        # Each event costs many calls into the JVM, so all events are read only if one was missed.
        is_next = last is not None and newest.batchId == last + 1
        for report in [newest] if is_next else query.recentProgress:
            event = json.loads(report.json)
            # A trigger without data may also be reported, with the number of the next batch.
            if is_batch(event) and (last is None or event["batchId"] > last):
                last = self._seen[run] = event["batchId"]
                self._show(progress_of(event))

    def _end(self, query: WatchedQuery) -> None:
        run = query.runId
        begun = self._ending_seen.setdefault(run, self._seen.get(run, -1))
        is_between = not query.status["isTriggerActive"] or self._seen.get(run, -1) > begun
        if is_between or self._ending.at_once:
            query.stop()


def follow(
    queries: Iterable[WatchedQuery],
    watch: QueryWatch,
    show_running: Callable[[Iterable[WatchedQuery]], None] = lambda queries: None,
) -> None:
    """Watch streaming queries until all have ended. If a query fails, its error is raised.

    `show_running` is called with the queries after each check, as long as any of them is running.
    """
    kept = list(queries)
    while watch.look(kept):
        show_running(kept)
        time.sleep(POLL_S)
    for query in kept:
        error = query.exception()
        if error is not None:
            raise error


@contextmanager
def watched_aside(find: Callable[[], Iterable[WatchedQuery]], watch: QueryWatch) -> Iterator[None]:
    """Watch all streaming queries in a thread, for a caller that itself waits for the queries."""

    def body(done: threading.Event) -> None:
        known: dict[Any, WatchedQuery] = {}
        while not done.wait(POLL_S):
            known.update((query.runId, query) for query in find())
            watch.look(known.values())
        watch.look(known.values())

    with in_a_thread(body, name="watch"):
        yield


@contextmanager
def in_a_thread(body: Callable[[threading.Event], None], *, name: str) -> Iterator[None]:
    """Run the function `body` in a thread during the `with` block. At the end of the block, sets
    the event that was passed to `body`, and waits for the thread."""
    done = threading.Event()
    thread = threading.Thread(target=body, args=(done,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def asked_by_signals(ending: QueriesEnding, tell: Callable[[], None]) -> Iterator[None]:
    """Treat Ctrl-C and SIGTERM as requests to stop streaming queries after their present batch.

    `tell` is called for each request, at any point of the main thread's code. It must not call
    Spark, because the connection to Spark may be in the middle of another call.
    """

    def on_signal(number: int, frame: Any) -> None:
        ending.ask()
        tell()

    with signal_handlers(on_signal, signal.SIGINT, signal.SIGTERM):
        yield
