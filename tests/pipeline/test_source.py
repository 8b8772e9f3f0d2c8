"""`format("ottla")` in a real Spark: its schema, its rows, and refused options."""

import json
import re
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipeline import OttlaDataSource, register, sentence_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LiveCluster = Any  # the class of the fixture, in conftest.py

pytestmark = pytest.mark.cluster
SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)


def load(spark: "SparkSession", live_cluster: LiveCluster, **options: Any) -> "DataFrame":
    """Read a batch."""
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", live_cluster.bootstrap)
    return reader.options(**options).load()


def values(frame: "DataFrame") -> list[str]:
    """Return all values as text, in order."""
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def test_a_topic_is_a_data_frame_like_that_of_sparks_own_connector(
    spark: "SparkSession", live_cluster: LiveCluster
) -> None:
    topic = live_cluster.new_topic(3)
    live_cluster.produce(topic, [b"%04d" % number for number in range(3_000)], linger_ms=0)
    frame = load(spark, live_cluster, subscribe=topic, minPartitions="4")
    assert frame.schema.simpleString() == spark.createDataFrame([], SCHEMA).schema.simpleString()
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == [f"{number:04}" for number in range(3_000)]
    ends = live_cluster.ends(topic)
    found = frame.groupBy("partition").agg({"offset": "max", "*": "count"}).collect()
    assert {row.partition: row["count(1)"] for row in found} == {
        number: end for number, end in ends.items() if end
    }


def test_a_batch_reads_from_and_to_what_options_say_and_ships_the_columns_that_are_asked_for(
    spark: "SparkSession", live_cluster: LiveCluster, make_record: Any
) -> None:
    topic = live_cluster.new_topic(2)
    live_cluster.produce(topic, [make_record(b"%d" % number, number % 2) for number in range(10)])
    frame = load(
        spark,
        live_cluster,
        assign=json.dumps({topic: [1]}),
        startingOffsets=json.dumps({topic: {"1": 1}}),
        endingOffsets=json.dumps({topic: {"1": 4}}),
        columns="partition,value",
    )
    assert frame.columns == ["value", "partition"]
    assert values(frame) == ["3", "5", "7"]


SENTENCES = [
    ({"subscribe": "nope"}, r"^there is no topic 'nope'$"),
    ({"assign": '{"TOPIC": [0, 7]}'}, r"^there is no partition .*-7$"),
    ({"subscribe": "TOPIC", "includeHeader": "true"}, r"^includeheader: .* is it includeHeaders\?"),
    (
        {"subscribe": "TOPIC", "kafka.sasl.mechanism": "PLAIN"},
        r"^kafka.security.protocol: is PLAINTEXT, and settings of sasl",
    ),
    (
        {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"0": 7}}'},
        r"^startingOffsets names offset 7 of .*-0, whose log has \[0, 1\);",
    ),
    (
        {"subscribe": "TOPIC", "startingOffsets": '{"TOPIC": {"1": 0}}'},
        r"^startingOffsets: says nothing of .*-0$",
    ),
    (
        {
            "subscribe": "TOPIC",
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.default.api.timeout.ms": "500",
        },
        r"^can not read from topics: cannot connect to 127.0.0.1:1: no process listens there$",
    ),
]


@pytest.fixture(scope="module")
def one_record(live_cluster: LiveCluster) -> str:
    topic: str = live_cluster.new_topic()
    live_cluster.produce(topic, [b"only"])
    return topic


@pytest.mark.parametrize(("options", "sentence"), SENTENCES, ids=[one for _, one in SENTENCES])
def test_what_can_not_be_read_is_one_sentence_without_a_traceback(
    spark: "SparkSession",
    live_cluster: LiveCluster,
    one_record: str,
    options: dict[str, str],
    sentence: str,
) -> None:
    texts = {name: text.replace("TOPIC", one_record) for name, text in options.items()}
    with pytest.raises(Exception, match=r"ottla\.pipeline\.TopicError: ") as raised:
        load(spark, live_cluster, **texts).count()
    assert "Traceback" not in str(raised.value)
    assert re.search(sentence, sentence_of(raised.value) or "")


def test_records_that_go_while_they_are_read_are_one_sentence_from_the_task(
    spark: "SparkSession", live_cluster: LiveCluster
) -> None:
    topic = live_cluster.new_topic()
    live_cluster.produce(topic, [b"%d" % number for number in range(10)])
    frame, lenient = (
        load(spark, live_cluster, subscribe=topic, failOnDataLoss=fails, columns="offset")
        for fails in ("true", "false")
    )
    assert frame.rdd.getNumPartitions() == lenient.rdd.getNumPartitions() == 1
    live_cluster.delete_records(topic, {0: 4})
    with pytest.raises(Exception, match=f"{topic}-0") as raised:
        frame.rdd.count()
    assert "Traceback" not in str(raised.value).partition("Driver stacktrace")[0]
    assert sentence_of(raised.value)
    assert sorted(row.offset for row in lenient.collect()) == list(range(4, 10))


def test_spark_finds_the_format_by_itself_also_in_sql(
    spark: "SparkSession", live_cluster: LiveCluster, one_record: str
) -> None:
    spark.sql(
        "CREATE TEMPORARY VIEW seen USING ottla OPTIONS "
        f"(`kafka.bootstrap.servers` '{live_cluster.bootstrap}', subscribe '{one_record}')"
    )
    (row,) = spark.sql("SELECT CAST(value AS string) AS text FROM seen").collect()
    assert row.text == "only"
    spark.catalog.dropTempView("seen")


def test_a_package_of_the_name_that_spark_looks_for_has_the_source() -> None:
    names = [one.name for one in iter_modules() if one.name.startswith("pyspark_")]
    assert [import_module(name).DefaultSource for name in names] == [OttlaDataSource]


def test_a_session_may_be_registered_twice(spark: "SparkSession") -> None:
    register(spark)
    register(spark)
