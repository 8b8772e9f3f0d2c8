"""Tables of exports, read by programs of others: Spark, DuckDB, deltalake and pyiceberg.

Spark's part is a long form, because the pinned Spark has no Iceberg runtime.  It runs where
`OTTLA_TABLE_READERS` names a directory with the Python `bin/python` of a pyspark 4.1, and with the
jars `jars/*.jar`: iceberg-spark-runtime-4.1_2.13, sqlite-jdbc, delta-spark_4.1_2.13 and what the
latter needs.
"""

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import pytest
from pyiceberg.catalog import load_catalog

from ottla.pipeline.export.delta_table import open_delta_table
from ottla.pipeline.export.export import TopicExport
from ottla.pipeline.export.iceberg_table import open_iceberg_table
from ottla.pipeline.export.parquet_directory import open_directory
from ottla.pipeline.maintenance.delta_maintenance import maintain_delta
from ottla.pipeline.maintenance.iceberg_maintenance import maintain_iceberg
from ottla.pipeline.maintenance.maintenance import MaintenanceOptions

if TYPE_CHECKING:
    from tests.pipeline.export.conftest import TopicBench

READERS = "OTTLA_TABLE_READERS"
SPARK_S = 600
VALUES: list[bytes | None] = [None, b"", *(b"%03d" % index for index in range(30))]
QUERY = 'select partition, "offset", value, headers[1].value from {} order by 1, 2'
SPARK_PROGRAM = """
import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

home, jars = sys.argv[1:]
local = "spark.sql.catalog.local"
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.jars", ",".join(map(str, Path(jars).glob("*.jar"))))
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config(
        "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    )
    .config(local, "org.apache.iceberg.spark.SparkCatalog")
    .config(local + ".type", "jdbc")
    .config(local + ".jdbc.schema-version", "V1")
    .config(local + ".uri", f"jdbc:sqlite:{home}/catalog.db")
    .config(local + ".warehouse", f"file://{home}/warehouse")
    .getOrCreate()
)
tables = {
    "iceberg": spark.table("local.sales.orders"),
    "delta": spark.read.format("delta").load(home + "/delta"),
    "directory": spark.read.parquet(home + "/directory"),
}
for name, table in tables.items():
    for row in table.collect():
        value = None if row.value is None else bytes(row.value).hex()
        header = bytes(row.headers[0].value).hex()
        print(json.dumps([name, row.partition, row.offset, value, header]))
"""


class ExportedTables:
    """One topic, exported into a directory, an Iceberg table and a Delta table."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.options = {
            "type": "sql",
            "uri": f"sqlite:///{home}/catalog.db",
            "warehouse": f"file://{home}/warehouse",
        }
        self.rows: list[Any] = []

    def fill(self, bench: "TopicBench") -> None:
        """Export a topic in two steps, and merge the files of both."""
        topic = bench.new_topic(2)
        merge = MaintenanceOptions(keep_s=3_600)
        for _ in range(2):
            self.rows += bench.produce(topic, VALUES, headers=[("h", b"1")])
            with open_directory(self.home / "directory") as directory:
                TopicExport(directory, bench.options(topic)).run()
            with open_iceberg_table("iceberg:local.sales.orders", self.options) as iceberg:
                TopicExport(iceberg, bench.options(topic)).run()
            with open_delta_table(f"delta:{self.home}/delta") as delta:
                TopicExport(delta, bench.options(topic)).run()
        with open_iceberg_table("iceberg:local.sales.orders", self.options) as iceberg:
            assert maintain_iceberg(iceberg, merge).merged_count == 2
        with open_delta_table(f"delta:{self.home}/delta") as delta:
            assert maintain_delta(delta, merge).merged_count == 2
        self.rows = in_order((*row, b"1") for row in self.rows)


@pytest.fixture(scope="module")
def tables(bench: "TopicBench", tmp_path_factory: pytest.TempPathFactory) -> ExportedTables:
    """The tables of a topic with null and empty values."""
    found = ExportedTables(tmp_path_factory.mktemp("tables"))
    found.fill(bench)
    return found


def in_order(rows: Iterable[Any]) -> list[Any]:
    return sorted((tuple(row) for row in rows), key=lambda row: row[:2])


def test_duckdb_deltalake_and_pyiceberg_read_the_rows_of_the_log(tables: ExportedTables) -> None:
    iceberg = load_catalog("local", **tables.options).load_table("sales.orders")
    delta = deltalake.DeltaTable(str(tables.home / "delta"))
    found: dict[str, Any] = {
        "directory by DuckDB": duckdb.sql(QUERY.format(f"'{tables.home}/directory/*.parquet'")),
        "Delta by DuckDB": duckdb.sql(QUERY.format(f"read_parquet({delta.file_uris()})")),
        "Iceberg by pyiceberg": iceberg.scan().to_duckdb("orders").sql(QUERY.format("orders")),
    }
    for reader, rows in found.items():
        assert in_order(rows.fetchall()) == tables.rows, reader
    query = "select partition, \"offset\", value, headers[1]['value'] from orders"
    engine = deltalake.QueryBuilder().register("orders", delta)
    by_deltalake: Any = engine.execute(query).read_all()
    columns = (column.to_pylist() for column in by_deltalake.columns)
    assert in_order(zip(*columns, strict=True)) == tables.rows


@pytest.mark.timeout(SPARK_S + 60)
@pytest.mark.skipif(READERS not in os.environ, reason=f"{READERS} is not set")
def test_spark_reads_the_rows_of_the_log(tables: ExportedTables) -> None:
    readers = Path(os.environ[READERS])
    done = subprocess.run(
        [readers / "bin" / "python", "-c", SPARK_PROGRAM, tables.home, readers / "jars"],
        capture_output=True,
        text=True,
        timeout=SPARK_S,
        env={**os.environ, "PYSPARK_PYTHON": str(readers / "bin" / "python")},
    )
    assert not done.returncode, done.stderr[-4_000:]
    found: dict[str, list[Any]] = {}
    for line in done.stdout.splitlines():
        name, partition, offset, value, header = json.loads(line)
        bytes_of = None if value is None else bytes.fromhex(value)
        row = (partition, offset, bytes_of, bytes.fromhex(header))
        found.setdefault(name, []).append(row)
    assert found.keys() == {"iceberg", "delta", "directory"}
    for name, rows in found.items():
        assert in_order(rows) == tables.rows, name
