"""The measurements of `ottla bench spark…`, each imported when it is run: Spark is heavy."""

import argparse
from importlib import import_module

MEASUREMENTS = {
    "spark": "ottla.bench.spark_reads:run_reads",
    "spark-partitions": "ottla.bench.spark_reads:run_partitions",
    "spark-round-trip": "ottla.bench.spark_round_trip:run",
    "spark-faults": "ottla.bench.spark_faults:run",
}
"""By the name on the command line: a function of the arguments that returns the exit code."""


def run(arguments: argparse.Namespace) -> int:
    """Run the measurement that was asked for."""
    module, _, function = MEASUREMENTS[arguments.what].partition(":")
    code: int = getattr(import_module(module), function)(arguments)
    return code
