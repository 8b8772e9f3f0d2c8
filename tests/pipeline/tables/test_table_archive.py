"""Topics in Iceberg and Delta tables by Spark: each record once, and the table has the offsets."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.catalog import load_catalog

from ottla.model.errors import ConfigError
from ottla.pipeline.export.delta_table import open_delta_table
from ottla.pipeline.export.export import ExportOptions, TopicExport
from ottla.pipeline.export.iceberg_table import open_iceberg_table
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.tables.table_archive import (
    TableArchiveOptions,
    TableBatches,
    source_at,
    start_table_archive,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

END_S = 120


class LakeTable:
    """One table of a lake in a directory, of either format."""

    def __init__(self, path: Path, form: str) -> None:
        self._path = path
        self._form = form
        self._catalog = {
            "type": "sql",
            "uri": f"sqlite:///{path}/catalog.db",
            "warehouse": f"file://{path}/the warehouse",
        }

    def open(self) -> AbstractContextManager[Any]:
        if self._form == "delta":
            return open_delta_table(f"delta:{self._path}/orders")
        return open_iceberg_table("iceberg:local.orders", self._catalog)

    def read(self) -> pa.Table:
        if self._form == "delta":
            files = deltalake.DeltaTable(f"{self._path}/orders").file_uris()
            return pa.concat_tables(parquet.read_table(one) for one in files)
        return load_catalog("local", **self._catalog).load_table("default.orders").scan().to_arrow()

    def rows(self) -> list[tuple[int, int, Any]]:
        found = self.read()
        columns = (found.column(name).to_pylist() for name in ("partition", "offset", "value"))
        return sorted(zip(*columns, strict=True), key=lambda row: row[:2])

    def undo(self) -> None:
        """Undo the last commit, as an administrator of the table does."""
        if self._form == "delta":
            log = deltalake.DeltaTable(f"{self._path}/orders")
            log.restore(log.version() - 1)
            return
        table = load_catalog("local", **self._catalog).load_table("default.orders")
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.parent_snapshot_id is not None
        table.manage_snapshots().rollback_to_snapshot(snapshot.parent_snapshot_id).commit()


@pytest.fixture(params=["iceberg", "delta"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTable:
    return LakeTable(tmp_path, request.param)


class Archiver:
    """Runs archives of one topic into one table, each to the topic's end."""

    def __init__(
        self, spark: "SparkSession", lake: LakeTable, options: TableArchiveOptions
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._options = options
        self._runs = 0

    def run(self, path: Path, **changed: Any) -> None:
        options = replace(self._options, **changed)
        self._runs += 1
        checkpoint = path / f"checkpoint-{self._runs}"
        checkpoint.mkdir()
        with self._lake.open() as table:
            source = source_at(table, options)
            query = start_table_archive(self._spark, table, options, source, checkpoint)
            assert query.awaitTermination(END_S)


@contextmanager
def dying_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """End the second batch of a stream between the commit of the table and that of Spark."""
    write = TableBatches._write
    count = 0

    def body(self: TableBatches, rows: "DataFrame", batch_id: int) -> None:
        nonlocal count
        write(self, rows, batch_id)
        count += 1
        if count == 2:
            raise RuntimeError("dies after its commit")

    with monkeypatch.context() as dying:
        dying.setattr(TableBatches, "_write", body)
        yield


def test_each_record_is_in_the_table_once_over_deaths_rollbacks_and_exports(
    spark: "SparkSession",
    live_cluster: Any,
    lake: LakeTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = live_cluster.new_topic(2)
    live_cluster.produce(topic, [b"%d" % number for number in range(90)])
    archiver = Archiver(spark, lake, options_of(live_cluster, topic))

    def log() -> list[tuple[int, int]]:
        return [
            (number, at)
            for number, end in sorted(live_cluster.ends(topic).items())
            for at in range(end)
        ]

    def stored() -> list[tuple[int, int]]:
        return [row[:2] for row in lake.rows()]

    with dying_after_the_commit(monkeypatch), pytest.raises(Exception, match="after its commit"):
        archiver.run(tmp_path)
    assert 0 < len(stored()) < 90
    archiver.run(tmp_path)
    assert stored() == log()
    assert {int(row[2]) for row in lake.rows()} == set(range(90))

    lake.undo()
    assert len(stored()) < 90
    archiver.run(tmp_path)
    assert stored() == log()

    live_cluster.produce(topic, [b"more"] * 10)
    read = ReadOptions(bootstrap=live_cluster.bootstrap)
    with lake.open() as table:
        TopicExport(table, ExportOptions(topic=topic, read=read)).run()
    live_cluster.produce(topic, [b"yet more"] * 10)
    archiver.run(tmp_path)
    assert stored() == log()
    assert lake.read().column("topic").unique().to_pylist() == [topic]

    with pytest.raises(ConfigError, match=r"has the column value as .*binary, and the rows have"):
        archiver.run(tmp_path, schema="id BIGINT")


def options_of(live_cluster: Any, topic: str) -> TableArchiveOptions:
    source = {
        "kafka.bootstrap.servers": live_cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "30",
    }
    return TableArchiveOptions(topic=topic, name=f"table-{topic}", source=source)


def test_json_values_and_transforms_are_columns_of_the_table(
    spark: "SparkSession", live_cluster: Any, lake: LakeTable, tmp_path: Path
) -> None:
    topic = live_cluster.new_topic(1)
    live_cluster.produce(topic, [b'{"id":1,"tags":["a"]}', b"no JSON"])
    options = replace(
        options_of(live_cluster, topic),
        schema="id SMALLINT, tags ARRAY<STRING>",
        transform=lambda rows: rows.selectExpr("*", "value.id * 2 AS twice"),
    )
    archiver = Archiver(spark, lake, options)
    archiver.run(tmp_path)
    live_cluster.produce(topic, [b'{"id":2,"tags":[]}'])
    archiver.run(tmp_path)
    found = lake.read().sort_by("offset")
    assert [one and one["id"] for one in found.column("value").to_pylist()] == [1, None, 2]
    assert found.column("bad_value").to_pylist() == [None, b"no JSON", None]
    assert found.column("twice").to_pylist() == [2, None, 4]
