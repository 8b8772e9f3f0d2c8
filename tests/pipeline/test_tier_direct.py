"""`option("tier", "direct")` in a real Spark: the same rows as through brokers, and the same
checkpoints."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.copied_topic import CopiedTopic
from tests.pipeline.test_spark_page import program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LiveCluster = Any  # the class of the fixture, in conftest.py
pytestmark = pytest.mark.cluster


def test_a_query_reads_the_tier_directly_with_the_same_rows_and_checkpoints(
    spark: "SparkSession", live_cluster: LiveCluster, tmp_path: Path
) -> None:
    pytest.importorskip("obstore")
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    copied = CopiedTopic(live_cluster, bucket)
    through_brokers = {
        "kafka.bootstrap.servers": live_cluster.bootstrap,
        "subscribe": copied.name,
        "kafka.isolation.level": "read_committed",
    }
    direct = {**through_brokers, "tier": "direct", "tierUri": f"file://{bucket}"}

    def rows(options: dict[str, str]) -> list[Any]:
        frame = spark.read.format("ottla").options(**options).load()
        return sorted(frame.select("partition", "offset", "value", "timestamp").collect())

    expected = rows(through_brokers)
    assert rows(direct) == expected
    assert len(expected) > 300

    history = program("read_history")
    frame = history(spark, live_cluster.bootstrap, copied.name, f"file://{bucket}")
    # It also has the records of aborted transactions.
    assert frame.select("offset").count() > len(expected)

    def run_stream(options: dict[str, str]) -> None:
        frame = (
            spark.readStream.format("ottla").options(startingOffsets="earliest", **options).load()
        )
        query = (
            frame.select("partition", "offset")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run_stream(direct)
    live_cluster.produce(copied.name, [b"%d" % at for at in range(20)])
    run_stream(through_brokers)
    found = spark.read.parquet(str(tmp_path / "rows")).collect()
    places = sorted((row.partition, row.offset) for row in found)
    assert places == [(row.partition, row.offset) for row in rows(through_brokers)]
