"""The measurements of `ottla bench spark…`. Each is imported only when it runs, because importing
Spark takes long."""

import argparse
from importlib import import_module

MEASUREMENTS = {
    "spark": "ottla.bench.spark.spark_reads:run_reads",
    "spark-partitions": "ottla.bench.spark.spark_reads:run_partitions",
    "spark-round-trip": "ottla.bench.spark.spark_round_trip:run",
    "spark-faults": "ottla.bench.spark.spark_faults:run",
}
"""Functions that measure Spark, by their name on the command line. Each receives the arguments and
returns the exit code."""


def run(arguments: argparse.Namespace) -> int:
    """Run the Spark measurement that the arguments name. Returns its exit code."""
    module, _, function = MEASUREMENTS[arguments.verb].partition(":")
    code: int = getattr(import_module(module), function)(arguments)
    return code
