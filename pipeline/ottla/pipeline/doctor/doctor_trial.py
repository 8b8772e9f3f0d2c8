"""Runs one small query on a real Spark, with a timeout: this is the last check of `doctor.py`.

Not pure: it starts processes.  The query runs in its own process group.  After the timeout, the
whole group is killed, including the JVM.  Its output goes to a file.  Its rows pass through a
Python worker as Arrow batches, and the worker imports Ottla's package, as in every Ottla pipeline.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.pipeline.doctor.doctor import ReachableBrokers, Trial, reason_in

ROWS = 1_000
TIMEOUT_SECONDS = 180.0
"""Timeout in seconds of the trial query that tests Spark. A first query took up to 25 s on a busy
machine."""
MARK = "ottla-doctor:"
"""Prefix of the lines in which the process of the trial query prints its results."""


def try_query(
    environ: Mapping[str, str],
    *,
    java_home: str,
    master: str = "local[1]",
    bootstrap: str = "",
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Trial:
    """Run the trial query that tests Spark in a separate process, and return its result."""
    given = {"PYSPARK_PYTHON": sys.executable, **environ, "JAVA_HOME": java_home}
    began_at = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-doctor-") as directory:
        log_path = Path(directory, "log")
        command = [sys.executable, "-m", __name__, master, bootstrap]
        is_late = not _run(command, given, log_path, timeout_seconds)
        seconds = time.monotonic() - began_at
        log = log_path.read_text(errors="replace")
    said = dict(
        line.removeprefix(MARK).split(" ", 1) for line in log.splitlines() if line.startswith(MARK)
    )
    brokers, troubles = json.loads(said.get("brokers", "[0, []]"))
    reached = ReachableBrokers(brokers, troubles) if "brokers" in said else None
    if is_late:
        return Trial(seconds, log=log, is_late=True)
    if "rows" in said:
        return Trial(seconds, rows=int(said["rows"]), log=log, reached=reached)
    words = said.get("failed", "").strip()
    return Trial(seconds, problem=reason_in(log) or words or "ended without a word", log=log)


def _run(
    command: Sequence[str], environ: Mapping[str, str], log_path: Path, timeout_seconds: float
) -> bool:
    """Run the program of the trial query to its end. If it exceeds the timeout, all its processes
    are killed, and False is returned."""
    with log_path.open("wb") as log:
        process = subprocess.Popen(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=log_path.parent,
            start_new_session=True,
        )
        try:
            process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return True


def query(master: str, bootstrap: str) -> None:
    """Run the trial query in this process, and print the number of rows that it returned. If
    `bootstrap` is given, also print the brokers that a worker reaches."""
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col
    from pyspark.sql.pandas import functions as arrow_functions

    def passed_on(numbers: pa.Array) -> pa.Array:
        import ottla.pipeline  # noqa: F401  # what is tried is the import

        return numbers

    def reached(numbers: pa.Array) -> pa.Array:
        from ottla.pipeline.doctor.doctor_reach import brokers_reached

        report = json.dumps(brokers_reached(bootstrap))
        return pa.array([report] * len(numbers), pa.string())

    spark = (
        SparkSession.builder.master(master)
        .appName("ottla doctor")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    try:
        arrow_udf: Any = arrow_functions.arrow_udf  # its type stubs do not accept type hints
        through_arrow = arrow_udf(passed_on, "long")
        rows = spark.range(ROWS).filter(through_arrow(col("id")) >= 0).count()
        if bootstrap:
            (row,) = spark.range(1).select(arrow_udf(reached, "string")(col("id"))).collect()
            print(f"{MARK}brokers {row[0]}")
        print(f"{MARK}rows {rows}")
    finally:
        spark.stop()


def main() -> None:
    """Run the trial query in this Spark process. Prints each result, or the error, on a separate
    line, which the doctor reads."""
    try:
        query(*sys.argv[1:])
    except BaseException as error:
        words = str(error).strip().splitlines()
        print(f"{MARK}failed {words[0] if words else type(error).__name__}")


if __name__ == "__main__":
    main()
