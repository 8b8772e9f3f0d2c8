"""`ottla pipeline …`: processes topics in Spark, by ready-made pipelines or a user's own.

The module of each verb defines `OPTIONS` and `run`, and imports pyspark only when the verb runs.
"""

import argparse
from functools import partial
from types import ModuleType

from ottla.cli.main import REFUSED, UNREACHABLE
from ottla.cli.pipelines import (
    pipeline_archive,
    pipeline_compact,
    pipeline_lag,
    pipeline_run,
    pipeline_telemetry,
    pipeline_zip,
)
from ottla.cli.pipelines.pipeline_common import exit_code
from ottla.cli.terminal import note
from ottla.cli.verbs import Handler, Verb, verb
from ottla.model.errors import ErrorCode, RefusedError
from ottla.pipeline.run.spark_errors import SparkFailedError


def _run(handler: Handler, arguments: argparse.Namespace) -> int:
    """Run one verb of `ottla pipeline`, and print an error of Spark as one line. Returns the exit
    code."""
    try:
        return handler(arguments)
    except SparkFailedError as error:
        note(f"ottla pipeline: {error}")
        return exit_code(error)
    except RefusedError as error:
        # The error code is left out, as in the other messages about Spark.
        note(f"ottla pipeline: {error.message}")
        return UNREACHABLE if error.code == ErrorCode.NETWORK_EXCEPTION else REFUSED


def _verb(name: str, summary: str, module: ModuleType) -> Verb:
    return verb(name, summary, partial(_run, module.run), *module.OPTIONS)


VERBS = (
    _verb(
        "archive",
        "write topics to Parquet by topic, date and hour, or one topic to a table",
        pipeline_archive,
    ),
    _verb("compact", "merge small files of an archive", pipeline_compact),
    _verb("telemetry", "aggregate metrics of clients over windows of time", pipeline_telemetry),
    _verb("run", "run a pipeline of your own, from a Python file", pipeline_run),
    _verb("lag", "show the lag of streaming queries", pipeline_lag),
    _verb("zip", "pack Ottla's modules for spark-submit --py-files", pipeline_zip),
)
