"""Streams in a real Spark over a real broker: batches, restarts, losses, and offsets of groups."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline import sentence_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

LiveCluster = Any  # the class of the fixture, in conftest.py
Batches = dict[int, list[str]]
Stream = Callable[..., Batches]

pytestmark = pytest.mark.cluster


def writer(
    spark: "SparkSession", live_cluster: LiveCluster, batches: Batches, **options: str
) -> "DataStreamWriter":
    """Plan a stream that keeps the values of each batch."""

    def keep(frame: "DataFrame", batch_id: int) -> None:
        batches[batch_id] = sorted(bytes(row.value).decode() for row in frame.collect())

    reader = spark.readStream.format("ottla").option(
        "kafka.bootstrap.servers", live_cluster.bootstrap
    )
    rows: DataFrame = reader.options(**{"columns": "value", **options}).load()
    return rows.writeStream.foreachBatch(keep)


@pytest.fixture
def stream(spark: "SparkSession", live_cluster: LiveCluster, tmp_path: Path) -> Stream:
    """A function that runs a stream until it has read all present records, with one checkpoint."""

    def run(*, name: str = "", **options: str) -> Batches:
        batches: Batches = {}
        planned = writer(spark, live_cluster, batches, **options)
        planned = planned.queryName(name) if name else planned
        planned = planned.option("checkpointLocation", str(tmp_path / "checkpoint"))
        planned.trigger(availableNow=True).start().awaitTermination()
        return batches

    return run


def numbers(*bounds: int) -> list[bytes]:
    return [f"{number:03}".encode() for number in range(*bounds)]


def texts(*bounds: int) -> list[str]:
    return [one.decode() for one in numbers(*bounds)]


def test_batches_are_as_large_as_admitted_and_a_restart_goes_on_behind_the_last(
    live_cluster: LiveCluster, stream: Stream
) -> None:
    topic = live_cluster.new_topic()
    live_cluster.produce(topic, numbers(25))
    given = {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 5}}}}'}
    first = stream(name="restarted", maxOffsetsPerTrigger="10", **given)
    assert first == {0: texts(5, 15), 1: texts(15, 25)}
    live_cluster.produce(topic, numbers(25, 40))
    assert stream(name="restarted", **given) == {2: texts(25, 40)}
    # Its last batch too, which a source never learns of.
    live_cluster.wait_for(
        lambda: live_cluster.group("spark-restarted") == {TopicPartition(topic, 0): 40},
        "the group of the query at 40",
    )


def test_a_first_batch_that_died_before_it_was_noted_is_repeated_as_it_was(
    live_cluster: LiveCluster, stream: Stream, tmp_path: Path
) -> None:
    topic = live_cluster.new_topic()
    live_cluster.produce(topic, numbers(5))
    given = {"subscribe": topic, "startingTimestamp": "1"}
    assert stream(**given) == {0: texts(5)}
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    live_cluster.produce(topic, numbers(5, 8))
    # Asked again where the query begins, it would say another place now.
    again = stream(subscribe=topic, startingOffsets="latest")
    assert again == {0: texts(5), 1: texts(5, 8)}


def test_what_is_lost_ends_a_stream_in_one_sentence_or_is_left_out_as_it_is_reported(
    live_cluster: LiveCluster, stream: Stream
) -> None:
    topic = live_cluster.new_topic()
    live_cluster.produce(topic, numbers(5))
    given = {"subscribe": topic, "startingOffsets": "earliest"}
    assert stream(**given) == {0: texts(5)}
    # Retention was faster.
    live_cluster.produce(topic, numbers(5, 20))
    live_cluster.delete_records(topic, {0: 12})
    with pytest.raises(Exception, match="TopicError") as raised:
        stream(**given)
    assert f"{topic}-0" in (sentence_of(raised.value) or "")
    assert stream(failOnDataLoss="false", **given) == {1: texts(12, 20)}
    # Another topic has the name, and as many records.
    live_cluster.ask(lambda admin: admin.delete_topic(topic))
    live_cluster.new_topic(name=topic)
    live_cluster.produce(topic, numbers(20, 40))
    with pytest.raises(Exception, match="TopicError") as raised:
        stream(**given)
    assert "Traceback" not in str(raised.value)
    sentence = sentence_of(raised.value) or ""
    assert sentence.startswith(f"topic '{topic}' was deleted and created again")
    assert stream(failOnDataLoss="false", **given) == {2: texts(20, 40)}


def test_a_running_stream_finds_partitions_and_topics_that_come(
    spark: "SparkSession", live_cluster: LiveCluster, make_record: Any
) -> None:
    batches: Batches = {}
    live_cluster.new_topic(name="coming-1")
    pattern = {"subscribePattern": "coming-.*"}
    query = writer(spark, live_cluster, batches, **pattern).start()
    try:
        live_cluster.wait_for(lambda: 0 in batches, "the first batch")
        live_cluster.ask(lambda admin: admin.create_partitions("coming-1", 2))
        live_cluster.wait_for(lambda: len(live_cluster.ends("coming-1")) == 2, "two partitions")
        live_cluster.produce("coming-1", [make_record(b"new partition", 1)])
        live_cluster.new_topic(name="coming-2")
        live_cluster.produce("coming-2", [b"new topic"])
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(value for batch in batches.values() for value in batch) == [
        "new partition",
        "new topic",
    ]


def test_an_option_that_a_stream_can_not_honour_is_one_sentence(
    live_cluster: LiveCluster, stream: Stream
) -> None:
    with pytest.raises(Exception, match="TopicError") as raised:
        stream(subscribe="t", endingOffsets="latest")
    assert sentence_of(raised.value) == "endingOffsets: may not be set: a stream has no end"
