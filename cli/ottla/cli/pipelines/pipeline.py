"""`ottla pipeline …`: topics through Spark, as they are or as a user wrote it.

The module of a verb has `configure(parser)` and `run(arguments) -> exit code`; it imports pyspark
only when it runs.
"""

import argparse
from importlib import import_module
from typing import NamedTuple

from ottla.cli.main import REFUSED, UNREACHABLE
from ottla.cli.pipelines.pipeline_common import exit_code
from ottla.cli.terminal import note
from ottla.model.errors import ErrorCode, RefusedError
from ottla.pipeline.run.spark_errors import SparkFailedError


class Verb(NamedTuple):
    """Where a verb lives and what it does in one line."""

    module: str
    summary: str


VERBS = {
    "archive": Verb(
        "ottla.cli.pipelines.pipeline_archive", "write topics to Parquet by topic, date and hour"
    ),
    "compact": Verb("ottla.cli.pipelines.pipeline_compact", "merge small files of an archive"),
    "telemetry": Verb(
        "ottla.cli.pipelines.pipeline_telemetry",
        "aggregate metrics of clients over windows of time",
    ),
    "run": Verb(
        "ottla.cli.pipelines.pipeline_run", "run a pipeline of your own, from a Python file"
    ),
    "lag": Verb("ottla.cli.pipelines.pipeline_lag", "show the lag of streaming queries"),
    "zip": Verb(
        "ottla.cli.pipelines.pipeline_zip", "pack Ottla's modules for spark-submit --py-files"
    ),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verbs of 'ottla pipeline'."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, verb in VERBS.items():
        import_module(verb.module).configure(
            verbs.add_parser(name, help=verb.summary, description=verb.summary)
        )


def run(arguments: argparse.Namespace) -> int:
    """Run one verb; what Spark fails with is one sentence."""
    try:
        code: int = import_module(VERBS[arguments.verb].module).run(arguments)
    except SparkFailedError as error:
        note(f"ottla pipeline: {error}")
        return exit_code(error)
    except RefusedError as error:
        # As it is when Spark is told: without the name of the code.
        note(f"ottla pipeline: {error.message}")
        return UNREACHABLE if error.code == ErrorCode.NETWORK_EXCEPTION else REFUSED
    return code
