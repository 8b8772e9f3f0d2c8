"""Follows streaming queries while they run, and ends them after a batch rather than during one.

Invariants: every batch is shown once; a query that was asked to end is stopped only between two
batches, unless it is asked again.  A batch that is cut off is no harm to what is stored, since the
next start does it again, but it costs the work.
"""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ottla.pipeline.run.progress import BatchProgress, is_batch, progress_of

POLL_S = 0.2
"""How often queries are looked at: far less work than a batch, and soon enough for people."""


class WatchedQuery(Protocol):
    """What is used of pyspark's StreamingQuery."""

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
    """Whether somebody wants the queries to end, and how soon; set by signals or by code."""

    def __init__(self) -> None:
        self.after_batch = False
        self.at_once = False

    def ask(self) -> None:
        """Ask for an end after the batch; the second time, at once."""
        self.at_once = self.after_batch
        self.after_batch = True


class QueryWatch:
    """Some queries and what was seen of them; owns that."""

    def __init__(self, show: Callable[[BatchProgress], None], ending: QueriesEnding) -> None:
        self.is_any_active = False
        """Whether a query ran when they were looked at last."""
        self._show = show
        self._ending = ending
        self._seen: dict[Any, int] = {}
        """The last batch shown of each run."""
        self._ending_seen: dict[Any, int] = {}
        """The last batch that had ended when the end was asked for."""

    def look(self, queries: Iterable[WatchedQuery]) -> bool:
        """Show what is new, stop what is to end; return whether any query still runs."""
        is_any_active = False
        for query in queries:
            # Asked before its progress: what it tells until it ends must not be missed.
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
        # Each event that is asked for is many calls into the JVM: all of them only for a gap.
        is_next = last is not None and newest.batchId == last + 1
        for told in [newest] if is_next else query.recentProgress:
            event = json.loads(told.json)
            # A trigger that found nothing to do may be told of too, with the number of the batch
            # that is yet to come.
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
    """Watch queries until all have ended; raise what one of them failed with.

    `show_running` is called with them after each look, while any runs.
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
    """Watch whatever queries there are in a thread, for code that waits for them by itself."""

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
    """Run a function in a thread beside a block; the event tells it that the block has ended."""
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
    """Take Ctrl-C and SIGTERM as asking for an end after the batch.

    `tell` is called in between anything the main thread does, so it must not talk to Spark: the
    connection may be during another call.
    """

    def on_signal(number: int, frame: Any) -> None:
        ending.ask()
        tell()

    before = {which: signal.signal(which, on_signal) for which in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for which, handler in before.items():
            signal.signal(which, handler)
