"""Ends a program that uses Spark without stack traces of Java and py4j.

Spark calls the Python process of a program for listeners and for `foreachBatch`. A call after the
end of the program causes a harmless error with a stack trace. At exit, queries are therefore
stopped, and pending events are awaited: the last of them commits the end of the last batch
(`read/shadow.py`).

At Ctrl-C, pyspark's own handler calls the JVM through the connection of the main thread, which is
usually within another call. That fails, with three stack traces. The handler here uses a thread,
which has a connection of its own.
"""

import atexit
import logging
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from types import TracebackType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PY4J_MODULES = {"java_gateway", "clientserver"}
LOGGERS = ("", "py4j.clientserver", "py4j.java_gateway")
"""Names of the loggers of py4j's modules; some of its errors are logged by the root logger."""
EVENTS_TIMEOUT_MS = 5_000
"""Maximum wait in ms for Spark's events of queries at the program's exit. A group's commit, which
takes longest, has the same limit."""
BATCH_TIMEOUT_S = 5.0
"""Maximum wait in seconds for the end of a query's batch at the program's exit. With a longer wait,
users press Ctrl-C again. With a shorter wait, the next start repeats more batches."""
POLL_S = 0.05
CANCEL_TIMEOUT_S = 2.0
PYSPARKS_HANDLER = "SparkContext._do_init.<locals>.signal_handler"

_LIBRARIES = re.compile(r"[/\\](?:pyspark|py4j)[/\\]")


class QuietFilter(logging.Filter):
    """Log filter that drops py4j's reports of calls that were interrupted by Ctrl-C or by the end
    of the program.

    These reports are unnecessary: Ctrl-C is also raised as an exception, and a call that fails at
    the end of the program has no consequence.
    """

    is_ending = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False if the log record is a report of py4j to drop, otherwise True."""
        if record.module not in PY4J_MODULES:
            return True
        return not (self.is_ending or (record.exc_info and _is_interrupt(record.exc_info[1])))


_quiet = QuietFilter()
_sessions: "WeakSet[SparkSession]" = WeakSet()


def end_quietly(session: "SparkSession") -> None:
    """Suppress stack traces of Java and py4j at the end of the program. Repeated calls have no
    effect."""
    if session in _sessions or not hasattr(session, "_jsparkSession"):
        return  # under Spark Connect, there is no JVM to call
    if not _sessions:
        atexit.register(end_sessions)
        for name in LOGGERS:
            logging.getLogger(name).addFilter(_quiet)
        sys.excepthook = with_short_interrupts(sys.excepthook)
    _sessions.add(session)
    _handle_interrupts(session)


def end_sessions() -> None:
    """Stop all streaming queries of the program, and wait until their events are processed."""
    _quiet.is_ending = True
    for session in list(_sessions):
        context: Any = session.sparkContext
        # The program ends whatever the JVM answers, and also if the user is in a hurry.
        with suppress(Exception, KeyboardInterrupt):
            if context._jsc is None:
                continue  # it was stopped
            active = session.streams.active
            if active:
                # A batch that is cut off is no error: the query runs it again when it is started
                # again.
                context.setLogLevel("OFF")
                stop_between_batches(active)
            context._jsc.sc().listenerBus().waitUntilEmpty(EVENTS_TIMEOUT_MS)


def stop_between_batches(queries: list["StreamingQuery"]) -> None:
    """Stop streaming queries after their present batch.

    A batch that takes longer than `BATCH_TIMEOUT_S` seconds is not stopped, but ends with the
    process. Stopping a batch within the user's own function would log many stack traces."""
    deadline = time.monotonic() + BATCH_TIMEOUT_S
    for query in queries:
        while query.isActive and query.status["isTriggerActive"]:
            if time.monotonic() > deadline:
                return
            time.sleep(POLL_S)
        query.stop()


def _handle_interrupts(session: "SparkSession") -> None:
    """Replace pyspark's handler for Ctrl-C by a handler that logs no stack traces, unless the
    program has set its own."""
    handler = signal.getsignal(signal.SIGINT)
    is_pysparks = getattr(handler, "__qualname__", "") == PYSPARKS_HANDLER
    if not is_pysparks or threading.current_thread() is not threading.main_thread():
        return

    def cancel() -> None:
        with suppress(Exception):
            # The jobs of a streaming query end with the query, at exit.  If they were cancelled
            # here, the query would fail.
            if not session.streams.active:
                session.sparkContext.cancelAllJobs()

    def on_interrupt(number: int, frame: Any) -> None:
        canceller = threading.Thread(target=cancel, name="cancel jobs", daemon=True)
        canceller.start()
        canceller.join(CANCEL_TIMEOUT_S)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)


def with_short_interrupts(show: Callable[..., Any]) -> Callable[..., Any]:
    """Return an exception hook that shows KeyboardInterrupt without the frames of pyspark and
    py4j."""

    def body(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            show(kind, error, trace)
            return
        files = [frame.f_code.co_filename for frame, _line in traceback.walk_tb(trace)]
        own = takewhile(lambda file: not _LIBRARIES.search(file), files)
        error.__context__ = None
        traceback.print_exception(kind, error, trace, limit=max(1, len(list(own))))

    return body


def _is_interrupt(error: BaseException | None) -> bool:
    """Return whether an error is a KeyboardInterrupt, or was raised while one was handled."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False
