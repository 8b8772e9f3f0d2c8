"""Versions of Spark and its libraries that work together: the table of docs/spark.md.  Pure.

Each entry was found in Maven Central or in the metadata of a Python package on 2026-11-28. The
table also records that a library has no release for a version of Spark: an empty text. `ottla
doctor spark` compares the installed packages with this table, and a test compares it with the page.
"""

from typing import NamedTuple


class SparkVersion(NamedTuple):
    """A minor version of Spark, and the newest versions of its libraries."""

    spark: str
    is_supported: bool
    """True if Ottla's data source works with this version of Spark; False if it needs a newer
    one."""
    java: str
    kafka_connector: str
    """Newest version of org.apache.spark:spark-sql-kafka-0-10_2.13. Empty if no version supports
    this Spark."""
    avro: str
    """Newest version of org.apache.spark:spark-avro_2.13. Empty if no version supports this
    Spark."""
    delta: str
    """Newest version of the Python package delta-spark for this version of Spark, or an empty text.
    That package requires a matching version of pyspark."""
    iceberg: str
    """Newest version of org.apache.iceberg:iceberg-spark-runtime-<Spark>_2.13. Empty if no version
    supports this Spark."""


SPARK_VERSIONS = (
    SparkVersion("4.3", True, "17, 21", "", "", "", ""),
    SparkVersion("4.2", True, "17, 21", "4.2.0", "4.2.0", "4.4.1", ""),
    SparkVersion("4.1", False, "17, 21", "4.1.1", "4.1.1", "4.3.1", "1.12.0"),
)
PREFERRED = SPARK_VERSIONS[1]
"""Version of Spark that the extra `spark` installs: the newest version for which most libraries
exist."""
LIBRARIES = {
    "kafka_connector": "Spark's Kafka connector",
    "avro": "spark-avro",
    "delta": "delta-spark",
    "iceberg": "Iceberg's runtime",
}
"""Names of Spark's libraries in messages, by their fields in SparkVersion."""
TABLE_FORMATS = "Parquet, Iceberg, Delta"
"""Names of the table formats that `pipeline archive` writes. They need none of the libraries in
this module: Spark writes the files, and pyiceberg or deltalake (from the extra `tables`) commit
them."""
HEADERS = (
    "Spark and pyspark",
    '`format("ottla")`',
    "`archive --table-format`",
    "Java",
    *LIBRARIES.values(),
)
MISSING = "does not exist"


def version_for(pyspark: str) -> SparkVersion | None:
    """Return the row of the table of Spark versions for an installed pyspark, or None if the table
    does not contain it."""
    minor = ".".join(pyspark.split(".")[:2])
    return next((row for row in SPARK_VERSIONS if row.spark == minor), None)


def missing_libraries(row: SparkVersion) -> list[str]:
    """Return the names of the libraries, such as delta-spark, that have no release for this version
    of Spark."""
    return [name for field, name in LIBRARIES.items() if not getattr(row, field)]


def page_rows() -> list[str]:
    """Return the table of Spark versions as the lines of a Markdown table."""
    lines = [HEADERS, tuple("---" for _ in HEADERS)]
    for row in SPARK_VERSIONS:
        libraries = (getattr(row, field) or MISSING for field in LIBRARIES)
        ours = ("yes", TABLE_FORMATS) if row.is_supported else ("no", "no")
        lines.append((row.spark, *ours, row.java, *libraries))
    return [
        "|" + "|".join("---" if cell == "---" else f" {cell} " for cell in line) + "|"
        for line in lines
    ]
