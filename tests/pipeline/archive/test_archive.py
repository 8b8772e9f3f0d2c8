"""Topics in Parquet: each record once, with compaction, backfills and restarts."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.model.errors import ConfigError
from ottla.pipeline.archive.archive import (
    ArchiveOptions,
    arranged,
    clashing,
    own_place,
    start_archive,
)
from ottla.pipeline.archive.archive_directory import ArchiveDirectory
from ottla.pipeline.archive.backfill import TimeSpan, backfill
from ottla.pipeline.archive.compaction import compact
from ottla.pipeline.run.transforms import read_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR_MS = 3_600_000
NOON_MS = 1_785_499_200_000
"""2026-07-31 12:00 UTC."""
NOON = datetime.fromtimestamp(NOON_MS / 1_000, UTC)
END_S = 120
COMPACT_INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"


def produce(live_cluster: Any, topic: str, make_record: Any, numbers: range) -> None:
    """Produce numbered records, one a minute from noon on, over two partitions."""
    live_cluster.produce(
        topic,
        [
            make_record(
                json.dumps({"id": number}).encode() if number % 10 else b"no json",
                partition=number % 2,
                timestamp_ms=NOON_MS + number * 60_000,
            )
            for number in numbers
        ],
    )


def run(spark: "SparkSession", options: ArchiveOptions) -> None:
    """Archive all there is, and wait."""
    with own_place(options):
        query = start_archive(spark, options)
        assert query.awaitTermination(END_S)
        assert query.exception() is None


def options_for(live_cluster: Any, topic: str, output: Path, **changed: Any) -> ArchiveOptions:
    source = {
        "kafka.bootstrap.servers": live_cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "40",
    }
    return ArchiveOptions(output=str(output), name=f"archive-{topic}", source=source, **changed)


def stored(spark: "SparkSession", options: ArchiveOptions) -> list[Any]:
    """Return the archive's rows as Spark reads it now."""
    spark.catalog.refreshByPath(options.output)
    return spark.read.parquet(options.output).collect()


def loud(records: "DataFrame") -> "DataFrame":
    return records.selectExpr("upper(string(value)) as loud", "topic", "date", "hour")


def reported(rows: list[Any]) -> Counter[tuple[int, int]]:
    return Counter((row.partition, row.offset) for row in rows)


def once(ends: dict[int, int]) -> Counter[tuple[int, int]]:
    """Return each record of a topic, once."""
    return Counter((number, offset) for number, end in ends.items() for offset in range(end))


@pytest.fixture
def folded_often(spark: "SparkSession") -> Iterator[None]:
    """Have Spark fold its log each second batch, not each tenth."""
    spark.conf.set(COMPACT_INTERVAL, "2")
    yield
    spark.conf.unset(COMPACT_INTERVAL)


@pytest.mark.usefixtures("folded_often")
def test_an_archive_has_each_record_once_through_compaction_backfill_and_new_records(
    spark: "SparkSession", live_cluster: Any, make_record: Any, tmp_path: Path
) -> None:
    topic = live_cluster.new_topic(2)
    options = options_for(live_cluster, topic, tmp_path / "the lake", schema="id BIGINT")
    late = json.dumps({topic: {"0": 20, "1": 20}})
    produce(live_cluster, topic, make_record, range(120))
    run(spark, replace(options, source={**options.source, "startingOffsets": late}))
    assert set(reported(stored(spark, options))) == {
        (n, at) for n in (0, 1) for at in range(20, 60)
    }

    produce(live_cluster, topic, make_record, range(120, 180))
    span = TimeSpan(start_ms=NOON_MS, end_ms=NOON_MS + 3 * HOUR_MS, late_ms=0)
    # The hole, and not what the stream has yet to come to.
    assert backfill(spark, options, span) == 40
    before_new = once({0: 60, 1: 60})
    assert reported(stored(spark, options)) == before_new

    before = len(ArchiveDirectory(tmp_path / "the lake").live())
    done = compact(tmp_path / "the lake", keep_s=0)
    assert done.merged_count > done.made_count > 0
    assert len(ArchiveDirectory(tmp_path / "the lake").live()) < before
    assert reported(stored(spark, options)) == before_new

    run(spark, options)
    compact(tmp_path / "the lake", keep_s=0)
    found = stored(spark, options)
    assert reported(found) == once(live_cluster.ends(topic))
    assert Counter((row.topic, row.date, row.hour) for row in found) == {
        (topic, date(2026, 7, 31), hour): 60 for hour in (12, 13, 14)
    }
    bad = [bytes(row.bad_value) for row in found if row.value.id is None]
    assert bad == [b"no json"] * 18
    assert backfill(spark, options, span) == 0

    other = replace(options, checkpoint=str(tmp_path / "another checkpoint"))
    with pytest.raises(ConfigError, match="would be taken for written"), own_place(other):
        pass


def test_a_backfill_adds_what_is_missing_and_nothing_else(
    spark: "SparkSession", live_cluster: Any, make_record: Any, tmp_path: Path
) -> None:
    topic = live_cluster.new_topic(2)
    options = options_for(live_cluster, topic, tmp_path / "lake")
    produce(live_cluster, topic, make_record, range(180))
    half = TimeSpan(start_ms=NOON_MS, end_ms=NOON_MS + HOUR_MS // 2, late_ms=0)
    assert backfill(spark, options, half) == 30
    most = TimeSpan(start_ms=NOON_MS + HOUR_MS // 4, end_ms=NOON_MS + 2 * HOUR_MS, late_ms=HOUR_MS)
    assert backfill(spark, options, most) == 90
    found = stored(spark, options)
    assert sorted(row.offset for row in found if row.partition == 0) == list(range(60))
    with (
        pytest.raises(ConfigError, match="has Parquet files of no stream"),
        own_place(options),
    ):
        pass


def test_a_transform_may_change_all_but_the_place(spark: "SparkSession", tmp_path: Path) -> None:
    records = spark.createDataFrame(
        [(b"a", "t", NOON)], "value binary, topic string, timestamp timestamp"
    )
    options = ArchiveOptions(output=str(tmp_path), name="archive", source={}, transform=loud)
    assert [row.loud for row in arranged(records, options).collect()] == ["A"]
    with pytest.raises(ConfigError, match="topic, date, hour is missing"):
        arranged(records, replace(options, transform=lambda found: found.select("value")))


def test_a_backfill_of_what_cannot_be_distinguished_is_refused(
    spark: "SparkSession", live_cluster: Any, tmp_path: Path
) -> None:
    topic = live_cluster.new_topic(1)
    options = options_for(live_cluster, topic, tmp_path / "lake", transform=loud)
    with pytest.raises(ConfigError, match="drops partition, offset, timestamp"):
        backfill(spark, options, TimeSpan(start_ms=0, end_ms=NOON_MS, late_ms=0))


def test_columns_may_come_and_go_but_not_change_their_types(spark: "SparkSession") -> None:
    before = read_schema("key BINARY, value STRUCT<id: BIGINT, name: STRING>")
    assert clashing(before, read_schema("value STRUCT<id: BIGINT, more: INT>, x INT")) == []
    assert clashing(before, read_schema("value STRUCT<id: STRING>")) == [
        "the column value.id as bigint, which would become string"
    ]
    assert clashing(before, read_schema("value BINARY")) == [
        "the column value as struct<id:bigint,name:string>, which would become binary"
    ]
