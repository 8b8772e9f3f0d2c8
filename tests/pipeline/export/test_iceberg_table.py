"""Exports into Iceberg tables: rows and position in one commit, and zombies add nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from ottla.model.errors import ConfigError, RefusedError
from ottla.pipeline.export.export import ExportFigures, ExportOptions, TopicExport
from ottla.pipeline.export.iceberg_table import IcebergTable, open_iceberg_table, position_of
from ottla.pipeline.export.table_position import POSITION_KEY

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import LogRow, TopicBench

VALUES = [b"%03d" % index for index in range(30)]
TARGET = "iceberg:local.sales.orders"


class Lakehouse:
    """A catalog in SQLite, and exports into its one table."""

    def __init__(self, path: Path) -> None:
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{path}/catalog.db",
            "warehouse": f"file://{path}/warehouse",
        }

    @contextmanager
    def open(self) -> Iterator[IcebergTable]:
        with open_iceberg_table(TARGET, self.options) as sink:
            yield sink

    def export(self, options: ExportOptions) -> ExportFigures:
        with self.open() as sink:
            return TopicExport(sink, options).run()

    def table(self) -> Table:
        return load_catalog("local", **self.options).load_table("sales.orders")

    def rows(self) -> list[Any]:
        found = self.table().scan(selected_fields=("partition", "offset", "value")).to_arrow()
        columns = (found.column(name).to_pylist() for name in ("partition", "offset", "value"))
        return sorted(zip(*columns, strict=True))


@pytest.fixture
def lakehouse(tmp_path: Path) -> Lakehouse:
    return Lakehouse(tmp_path)


def test_every_record_is_in_the_table_once_with_its_position(
    bench: "TopicBench", lakehouse: Lakehouse
) -> None:
    topic = bench.new_topic(2)
    rows = bench.produce(topic, VALUES, headers=[("h", b"1")])
    options = bench.options(topic)
    assert lakehouse.export(options).committed_count == 30
    assert lakehouse.export(options).committed_count == 0
    rows = sorted([*rows, *bench.produce(topic, VALUES)])
    assert lakehouse.export(options).committed_count == 30
    assert lakehouse.rows() == rows
    table = lakehouse.table()
    found = table.scan().to_arrow()
    headers = found.column("headers").to_pylist()
    assert headers.count([{"key": "h", "value": b"1"}]) == 30  # pyiceberg reads a null list as []
    assert found.column("topic").unique().to_pylist() == [topic]
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary.additional_properties[POSITION_KEY] == table.properties[POSITION_KEY]
    assert "commit.retry.num-retries" not in table.properties


def test_json_values_are_columns_of_the_table(bench: "TopicBench", lakehouse: Lakehouse) -> None:
    topic = bench.new_topic()
    bench.produce(topic, [b'{"id":1,"tags":["a"]}', b"no JSON"])
    lakehouse.export(bench.options(topic, is_json=True))
    bench.produce(topic, [b'{"id":2,"tags":[]}'])
    lakehouse.export(bench.options(topic, is_json=True))
    found = lakehouse.table().scan().to_arrow().sort_by("offset")
    assert found.column("value").to_pylist() == [
        {"id": 1, "tags": ["a"]}, None, {"id": 2, "tags": []},
    ]  # fmt: skip
    assert found.column("bad_value").to_pylist() == [None, b"no JSON", None]
    with pytest.raises(ConfigError, match="has values as JSON"):
        lakehouse.export(bench.options(topic))


def test_an_older_export_that_wakes_up_adds_nothing(
    bench: "TopicBench", lakehouse: Lakehouse
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    lakehouse.export(bench.options(topic))
    rows += bench.produce(topic, VALUES)
    with lakehouse.open() as sink:
        zombie = TopicExport(sink, bench.options(topic))
        lakehouse.export(bench.options(topic))
        with pytest.raises(RefusedError, match=r"another export has written .* at commit 2"):
            zombie.run()
    assert lakehouse.rows() == rows


def test_a_commit_is_repeated_on_what_maintenance_has_left(
    bench: "TopicBench", lakehouse: Lakehouse
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    lakehouse.export(bench.options(topic))
    rows += bench.produce(topic, VALUES)
    with lakehouse.open() as sink:
        exporter = TopicExport(sink, bench.options(topic))
        # Rewriting files, as compaction does, makes a snapshot without a position.
        table = lakehouse.table()
        table.overwrite(table.scan().to_arrow())
        exporter.run()
    assert lakehouse.rows() == sorted(rows)
    found = position_of(lakehouse.table(), "here")
    assert found is not None
    assert found.next_offsets == {0: 60}


def test_a_rollback_moves_the_position_back_with_the_rows(
    bench: "TopicBench", lakehouse: Lakehouse
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    lakehouse.export(bench.options(topic))
    first = lakehouse.table().current_snapshot()
    assert first is not None
    rows += bench.produce(topic, VALUES)
    lakehouse.export(bench.options(topic))
    lakehouse.table().manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert lakehouse.export(bench.options(topic)).committed_count == 30
    assert lakehouse.rows() == rows


def test_the_position_outlives_the_snapshots_that_had_it(
    bench: "TopicBench", lakehouse: Lakehouse
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    lakehouse.export(bench.options(topic))
    old = lakehouse.table().current_snapshot()
    assert old is not None
    table = lakehouse.table()
    table.overwrite(table.scan().to_arrow())
    table = lakehouse.table()
    current = table.current_snapshot()
    assert current is not None
    gone = [one.snapshot_id for one in table.snapshots() if one != current]
    table.maintenance.expire_snapshots().by_ids(gone).commit()
    assert len(lakehouse.table().snapshots()) == 1
    assert lakehouse.export(bench.options(topic)).committed_count == 0
    assert lakehouse.rows() == rows


def test_a_file_of_an_export_that_died_is_in_no_snapshot(
    bench: "TopicBench", lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.new_topic()
    rows: list[LogRow] = bench.produce(topic, VALUES)

    def die(*arguments: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("pyiceberg.table.Transaction.commit_transaction", die)
        with pytest.raises(KeyboardInterrupt):
            lakehouse.export(bench.options(topic))
    lakehouse.export(bench.options(topic))
    assert lakehouse.rows() == rows


def test_a_lost_response_of_the_catalog_is_no_second_commit(
    bench: "TopicBench", lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    commit = SqlCatalog.commit_table

    def lose(*arguments: Any, **settings: Any) -> None:
        commit(*arguments, **settings)
        raise CommitFailedException("branch main has changed")

    with monkeypatch.context() as losing:
        losing.setattr(SqlCatalog, "commit_table", lose)
        assert lakehouse.export(bench.options(topic)).committed_count == 30
    assert lakehouse.rows() == rows


def test_a_table_of_something_else_and_bad_names_are_refused(
    bench: "TopicBench", lakehouse: Lakehouse
) -> None:
    catalog = load_catalog("local", **lakehouse.options)
    catalog.create_namespace("sales")
    data = pa.table({"a": [1]})
    catalog.create_table("sales.orders", data.schema).append(data)
    with pytest.raises(ConfigError, match="has rows of something else"):
        lakehouse.export(bench.options("orders"))
    for target in ("iceberg:local", "iceberg:local.", "iceberg:.a"):
        with (
            pytest.raises(ConfigError, match=r"must be iceberg:CATALOG\.TABLE"),
            open_iceberg_table(target, {}),
        ):
            pass
    with (
        pytest.raises(ConfigError, match=r"can not be opened: .* --catalog-option uri=ADDRESS"),
        open_iceberg_table("iceberg:unknown.orders", {}),
    ):
        pass
