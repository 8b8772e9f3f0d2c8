"""Functions that the verbs of `ottla pipeline` share: they parse Spark's options, open its session,
and show progress."""

import argparse
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.common import bootstrap_of, login_settings_of
from ottla.cli.main import REFUSED, UNREACHABLE
from ottla.cli.options import OneOf, Section, one_of, option
from ottla.cli.pipelines.pipeline_start import check_session, check_store, start_shown
from ottla.cli.terminal import draw, is_watched, note, say, say_json, wipe
from ottla.cli.times import parse_duration
from ottla.model.errors import ConfigError
from ottla.pipeline.run.progress import BatchProgress, Totals
from ottla.pipeline.run.session import SessionOptions, open_session
from ottla.pipeline.run.spark_errors import SparkFailedError
from ottla.pipeline.run.watching import QueriesEnding, QueryWatch, asked_by_signals, follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDING = "ending after this batch; once more to end at once"
NO_ANSWER = re.compile(r"(?:^|: )can not (?:read|write)\b")
"""Pattern that matches Ottla's error messages about an unreachable cluster. In an error from a
user's script, a file name and a line number may precede the message."""
SETTINGS_OF_ARGUMENTS = {
    "jars": "spark.jars",
    "packages": "spark.jars.packages",
    "py_files": "spark.submit.pyFiles",
    "archives": "spark.archives",
}


SPARK_OPTIONS = Section(
    "Spark",
    (
        option(
            "--master URL",
            "master of Spark: local[*], spark://host:7077, yarn or k8s://… (default: %(default)s)",
            default="local[*]",
        ),
        option("--conf KEY=VALUE ...", "setting of Spark; may be repeated"),
        option("--jars FILE,…", "jars of driver and executors"),
        option("--packages GROUP:NAME:VERSION,…", "jars from Maven"),
        option("--py-files FILE,…", "Python files of the executors"),
        option("--archives FILE#NAME,…", "archives that executors unpack, such as an environment"),
        option(
            "--spark-log FILE",
            "file for the output of Spark (default: a temporary one, shown on errors)",
        ),
    ),
)


def stream_options(*, trigger: str) -> OneOf:
    """Return the mutually exclusive options for the interval between batches (default `trigger`)
    and for a single run."""
    return one_of(
        option("--once", "process what is available now, then stop"),
        option(
            "--trigger DURATION",
            f"interval between the starts of batches (default: {trigger})",
            default=trigger,
        ),
    )


def trigger_of(arguments: argparse.Namespace) -> float | None:
    """Return the interval between batches of a streaming query in seconds, or None for a single run
    over all existing records."""
    return None if arguments.once else parse_duration("--trigger", arguments.trigger)


def bootstrap_text(arguments: argparse.Namespace) -> str:
    """Return the bootstrap addresses of a command in the form that Spark's data source accepts."""
    return ",".join(f"{host}:{port}" for host, port in bootstrap_of(arguments))


def login_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of Spark's data source `format("ottla")` for authentication. Spark's
    processes then log in as this command does."""
    return {f"kafka.{key}": text for key, text in login_settings_of(arguments).items()}


def session_options(arguments: argparse.Namespace, name: str) -> SessionOptions:
    """Return the options of the Spark session that a command starts."""
    settings = {
        key: getattr(arguments, argument)
        for argument, key in SETTINGS_OF_ARGUMENTS.items()
        if getattr(arguments, argument) is not None
    }
    settings.update(key_and_value("--conf", text) for text in arguments.conf)
    log = None if arguments.spark_log is None else Path(arguments.spark_log)
    return SessionOptions(name=name, master=arguments.master, conf=tuple(settings.items()), log=log)


def key_and_value(option: str, text: str) -> tuple[str, str]:
    """Parse a text of the form KEY=VALUE, the value of `option`. Returns the key and the value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(option, f"is {text!r}; it must be KEY=VALUE")
    return key, value


@contextmanager
def open_spark(
    arguments: argparse.Namespace, name: str, kept_open: tuple[int, ...] = ()
) -> Iterator["SparkSession"]:
    """Start a Spark session for a command, and yield it. Raises SparkFailedError for every failure
    inside Spark. `kept_open` are file descriptors that the JVM inherits."""
    options = replace(session_options(arguments, name), kept_open=kept_open)
    check_session(options)
    for place in ("output", "checkpoint"):
        url = getattr(arguments, place, None)
        if url is not None:
            check_store(f"--{place}", url, options)
    with ExitStack() as stack:
        with start_shown(options.master):
            session = stack.enter_context(open_session(options))
        yield session


def exit_code(failure: SparkFailedError) -> int:
    """Return the exit code of a command after a failure inside Spark."""
    return UNREACHABLE if NO_ANSWER.search(str(failure)) else REFUSED


class BatchLines:
    """Printer of one line for each batch of a streaming query. It also sums the rows of all
    batches."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self.totals = Totals()

    def __call__(self, batch: BatchProgress) -> None:
        """Print one batch of a streaming query as a line, and add its rows to the sums."""
        self.totals.add(batch)
        if self._is_json:
            say_json(batch.as_json(), is_flushed=True)
        else:
            note_over(line_of(batch))


class RunningShown:
    """Progress line with the activity of Spark's streaming queries between two batches, on a
    terminal only."""

    def __init__(self) -> None:
        self._is_drawn = is_watched()
        self._message = ""
        self._since = time.monotonic()
        self._seconds = -1

    def __call__(self, queries: Iterable[Any]) -> None:
        """Draw the activity of Spark's streaming queries, at most once a second."""
        if not self._is_drawn:
            return
        message = "; ".join(
            f"{query.name}  {str(query.status['message']).lower()}"
            for query in queries
            if query.isActive
        )
        if message != self._message:
            self._message, self._since, self._seconds = message, time.monotonic(), -1
        seconds = int(time.monotonic() - self._since)
        if message and seconds != self._seconds:
            self._seconds = seconds
            draw(f"{message} ({seconds} s)")

    def end(self) -> None:
        """Erase the progress line of Spark's streaming queries."""
        if self._is_drawn:
            wipe()


def note_over(text: str) -> None:
    """Erase the progress line on the terminal and print a note in its place."""
    if is_watched():
        wipe()
    note(text)


def line_of(batch: BatchProgress) -> str:
    """Return the progress of one batch of a streaming query as a line of text."""
    lag = "" if batch.lag_count is None else f", lag {batch.lag_count:,}"
    return (
        f"{batch.began_at[11:19]}  {batch.query}  batch {batch.batch}: "
        f"{counted_rows(batch.row_count)} in {batch.batch_s:.1f} s "
        f"({batch.rows_per_s:,.0f} rows/s{lag})"
    )


def counted_rows(count: int) -> str:
    """Return a number of table rows as text, such as "1 row" or "3 rows"."""
    return "1 row" if count == 1 else f"{count:,} rows"


def follow_queries(queries: Iterable[Any], *, is_json: bool) -> Totals:
    """Print the batches of Spark's streaming queries until the queries end or Ctrl-C ends them.
    Returns the sums over all batches."""
    shown = BatchLines(is_json=is_json)
    ending = QueriesEnding()
    running = RunningShown()
    with asked_by_signals(ending, lambda: note_over(ENDING)):
        try:
            follow(queries, QueryWatch(shown, ending), running)
        finally:
            running.end()
    return shown.totals


def finish(totals: Totals, *, is_json: bool, what: str = "") -> int:
    """Print the totals of a run of streaming queries. Returns the exit code of the command."""
    if not is_json:
        lag = "" if not totals.lag_count else f", {counted_rows(totals.lag_count)} behind"
        batches = "1 batch" if totals.batch_count == 1 else f"{totals.batch_count:,} batches"
        say(f"{counted_rows(totals.row_count)} in {batches}{lag}{what}")
    return 0
