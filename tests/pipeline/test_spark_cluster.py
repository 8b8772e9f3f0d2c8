"""A real Spark cluster, an object store, and Spark's own Kafka connector: the long form.

Runs where OTTLA_SPARK_LONG=1: a standalone master and two workers of the pip-installed pyspark, the
packages that docs/spark.md names from Maven (some 700 MB, once), and moto's S3 server, which
`pip install 'moto[s3,server]'` brings.
"""

import os
import re
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_DELTA,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from pyarrow import fs
from pyarrow.dataset import dataset

from ottla.pipeline.archive.archive_directory import ArchiveDirectory
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_record import encode_records
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import label

LONG = "OTTLA_SPARK_LONG"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(900),
    pytest.mark.skipif(LONG not in os.environ, reason=f"the long form: {LONG}=1"),
]

LiveCluster = Any  # the class of the fixture, in conftest.py
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
WORKERS = 2
SMALL = (
    *("--conf", "spark.driver.memory=512m", "--conf", "spark.executor.memory=512m"),
    *("--conf", "spark.executor.cores=1"),
)
DAEMON_MEMORY = "256m"
BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
END_S = 20
COMMAND_S = 300
MINUTE_MS = 60_000
EPOCH_MS = 1_800_000_000_000
SENT = "org.apache.kafka.producer.outgoing.byte.total"


class Daemons:
    """Processes that tests start, with their output files; owns both."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *command: str, **environ: str) -> Path:
        """Start a program; return the file of its output."""
        log = self._directory / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, env={**os.environ, **environ}
            )
        self._processes.append(process)
        return log

    def end(self) -> None:
        """End them all, the last one first."""
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """Processes that end with the tests."""
    found = Daemons(tmp_path_factory.mktemp("daemons"))
    try:
        yield found
    finally:
        found.end()


def said(live_cluster: LiveCluster, log: Path, pattern: str) -> str:
    """Wait until the output of a process matches a pattern; return its first group."""
    live_cluster.wait_for(lambda: bool(re.search(pattern, log.read_text())), f"{log}: {pattern}")
    found = re.search(pattern, log.read_text())
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def master(spark: Any, live_cluster: LiveCluster, daemons: Daemons, tmp_path_factory: Any) -> str:
    """The URL of a standalone master with two workers; `spark` has found the Java."""
    import pyspark

    home = str(Path(pyspark.__file__).parent)
    environ = {"SPARK_HOME": home, "SPARK_DAEMON_MEMORY": DAEMON_MEMORY}
    program = f"{home}/bin/spark-class"
    deploy, local = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--webui-port", "0")
    log = daemons.start(
        "master", program, f"{deploy}.master.Master", *local, "--port", "0", **environ
    )
    url = said(live_cluster, log, r"Starting Spark master at (spark://\S+)")
    for number in range(WORKERS):
        work = str(tmp_path_factory.mktemp(f"work-{number}"))
        daemons.start(
            f"worker-{number}",
            *(program, f"{deploy}.worker.Worker", *local, "--cores", "1", "--memory", "1g"),
            *("--work-dir", work, url),
            **environ,
        )
    live_cluster.wait_for(
        lambda: log.read_text().count("Registering worker") == WORKERS, "both workers"
    )
    return url


class Store(NamedTuple):
    """A local S3 server with one bucket."""

    url: str

    @property
    def options(self) -> tuple[str, ...]:
        """Settings of docs/spark.md for S3."""
        return (
            *("--packages", on_page(r"(org\.apache\.hadoop:hadoop-aws:[\w.]+)")),
            *("--conf", f"spark.hadoop.fs.s3a.endpoint={self.url}"),
            *("--conf", "spark.hadoop.fs.s3a.path.style.access=true"),
        )

    @property
    def files(self) -> Any:
        """It as Arrow sees it."""
        return fs.S3FileSystem(
            access_key=KEYS["AWS_ACCESS_KEY_ID"],
            secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
            endpoint_override=self.url,
            region=KEYS["AWS_REGION"],
        )


@pytest.fixture(scope="module")
def store(live_cluster: LiveCluster, daemons: Daemons) -> Store:
    """An S3 server of this machine."""
    program = Path(sys.executable).parent / "moto_server"
    if not program.exists():
        pytest.skip("there is no S3 server: pip install 'moto[s3,server]'")
    log = daemons.start("s3", str(program), "-H", "127.0.0.1", "-p", "0")
    found = Store(said(live_cluster, log, r"Running on (http://127\.0\.0\.1:\d+)"))
    with urllib.request.urlopen(urllib.request.Request(f"{found.url}/{BUCKET}", method="PUT")):
        return found


def on_page(pattern: str) -> str:
    """Return the text of docs/spark.md that matches a pattern: the tests use the text for users."""
    found = re.search(pattern, PAGE.read_text())
    assert found is not None, pattern
    return found[1]


def pipeline(live_cluster: LiveCluster, *words: str, names_cluster: bool = True) -> str:
    """Run `ottla pipeline` as a user does; return its output."""
    where = ("--bootstrap", live_cluster.bootstrap) if names_cluster else ()
    command = [sys.executable, "-m", "ottla.cli", "pipeline", *words[:1], *SMALL, *where]
    environ = {**os.environ, **KEYS, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [*command, *words[1:]], capture_output=True, text=True, env=environ, timeout=COMMAND_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_standalone_cluster_archives_each_record_once(
    live_cluster: LiveCluster, master: str, tmp_path: Path
) -> None:
    topic = live_cluster.new_topic(4)
    output = tmp_path / "lake"
    words = ("archive", topic, "-o", str(output), "--once", "--master", master)
    for count in (100, 200):
        live_cluster.produce(topic, [b"%d" % number for number in range(100)])
        assert pipeline(live_cluster, *words).startswith("100 rows in ")
        files = [entry.path for entry in ArchiveDirectory(output).live()]
        rows = dataset(files).to_table(columns=["partition", "offset"]).to_pylist()
        assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == count


def test_a_standalone_cluster_archives_into_an_object_store_and_goes_on_there(
    live_cluster: LiveCluster, master: str, store: Store
) -> None:
    topic = live_cluster.new_topic(2)
    words = ("archive", topic, "-o", f"s3a://{BUCKET}/raw", "--once", "--master", master)
    for count in (50, 100):
        live_cluster.produce(topic, [b"%d" % number for number in range(50)])
        assert pipeline(live_cluster, *words, *store.options).startswith("50 rows in ")
        found = dataset(f"{BUCKET}/raw/topic={topic}", filesystem=store.files)
        values = Counter(row["value"] for row in found.to_table(columns=["value"]).to_pylist())
        assert sum(values.values()) == count
        assert set(values.values()) == {count // 50}


def push(number: int) -> bytes:
    """Return the record of a client's push: 7 bytes sent in the minute of this number."""
    labels = ClientLabels(UUID(int=1), "app", "User:a", "lib", "1.0", "10.0.0.1", 1)
    began_ms = EPOCH_MS + number * MINUTE_MS
    point = NumberDataPoint(
        as_int=7,
        start_time_unix_nano=began_ms * 1_000_000,
        time_unix_nano=(began_ms + 1_000) * 1_000_000,
    )
    total = Sum(
        data_points=[point],
        is_monotonic=True,
        aggregation_temporality=AGGREGATION_TEMPORALITY_DELTA,
    )
    scopes = [ScopeMetrics(metrics=[Metric(name=SENT, sum=total)])]
    data = MetricsData(resource_metrics=[ResourceMetrics(scope_metrics=scopes)])
    pushed = LabelledPush(labels, began_ms + 2_000, label(data, labels))
    (value,), left_out = encode_records(pushed)
    assert left_out == 0
    return value


def test_rollups_go_into_an_object_store_and_go_on_there(
    live_cluster: LiveCluster, store: Store
) -> None:
    topic = live_cluster.new_topic(1)
    words = (
        *("telemetry", "--topic", topic, "-o", f"s3a://{BUCKET}/rollups", "--once"),
        *("--lateness", "0s", "--master", "local[2]"),
    )
    for begin in (0, 4):
        live_cluster.produce(topic, [push(number) for number in range(begin, begin + 4)])
        pipeline(live_cluster, *words, *store.options)
        found = dataset(f"{BUCKET}/rollups", filesystem=store.files, partitioning="hive")
        totals = [row["total"] for row in found.to_table().to_pylist()]
        # The last window is over with the next push only.
        assert totals == [7.0] * (begin + 3)


def test_a_checkpoint_goes_from_sparks_own_connector_to_ours_and_back(
    live_cluster: LiveCluster, tmp_path: Path
) -> None:
    topic = "orders-exchanged"
    live_cluster.new_topic(2, name=topic)
    program = on_page(r"```python\n(# copy_orders\.py\n(?:.*\n)*?)```")
    file = tmp_path / "copy_orders.py"
    file.write_text(program.replace('"orders"', f'"{topic}"'))
    package = on_page(r"(org\.apache\.spark:spark-sql-kafka-0-10_2\.13:[\w.]+)")
    run = ("run", "--once", "--master", "local[2]", "--packages", package, str(file), "--")
    for turn, connector in enumerate(("kafka", "ottla", "kafka", "ottla")):
        live_cluster.produce(topic, [b"%d" % number for number in range(10)])
        to = (connector, live_cluster.bootstrap, str(tmp_path / "copy"))
        assert pipeline(live_cluster, *run, *to, names_cluster=False).startswith("10 rows in ")
        rows = dataset(tmp_path / "copy" / "orders", exclude_invalid_files=True).to_table()
        places = {(row["partition"], row["offset"]) for row in rows.to_pylist()}
        assert len(places) == rows.num_rows == 10 * (turn + 1)
