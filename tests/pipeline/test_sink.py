"""DataFrames and streams are written as records, by real Spark and a real broker; records written
twice are read once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipeline import sentence_of
from ottla.pipeline.write.provenance import NAMES

from .conftest import LiveCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write(frame: "DataFrame", cluster: LiveCluster, **options: Any) -> None:
    (
        frame.write.format("ottla")
        .mode("append")
        .options(**{"kafka.bootstrap.servers": cluster.bootstrap, **options})
        .save()
    )


def read(spark: "SparkSession", cluster: LiveCluster, topic: str, **options: Any) -> list[Any]:
    frame = (
        spark.read.format("ottla")
        .options(**{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, **options})
        .load()
    )
    return frame.orderBy("partition", "offset").collect()


def test_the_columns_of_a_dataframe_become_records(
    spark: "SparkSession", live_cluster: LiveCluster
) -> None:
    topic = live_cluster.new_topic(2)
    frame = spark.sql(
        "SELECT * FROM VALUES "
        "('a', CAST('k' AS BINARY), 1, array(named_struct('key', 'h', 'value', X'76'))), "
        "(NULL, CAST('k' AS BINARY), 1, NULL) AS t(value, key, partition, headers)"
    ).coalesce(1)

    write(frame, live_cluster, topic=topic, transactions=True)

    committed = {"kafka.isolation.level": "read_committed"}
    first, second = read(spark, live_cluster, topic, includeHeaders=True, **committed)
    assert (first.value, first.key, first.partition) == (b"a", b"k", 1)
    assert (second.value, second.key, second.partition) == (None, b"k", 1)
    assert [header.key for header in first.headers] == ["h", *NAMES]
    assert first.headers[0].value == b"v"
    assert [header.key for header in second.headers] == list(NAMES)


@pytest.mark.parametrize(
    ("sql", "sentence"),
    [
        ("'x' AS text", "column value: is missing: it is what a record holds"),
        ("'x' AS value, 7 AS partition", "there is no partition "),
    ],
)
def test_what_can_not_be_written_is_one_sentence_from_the_driver_and_from_tasks(
    spark: "SparkSession", live_cluster: LiveCluster, sql: str, sentence: str
) -> None:
    topic = live_cluster.new_topic(1)

    with pytest.raises(Exception) as failed:
        write(spark.sql(f"SELECT {sql}"), live_cluster, topic=topic)

    found = sentence_of(failed.value)
    assert found is not None
    assert found.startswith(sentence)
    assert "Traceback" not in str(failed.value)
    assert live_cluster.ends(topic) == {0: 0}


@pytest.fixture(name="twice")
def write_twice(spark: "SparkSession", live_cluster: LiveCluster) -> Callable[..., str]:
    """Writes one DataFrame twice under one name, the second time from the other end."""

    def twice(**options: Any) -> str:
        topic = live_cluster.new_topic(1)
        once = {"topic": topic, "txnAppId": "app", "txnVersion": 4, **options}
        once["transactions"] = False
        frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value", "id").coalesce(1)
        for order in ("id", "-id"):
            write(
                frame.selectExpr("value", f"{order} AS id").sortWithinPartitions("id"),
                live_cluster,
                **once,
            )
        return topic

    return twice


def test_a_batch_write_that_is_repeated_by_its_name_is_read_once_whatever_its_order(
    spark: "SparkSession", live_cluster: LiveCluster, twice: Callable[..., str]
) -> None:
    topic = twice(sortRows=True)

    assert live_cluster.ends(topic) == {0: 200}
    assert len(read(spark, live_cluster, topic, dropReplays=True)) == 100


def test_where_order_is_left_to_chance_a_reader_learns(
    spark: "SparkSession", live_cluster: LiveCluster, twice: Callable[..., str]
) -> None:
    topic = twice()

    with pytest.raises(Exception) as failed:
        read(spark, live_cluster, topic, dropReplays=True)
    assert "batch 4 of query app was written twice with different rows" in str(
        sentence_of(failed.value)
    )
    assert len(read(spark, live_cluster, topic, dropReplays=True, failOnDataLoss=False)) == 200
