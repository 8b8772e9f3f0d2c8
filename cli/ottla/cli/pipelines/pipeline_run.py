"""`ottla pipeline run FILE`: a pipeline of a user's own, with topics at hand and progress shown."""

import argparse
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.common import add_format_argument
from ottla.cli.main import REFUSED
from ottla.cli.parser import Parser
from ottla.cli.pipelines.pipeline_common import (
    ENDING,
    Shown,
    add_spark_arguments,
    add_stream_arguments,
    finish,
    follow_queries,
    note_over,
    open_spark,
    trigger_of,
)
from ottla.model.errors import OttlaError
from ottla.pipeline.archive.archive import trigger_words
from ottla.pipeline.run.own_code import OwnCode, read_own_code
from ottla.pipeline.run.session import spark_exceptions
from ottla.pipeline.run.watching import QueriesEnding, QueryWatch, asked_by_signals, watched_aside

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER = "10s"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "words",
        # All that follows FILE, with the "--" that argparse drops behind a single argument.
        nargs=argparse.PARSER,
        metavar="FILE",
        help="Python file with build(spark, …), or a script; its own arguments follow --",
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare what may stand before the file and after it."""
    add_stream_arguments(parser, trigger=TRIGGER)
    add_format_argument(parser)
    add_spark_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the file and follow what it starts."""
    own_words = parse_words(arguments)
    code = read_own_code(Path(arguments.file))
    is_json = arguments.format == "json"
    trigger_s = trigger_of(arguments)
    with open_spark(arguments, code.path.stem) as spark:
        try:
            if not code.has_build:
                return run_script(spark, code, own_words, is_json=is_json)
            queries = code.build(spark, own_words, trigger_words(trigger_s))
        except Exception as error:
            if isinstance(error, (OttlaError, *spark_exceptions())):
                raise
            # A mistake of the user's own code: its traceback is what helps.
            traceback.print_exception(type(error), error, code.trace_of(error))
            return REFUSED
        totals = follow_queries(queries, is_json=is_json)
    return finish(totals, is_json=is_json) if queries else 0


def parse_words(arguments: argparse.Namespace) -> list[str]:
    """Take the file and our options behind it; return the file's own words, behind "--"."""
    arguments.file, *words = arguments.words
    at = words.index("--") if "--" in words else len(words)
    parser = Parser(prog="ottla pipeline run")
    add_options(parser)
    parser.parse_args(words[:at], arguments)
    return list(words[at + 1 :])


def run_script(spark: "SparkSession", code: OwnCode, arguments: list[str], *, is_json: bool) -> int:
    """Run a script that waits for its queries itself, or leaves them running at its end."""
    shown = Shown(is_json=is_json)
    ending = QueriesEnding()
    watch = QueryWatch(shown, ending)

    def tell() -> None:
        if not watch.is_any_active:
            # What runs is no stream, and has no next batch to end before.
            raise KeyboardInterrupt
        note_over(ENDING)

    with (
        asked_by_signals(ending, tell),
        watched_aside(lambda: spark.streams.active, watch),
    ):
        code.run_script(arguments)
        while spark.streams.active and not ending.at_once:
            spark.streams.awaitAnyTermination(1)
    return finish(shown.totals, is_json=is_json) if shown.totals.batch_count else 0
