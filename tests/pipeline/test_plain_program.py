"""A program that starts Spark itself, from an environment that is not activated."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

END_S = 60
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
STREAM = """
import sys
from pyspark.sql import SparkSession
import ottla.pipeline

how, bootstrap, topic, checkpoint = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.ui.showConsoleProgress", "false")
spark = builder.config("spark.driver.memory", "512m").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
ottla.pipeline.register(spark)
rows = spark.readStream.format("ottla").option("kafka.bootstrap.servers", bootstrap)
rows = rows.option("subscribe", topic).option("startingOffsets", "earliest").load()

def show(batch, number):
    print("rows:", batch.count(), flush=True)

print("begin", file=sys.stderr, flush=True)
writer = rows.writeStream.queryName(topic).option("checkpointLocation", checkpoint)
writer = writer.foreachBatch(show)
if how == "once":
    writer.trigger(availableNow=True).start().awaitTermination()
else:
    writer.trigger(processingTime="100 milliseconds").start().awaitTermination()
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


@pytest.mark.parametrize("how", ["once", "until interrupted"])
def test_a_program_with_callbacks_ends_without_stack_traces(
    spark_environment: None, live_cluster: Any, tmp_path: Path, how: str
) -> None:
    topic = live_cluster.new_topic(1)
    live_cluster.produce(topic, [b"one", b"two"])
    file = tmp_path / "program.py"
    file.write_text(STREAM)
    words = [how, live_cluster.bootstrap, topic, str(tmp_path / "checkpoint")]
    child = subprocess.Popen(
        [sys.executable, str(file), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "rows: 2\n"
        if how != "once":
            os.killpg(child.pid, signal.SIGINT)
        _rest, reported = child.communicate(timeout=END_S)
    finally:
        child.kill()
        child.wait()
    shown = reported.partition("begin\n")[2].splitlines()
    if how == "once":
        assert (child.returncode, shown) == (0, [])
    else:
        assert child.returncode == -signal.SIGINT
        assert shown[0].startswith("Traceback")
        assert f'File "{file}"' in shown[1]
        assert shown[3:] == ["KeyboardInterrupt"]
    assert sum(live_cluster.group(f"spark-{topic}").values()) == 2
