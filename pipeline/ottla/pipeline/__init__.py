"""Topics as Spark DataFrames, and ready-made pipelines.

This package imports neither pyspark nor pyarrow, because `ottla doctor spark` must work if they are
not installed.

Modules that all sub-packages use
java.py             finds a Java that can run Spark
option_values.py    parses the texts of Spark's options (pure)
loop_thread.py      the client's event loop in a thread, for blocking callers
one_sentence.py     errors of a worker as one line, without a traceback

The sub-packages, each of which imports only those above it
run/                common parts of all pipelines
registry/           columns of records with a schema registry
write/              DataFrames and streams into topics
read/               topics as DataFrames and streams
archive/            topics as Parquet files, by Spark
export/             topics as tables, without Spark
maintenance/        maintenance of exported tables
tables/             topics as Iceberg and Delta tables, by Spark
doctor/             the check that a machine can run pipelines
rollup/             rollups of client metrics by window

The entry point
source.py           topics as a data source of Spark: start here
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipeline.java import find_java
    from ottla.pipeline.one_sentence import TopicError, sentence_of
    from ottla.pipeline.registry.registry_columns import from_registry, to_registry
    from ottla.pipeline.source import OttlaDataSource, register

__all__ = [
    "OttlaDataSource",
    "TopicError",
    "find_java",
    "from_registry",
    "register",
    "sentence_of",
    "to_registry",
]

_HOME = {
    "OttlaDataSource": "ottla.pipeline.source",
    "TopicError": "ottla.pipeline.one_sentence",
    "find_java": "ottla.pipeline.java",
    "from_registry": "ottla.pipeline.registry.registry_columns",
    "to_registry": "ottla.pipeline.registry.registry_columns",
    "register": "ottla.pipeline.source",
    "sentence_of": "ottla.pipeline.one_sentence",
}


def __getattr__(name: str) -> Any:
    """Import and return the public object `name` of this package, and load only the module that
    defines it."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
