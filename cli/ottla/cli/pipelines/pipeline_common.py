"""What the verbs of `ottla pipeline` share: Spark's arguments, its session, and progress."""

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
"""How our sentences about a cluster that cannot be reached begin, behind a user's file and line."""
SETTINGS_OF_ARGUMENTS = {
    "jars": "spark.jars",
    "packages": "spark.jars.packages",
    "py_files": "spark.submit.pyFiles",
    "archives": "spark.archives",
}


def add_spark_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where and with what Spark runs."""
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master",
        default="local[*]",
        metavar="URL",
        help="master of Spark: local[*], spark://host:7077, yarn or k8s://… (default: %(default)s)",
    )
    group.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of Spark; may be repeated",
    )
    group.add_argument("--jars", metavar="FILE,…", help="jars of driver and executors")
    group.add_argument("--packages", metavar="GROUP:NAME:VERSION,…", help="jars from Maven")
    group.add_argument("--py-files", metavar="FILE,…", help="Python files of the executors")
    group.add_argument(
        "--archives",
        metavar="FILE#NAME,…",
        help="archives that executors unpack, such as an environment",
    )
    group.add_argument(
        "--spark-log",
        metavar="FILE",
        help="file for the output of Spark (default: a temporary one, shown on errors)",
    )


def add_stream_arguments(parser: argparse.ArgumentParser, *, trigger: str) -> None:
    """Declare how often there is a batch, and when it is enough."""
    when = parser.add_mutually_exclusive_group()
    when.add_argument(
        "--once", action="store_true", help="process what is available now, then stop"
    )
    when.add_argument(
        "--trigger",
        default=trigger,
        metavar="DURATION",
        help=f"interval between the starts of batches (default: {trigger})",
    )


def trigger_of(arguments: argparse.Namespace) -> float | None:
    """Return the seconds between two batches; None for all there is, once."""
    return None if arguments.once else parse_duration("--trigger", arguments.trigger)


def bootstrap_text(arguments: argparse.Namespace) -> str:
    """Return the addresses a command was told, or those of its cluster, as an option's text."""
    return ",".join(f"{host}:{port}" for host, port in bootstrap_of(arguments))


def login_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of `format("ottla")` by which Spark's processes log in, as we do."""
    return {f"kafka.{key}": text for key, text in login_settings_of(arguments).items()}


def session_options(arguments: argparse.Namespace, name: str) -> SessionOptions:
    """Return what Spark is to be started with."""
    settings = {
        key: getattr(arguments, argument)
        for argument, key in SETTINGS_OF_ARGUMENTS.items()
        if getattr(arguments, argument) is not None
    }
    settings.update(key_and_value("--conf", text) for text in arguments.conf)
    log = None if arguments.spark_log is None else Path(arguments.spark_log)
    return SessionOptions(name=name, master=arguments.master, conf=tuple(settings.items()), log=log)


def key_and_value(option: str, text: str) -> tuple[str, str]:
    """Return what KEY=VALUE says."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigError(option, f"is {text!r}; it must be KEY=VALUE")
    return key, value


@contextmanager
def open_spark(
    arguments: argparse.Namespace, name: str, kept_open: tuple[int, ...] = ()
) -> Iterator["SparkSession"]:
    """Start Spark for a command; SparkFailedError for whatever goes wrong in it."""
    options = replace(session_options(arguments, name), kept_open=kept_open)
    check_session(options)
    for option in ("output", "checkpoint"):
        url = getattr(arguments, option, None)
        if url is not None:
            check_store(f"--{option}", url, options)
    with ExitStack() as stack:
        with start_shown(options.master):
            session = stack.enter_context(open_session(options))
        yield session


def exit_code(failure: SparkFailedError) -> int:
    """Return the exit code of a command that Spark failed."""
    return UNREACHABLE if NO_ANSWER.search(str(failure)) else REFUSED


class Shown:
    """Batches as a command shows them; owns their sum."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self.totals = Totals()

    def __call__(self, batch: BatchProgress) -> None:
        """Show one batch."""
        self.totals.add(batch)
        if self._is_json:
            say_json(batch.as_json(), is_flushed=True)
        else:
            note_over(line_of(batch))


class RunningShown:
    """What queries do between two lines of batches, drawn over itself on a terminal."""

    def __init__(self) -> None:
        self._is_drawn = is_watched()
        self._message = ""
        self._since = time.monotonic()
        self._seconds = -1

    def __call__(self, queries: Iterable[Any]) -> None:
        """Draw what the queries do now, once a second."""
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
        """Erase what is drawn."""
        if self._is_drawn:
            wipe()


def note_over(text: str) -> None:
    """Print a line in the place of what is drawn."""
    if is_watched():
        wipe()
    note(text)


def line_of(batch: BatchProgress) -> str:
    """Return a batch as a line for people."""
    lag = "" if batch.lag_count is None else f", lag {batch.lag_count:,}"
    return (
        f"{batch.began_at[11:19]}  {batch.query}  batch {batch.batch}: "
        f"{counted_rows(batch.row_count)} in {batch.batch_s:.1f} s "
        f"({batch.rows_per_s:,.0f} rows/s{lag})"
    )


def counted_rows(count: int) -> str:
    """Return how many rows, in words."""
    return "1 row" if count == 1 else f"{count:,} rows"


def follow_queries(queries: Iterable[Any], *, is_json: bool) -> Totals:
    """Show the batches of queries until they end or Ctrl-C ends them; return the sum."""
    shown = Shown(is_json=is_json)
    ending = QueriesEnding()
    running = RunningShown()
    with asked_by_signals(ending, lambda: note_over(ENDING)):
        try:
            follow(queries, QueryWatch(shown, ending), running)
        finally:
            running.end()
    return shown.totals


def finish(totals: Totals, *, is_json: bool, what: str = "") -> int:
    """Say what a run came to; return its exit code."""
    if not is_json:
        lag = "" if not totals.lag_count else f", {counted_rows(totals.lag_count)} behind"
        batches = "1 batch" if totals.batch_count == 1 else f"{totals.batch_count:,} batches"
        say(f"{counted_rows(totals.row_count)} in {batches}{lag}{what}")
    return 0
