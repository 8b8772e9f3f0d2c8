"""Topics as Spark DataFrames, and pipelines to run as they are.

Importing this imports neither pyspark nor pyarrow: `ottla doctor spark` must work where they lack.

java.py             finds the Java that Spark runs on
option_values.py    options as Spark hands them over (pure)
source_options.py   everything that may be said to a read (pure)
read_options.py     what every task of a query must know (pure)
ranges.py           offsets of partitions, cut and packed into tasks (pure)
source.py           topics as a data source of Spark
batch_reader.py     the reader of a batch query
stream_reader.py    the reader of a stream
shadow.py           has the progress of streams seen by their groups
offsets.py          where a query stands, what lies between, what was lost (pure)
asking.py           what the driver asks the cluster, in blocking calls
places.py           where a query begins, and where a batch ends
loop_thread.py      the client's loop in a thread, for callers that block
range_reader.py     what a Spark task does: its ranges as Arrow batches
range_fetcher.py    fetches them, one request ahead
range_course.py     how far they are read (pure)
fetched_batches.py  the batches of an answer, as far as a range wants them (pure)
record_fields.py    where the fields of many records lie, by numpy (pure)
arrow_decode.py     batches of records as Arrow batches (pure)
arrow_schema.py     the columns of a topic (pure)
one_sentence.py     what goes wrong in a worker, without its traceback
sink_options.py     everything that may be asked of a write, and the columns of its rows (pure)
batch_writer.py     writes a DataFrame to topics
stream_writer.py    writes a streaming query to topics
produce_rows.py     writes the rows of one task, in order
key_hashes.py       the hashes of all keys of a batch at once (pure)
provenance.py       the headers that say which write a record is of (pure)
replays.py          leaves out what a repeated task wrote again (pure)

session.py          starts Spark for a command, and ends it
spark_errors.py     what Spark says, in one sentence (pure)
package_zip.py      our modules for executors that lack them
progress.py         what a query's batches come to (pure)
watching.py         follows queries, and ends them between two batches
transforms.py       DataFrame functions that all front ends share
own_code.py         a user's own pipeline file
archive.py          topics into Parquet, each record once
archive_directory.py who may change an archive, its log, its files
checkpoint.py       how far a stream is, by its checkpoint
sink_log.py         the log of Spark's file sink (pure)
compaction_plan.py  which small files become one (pure)
compaction.py       makes them one
backfill.py         adds what an archive lacks of a span of time

doctor.py           whether a machine can run all this (pure)
doctor_facts.py     looks at the machine
doctor_trial.py     tries a small query, bounded in time
doctor_reach.py     asks from a worker which brokers answer
rollup/             what clients report of themselves, rolled up by windows
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
