"""Every program of docs/spark.md runs, and every option is on the page."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.model.settings.declare import definitions
from ottla.pipeline.read.source_options import SourceSettings
from ottla.pipeline.write.sink_options import SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LiveCluster = Any  # the class of the fixture, in conftest.py

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def program(name: str) -> Any:
    """Run the page's program that defines a function; return the function."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if f"def {name}(" in block]
    names: dict[str, Any] = {}
    exec(compile(found, f"{PAGE.name}: {name}", "exec"), names)
    return names[name]


def test_every_option_of_a_read_is_on_the_page() -> None:
    reported = set(re.findall(r"`([\w.]+)`", PAGE.read_text().partition("## Options of a read")[2]))
    assert set(definitions(SourceSettings)) <= reported


def test_every_option_of_a_write_is_on_the_page() -> None:
    reported = set(
        re.findall(r"`([\w.]+)`", PAGE.read_text().partition("## Options of a write")[2])
    )
    assert set(definitions(SinkOptions)) <= reported


@pytest.mark.cluster
def test_the_programs_that_read_do(
    spark: "SparkSession", live_cluster: LiveCluster, tmp_path: Path
) -> None:
    live_cluster.new_topic(2, name="orders")
    live_cluster.produce("orders", [(b"%d" % number, b"k") for number in range(10)])
    rows = program("read_orders")(spark, live_cluster.bootstrap).collect()
    assert sorted(row.value for row in rows) == [str(number) for number in range(10)]
    program("copy_to_parquet")(spark, live_cluster.bootstrap, str(tmp_path)).awaitTermination()
    copied = spark.read.parquet(str(tmp_path / "orders"))
    assert sorted(int(bytes(row.value)) for row in copied.collect()) == list(range(10))
    live_cluster.wait_for(
        lambda: sum(live_cluster.group("spark-orders-copy").values()) == 10, "the group at the end"
    )


@pytest.mark.cluster
def test_the_programs_that_write_do(
    spark: "SparkSession", live_cluster: LiveCluster, tmp_path: Path
) -> None:
    for topic in ("invoices", "invoices-with-key"):
        live_cluster.new_topic(2, name=topic)
    program("write_invoices")(spark.range(10), live_cluster.bootstrap)
    forward = program("forward_invoices")(spark, live_cluster.bootstrap, str(tmp_path))
    forward.awaitTermination()
    rows = program("read_exactly_once")(spark, live_cluster.bootstrap, "invoices-with-key")
    assert rows.count() == 10
