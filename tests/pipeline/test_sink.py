"""DataFrames and streams become records, by real Spark and a real broker; and what is written twice
is read once."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipeline import sentence_of
from ottla.pipeline.provenance import BATCH, NAMES, PARTITION, QUERY

from .conftest import LiveCluster, Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

END_TIMEOUT_S = 60


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


def forget_last_commit(checkpoint: Path) -> int:
    """Leave what a driver leaves that dies before it notes that a batch is done; return which."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.glob("[0-9]*"))
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink()
    return last


def test_the_columns_of_a_dataframe_become_records(
    spark: "SparkSession", live_cluster: LiveCluster
) -> None:
    topic = live_cluster.new_topic(2)
    frame = spark.sql(
        "SELECT * FROM VALUES "
        "('a', CAST('k' AS BINARY), 1, array(named_struct('key', 'h', 'value', X'76'))), "
        "(NULL, CAST('k' AS BINARY), 1, NULL) AS t(value, key, partition, headers)"
    ).coalesce(1)

    write(frame, live_cluster, topic=topic)

    first, second = read(spark, live_cluster, topic, includeHeaders=True)
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


def test_a_batch_that_spark_repeats_is_read_once(
    spark: "SparkSession", live_cluster: LiveCluster, tmp_path: Path
) -> None:
    """As after a crash between what the sink wrote and the line in Spark's commit log."""
    source, copy = live_cluster.new_topic(4), live_cluster.new_topic(3)
    live_cluster.produce(
        source, (Record(b"%d" % n, key=b"%d" % (n % 7) if n % 2 else None) for n in range(3_000))
    )
    checkpoint = tmp_path / "checkpoint"

    def run() -> "StreamingQuery":
        query = (
            spark.readStream.format("ottla")
            .option("kafka.bootstrap.servers", live_cluster.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 1_000)
            .option("minPartitions", 2)
            .load()
            .select("key", "value")
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", live_cluster.bootstrap)
            .option("topic", copy)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(END_TIMEOUT_S)
        return query

    query = run()
    written = sum(live_cluster.ends(copy).values())
    last = forget_last_commit(checkpoint)
    run()

    rows = read(spark, live_cluster, copy, includeHeaders=True)
    assert written == 3_000
    assert len(rows) > 3_000, "the last batch was written again"
    values = Counter(row.value for row in read(spark, live_cluster, copy, dropReplays=True))
    assert values == Counter(b"%d" % n for n in range(3_000))
    stamps = [{header.key: header.value for header in row.headers} for row in rows]
    assert {stamp[QUERY] for stamp in stamps} == {str(query.id).encode()}
    assert {int(stamp[BATCH]) for stamp in stamps} == set(range(last + 1))
    assert {int(stamp[PARTITION]) for stamp in stamps} == {0, 1}


@pytest.fixture(name="twice")
def write_twice(spark: "SparkSession", live_cluster: LiveCluster) -> Callable[..., str]:
    """Writes one DataFrame twice under one name, the second time from the other end."""

    def twice(**options: Any) -> str:
        topic = live_cluster.new_topic(1)
        once = {"topic": topic, "txnAppId": "app", "txnVersion": 4, **options}
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


def test_where_order_is_left_to_chance_a_reader_is_told(
    spark: "SparkSession", live_cluster: LiveCluster, twice: Callable[..., str]
) -> None:
    topic = twice()

    with pytest.raises(Exception) as failed:
        read(spark, live_cluster, topic, dropReplays=True)
    assert "batch 4 of query app was written twice with different rows" in str(
        sentence_of(failed.value)
    )
    assert len(read(spark, live_cluster, topic, dropReplays=True, failOnDataLoss=False)) == 200
