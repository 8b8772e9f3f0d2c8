"""A Spark session for measurements, with Ottla's data source, confluent-kafka's, and Spark's own
connector from jars."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.model.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEMORY = "2g"


@contextmanager
def open_spark(name: str, *, master: str, jars: Path | None) -> Iterator["SparkSession"]:
    """Start Spark with all data sources that are compared, and yield the session.  It stops at the
    end of the block."""
    from ottla.bench.spark.spark_confluent import ConfluentSource
    from ottla.pipeline.run.session import SessionOptions, open_session

    settings = {"spark.driver.memory": MEMORY, "spark.sql.shuffle.partitions": "2"}
    if jars is not None:
        found = sorted(str(jar) for jar in jars.glob("*.jar")) if jars.is_dir() else []
        if not found:
            raise ConfigError("--jars", f"{jars} is no directory that holds jars")
        settings["spark.jars"] = ",".join(found)
    options = SessionOptions(name=name, master=master, conf=tuple(settings.items()))
    with open_session(options) as spark:
        spark.dataSource.register(ConfluentSource)
        yield spark


def jvm_pid(spark: "SparkSession") -> int:
    """Return the process id of Spark's JVM.  The Python workers are its descendants."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    return int(gateway.proc.pid)
