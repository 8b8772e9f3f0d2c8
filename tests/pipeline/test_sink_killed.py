"""A Spark driver that dies by SIGKILL in the middle of its work leaves no record out, none twice.

The long version, with brokers that die too, is `ottla bench spark-faults`.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.bench.spark.spark_faults import (
    forget_last_batch,
    is_clean,
    kill_driver,
    last_batch,
    spark_driver,
)
from ottla.bench.spark.spark_faults_driver import COPY, QUERIES, SparkWork, drain, verify
from ottla.pipeline.write.provenance import BATCH, PARTITION, QUERY

from .conftest import LiveCluster, Record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 2_000
START_TIMEOUT_S = 600


@pytest.mark.cluster
def test_what_a_killed_driver_left_undone_is_done_once(
    spark: "SparkSession", live_cluster: LiveCluster, tmp_path: Path
) -> None:
    source, copy = live_cluster.new_topic(4), live_cluster.new_topic(3)
    live_cluster.produce(
        source,
        (Record(b"%d text" % n, key=b"%d" % (n % 7) if n % 2 else None) for n in range(COUNT)),
    )
    work = SparkWork(live_cluster.bootstrap, source, copy, str(tmp_path), batch_records=100)

    with spark_driver(work) as driver:
        deadline = time.monotonic() + START_TIMEOUT_S
        while min(last_batch(work, query, "commits") for query in QUERIES) < 1:
            assert driver.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kill_driver(driver)
    work = work._replace(batch_records=COUNT // 2)
    drain(spark, work)
    # As if it had died between what the sinks wrote and the line in Spark's commit log.
    assert all(forget_last_batch(work, query) for query in QUERIES)
    drain(spark, work)

    found = verify(spark, work)
    assert found["source_records"] == found["archive_records"] == COUNT
    assert found["copy_records_committed"] == COUNT
    assert is_clean({**found, "acknowledged_missing": 0})
    stamps = [dict(row.headers) for row in headers_of(spark, work)]
    assert len({stamp[QUERY] for stamp in stamps}) == 1
    last = last_batch(work, COPY, "commits")
    assert {int(stamp[BATCH]) for stamp in stamps} == set(range(last + 1))
    assert {int(stamp[PARTITION]) for stamp in stamps} == {0, 1}


def headers_of(spark: "SparkSession", work: SparkWork) -> list[Any]:
    """Read the headers of all that was written."""
    rows = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", work.bootstrap)
        .option("subscribe", work.copy)
        .option("columns", "headers")
        .load()
    )
    return rows.collect()
