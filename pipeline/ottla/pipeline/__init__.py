"""Topics as Spark DataFrames, and pipelines to run as they are.

Importing this imports neither pyspark nor pyarrow: `ottla doctor spark` must work where they lack.

For all rooms
java.py             finds the Java that Spark runs on
option_values.py    options as Spark hands them over (pure)
loop_thread.py      the client's loop in a thread, for callers that block
one_sentence.py     what goes wrong in a worker, without its traceback

The rooms, each of which imports only those above it
run/                what runs a pipeline, whichever it is
write/              DataFrames and streams into topics
read/               topics as DataFrames and streams
archive/            topics as Parquet files
doctor/             whether a machine can run pipelines
rollup/             what clients report of themselves, rolled up by windows

The door
source.py           topics as a data source of Spark: start here
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipeline.java import find_java
    from ottla.pipeline.one_sentence import TopicError, sentence_of
    from ottla.pipeline.source import OttlaDataSource, register

__all__ = ["OttlaDataSource", "TopicError", "find_java", "register", "sentence_of"]

_HOME = {
    "OttlaDataSource": "ottla.pipeline.source",
    "TopicError": "ottla.pipeline.one_sentence",
    "find_java": "ottla.pipeline.java",
    "register": "ottla.pipeline.source",
    "sentence_of": "ottla.pipeline.one_sentence",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and only that."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
