"""`ottla pipeline run FILE`: runs a user's own pipeline in a Spark session that can read its
topics, and shows the progress."""

import argparse
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.common import FORMAT
from ottla.cli.main import REFUSED
from ottla.cli.options import Declared, declare_options, option
from ottla.cli.parser import Parser
from ottla.cli.pipelines.pipeline_common import (
    ENDING,
    SPARK_OPTIONS,
    BatchLines,
    finish,
    follow_queries,
    note_over,
    open_spark,
    stream_options,
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


WORD_OPTIONS = (stream_options(trigger=TRIGGER), FORMAT, SPARK_OPTIONS)
"""Options of `ottla pipeline run` that are accepted before and after the file name."""

OPTIONS: tuple[Declared, ...] = (
    option(
        "words FILE",
        "Python file with build(spark, …), or a script; its own arguments follow --",
        nargs=argparse.PARSER,
    ),
    *WORD_OPTIONS,
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla pipeline run`: run the user's file, and show the progress of its streaming queries.
    Returns the exit code."""
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
            # An error in the user's own code is shown with its traceback.
            traceback.print_exception(type(error), error, code.trace_of(error))
            return REFUSED
        totals = follow_queries(queries, is_json=is_json)
    return finish(totals, is_json=is_json) if queries else 0


def parse_words(arguments: argparse.Namespace) -> list[str]:
    """Parse the file name and Ottla's options after it on the command line. Returns the arguments
    after "--", which are passed to the file."""
    arguments.file, *words = arguments.words
    at = words.index("--") if "--" in words else len(words)
    parser = Parser(prog="ottla pipeline run")
    declare_options(parser, WORD_OPTIONS)
    parser.parse_args(words[:at], arguments)
    return list(words[at + 1 :])


def run_script(spark: "SparkSession", code: OwnCode, arguments: list[str], *, is_json: bool) -> int:
    """Run a user's Python script with a Spark session, and wait for the streaming queries that are
    still running at its end. Returns the exit code."""
    shown = BatchLines(is_json=is_json)
    ending = QueriesEnding()
    watch = QueryWatch(shown, ending)

    def tell() -> None:
        if not watch.is_any_active:
            # The script runs no streaming query, so there is no batch to wait for.
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
