"""Spark reads the same records of all kinds from a topic as confluent-kafka's consumer."""

from typing import TYPE_CHECKING

import pytest

from ottla.bench.spark.spark_mix import write_mix
from ottla.bench.spark.spark_round_trip import compare_topic
from ottla.pipeline import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipeline.conftest import LiveCluster

COUNT = 4_000


@pytest.mark.cluster
def test_records_of_all_kinds_and_codecs_come_through_spark_as_they_are(
    spark: "SparkSession", live_cluster: "LiveCluster"
) -> None:
    register(spark)
    topic = live_cluster.new_topic(3)
    write_mix(live_cluster.bootstrap, topic, COUNT, has_keys=False)
    found = compare_topic(spark, live_cluster.bootstrap, topic)
    assert found.records == COUNT
    assert 0 < found.with_headers < COUNT
    assert 0 < found.null_keys < COUNT
    assert 0 < found.null_values < COUNT
