"""Exports into Delta tables: rows and position in one commit, and zombies add nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError
from pyarrow import parquet

from ottla.model.errors import ConfigError, RefusedError
from ottla.pipeline.export.delta_table import DeltaTable, open_delta_table, position_of
from ottla.pipeline.export.export import ExportFigures, ExportOptions, TopicExport

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import TopicBench

VALUES = [b"%03d" % index for index in range(30)]


class DeltaLake:
    """Exports into one Delta table."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def open(self) -> Iterator[DeltaTable]:
        with open_delta_table(f"delta:{self.path}") as sink:
            yield sink

    def export(self, options: ExportOptions) -> ExportFigures:
        with self.open() as sink:
            return TopicExport(sink, options).run()

    def log(self) -> Any:
        return deltalake.DeltaTable(str(self.path))

    def table(self) -> pa.Table:
        """Return all rows, read by Arrow from the files that the log names."""
        return pa.concat_tables(parquet.read_table(one) for one in self.log().file_uris())

    def rows(self) -> list[Any]:
        found = self.table()
        columns = (found.column(name).to_pylist() for name in ("partition", "offset", "value"))
        return sorted(zip(*columns, strict=True))


@pytest.fixture
def lake(tmp_path: Path) -> DeltaLake:
    return DeltaLake(tmp_path / "orders")


def test_every_record_is_in_the_table_once_with_its_position(
    bench: "TopicBench", lake: DeltaLake
) -> None:
    topic = bench.new_topic(2)
    rows = bench.produce(topic, VALUES, headers=[("h", b"1")])
    options = bench.options(topic)
    assert lake.export(options).committed_count == 30
    assert lake.export(options).committed_count == 0
    rows = sorted([*rows, *bench.produce(topic, VALUES)])
    assert lake.export(options).committed_count == 30
    assert lake.rows() == rows
    assert lake.log().schema().to_arrow().names == lake.table().schema.names
    found = position_of(lake.log(), "here")
    assert found is not None
    assert sum(found.next_offsets.values()) == 60


def test_an_older_export_that_wakes_up_adds_nothing(bench: "TopicBench", lake: DeltaLake) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    lake.export(bench.options(topic))
    rows += bench.produce(topic, VALUES)
    with lake.open() as sink:
        zombie = TopicExport(sink, bench.options(topic))
        lake.export(bench.options(topic))
        with pytest.raises(RefusedError, match=r"another export has written .* at commit 2"):
            zombie.run()
    assert lake.rows() == rows


def test_a_commit_is_repeated_on_what_maintenance_has_left(
    bench: "TopicBench", lake: DeltaLake
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    for begin in (0, 30):
        lake.export(bench.options(topic))
        rows += bench.produce(topic, VALUES[begin:])
    with lake.open() as sink:
        exporter = TopicExport(sink, bench.options(topic))
        lake.log().optimize.compact()
        exporter.run()
    assert lake.rows() == sorted(rows)
    # A checkpoint keeps the number of the last commit, and the log its position.
    lake.log().create_checkpoint()
    assert lake.export(bench.options(topic)).committed_count == 0


def test_a_restored_version_moves_the_position_back_with_the_rows(
    bench: "TopicBench", lake: DeltaLake
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    lake.export(bench.options(topic))
    version = lake.log().version()
    rows += bench.produce(topic, VALUES)
    lake.export(bench.options(topic))
    lake.log().restore(version)
    assert lake.export(bench.options(topic)).committed_count == 30
    assert lake.rows() == rows
    lake.log().restore(0)
    assert lake.export(bench.options(topic)).committed_count == 60
    assert lake.rows() == rows


def test_a_position_that_was_cleaned_from_the_log_is_an_error(
    bench: "TopicBench", lake: DeltaLake
) -> None:
    topic = bench.new_topic()
    bench.produce(topic, VALUES)
    lake.export(bench.options(topic))
    lake.log().optimize.compact()
    lake.log().create_checkpoint()
    for entry in sorted((lake.path / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    last = lake.path / "_delta_log" / f"{lake.log().version():020}.json"
    last.write_text("".join(
        line for line in last.read_text().splitlines(keepends=True) if "commitInfo" not in line
    ))  # fmt: skip
    with pytest.raises(ConfigError, match="no longer has their position"):
        lake.export(bench.options(topic))


def test_a_lost_acknowledgement_is_no_second_commit(
    bench: "TopicBench", lake: DeltaLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = bench.new_topic()
    rows = bench.produce(topic, VALUES)
    commit = deltalake.DeltaTable.create_write_transaction

    def lose(*arguments: Any, **settings: Any) -> None:
        commit(*arguments, **settings)
        raise CommitFailedError("the version exists")

    with monkeypatch.context() as losing:
        losing.setattr(deltalake.DeltaTable, "create_write_transaction", lose)
        assert lake.export(bench.options(topic)).committed_count == 30
    assert lake.rows() == rows


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    with pytest.raises(ConfigError, match="something else"), open_delta_table(f"delta:{tmp_path}"):
        pass
    deltalake.write_deltalake(str(tmp_path / "other"), pa.table({"a": [1]}))
    with (
        pytest.raises(ConfigError, match="has rows of something else"),
        open_delta_table(f"delta:{tmp_path}/other"),
    ):
        pass
    with (
        pytest.raises(ConfigError, match="must be a directory of this machine"),
        open_delta_table("delta:s3://lake/orders", option="--output"),
    ):
        pass
