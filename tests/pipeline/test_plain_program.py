"""A program that starts Spark itself, from an environment that is not activated."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import ottla.pipeline

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.memory", "512m").getOrCreate()
if "--register" in sys.argv:
    ottla.pipeline.register(spark)
rows = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[1])
print(rows.option("subscribe", sys.argv[2]).load().count())
"""
NO_PACKAGES = """#!/bin/sh
# A Python as a machine has it: without this package, pyarrow and numpy.
exec {python} -I -S "$@"
"""


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A directory with a `python3` that lacks our packages, to be first in PATH."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "python3"
    program.write_text(NO_PACKAGES.format(python=sys.executable))
    program.chmod(0o755)
    return directory


def run_program(tmp_path: Path, bare_path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the program in an environment whose `python3` lacks our packages."""
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYSPARK")}
    environ["PATH"] = f"{bare_path}:{environ['PATH']}"
    return subprocess.run(
        [sys.executable, str(file), *words], capture_output=True, text=True, env=environ
    )


def test_a_program_that_registers_works_without_activation_and_others_are_not_found(
    spark: Any, live_cluster: Any, tmp_path: Path, bare_path: Path
) -> None:
    topic = live_cluster.new_topic(1)
    live_cluster.produce(topic, [b"one", b"two"])
    done = run_program(tmp_path, bare_path, live_cluster.bootstrap, topic, "--register")
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr[-2_000:]
    done = run_program(tmp_path, bare_path, live_cluster.bootstrap, topic)
    assert done.returncode != 0, "the fault that the doctor tells is there"
    assert "DATA_SOURCE_NOT_FOUND" in done.stderr
