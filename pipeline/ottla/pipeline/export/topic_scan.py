"""A live topic as a table for SQL engines, in the form of an object with Arrow's stream interface.

The range of offsets is fixed when a scan is created. Every stream of the scan contains the same
records, so a query that reads a topic twice sees the same state of the topic. Memory is bounded by
the batches in flight.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ottla.model.errors import ConfigError, OttlaError
from ottla.pipeline.export.export import SAMPLE_ROWS
from ottla.pipeline.export.json_values import JsonValues, inferred_type
from ottla.pipeline.export.table_columns import READ_COLUMNS, TableRows
from ottla.pipeline.read.cluster_queries import FIRST_ANSWER_TIMEOUT_S, ClusterQueries
from ottla.pipeline.read.offsets import EARLIEST, LATEST
from ottla.pipeline.read.range_reader import read_ranges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import SubscribePattern


class TopicScan:
    """Scan of a topic's current records for SQL engines, in the columns of `ottla export`."""

    def __init__(
        self,
        topic: str,
        ranges: Iterable[OffsetRange],
        read: ReadOptions,
        values: JsonValues | None,
    ) -> None:
        self._ranges = tuple(ranges)
        self._read = read
        self._rows = TableRows(topic, values)
        self.failure: OttlaError | None = None
        """Error that ended a stream of the scan, or None if no stream has failed. SQL engines pass
        on only the text of an error, so the caller reads the error itself here."""

    def __arrow_c_schema__(self) -> Any:
        return self._rows.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        reader = pa.RecordBatchReader.from_batches(self._rows.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for records in read_ranges(self._ranges, self._read):
                yield self._rows.of(records)
        except OttlaError as error:
            self.failure = error
            raise


def scans_of(
    query: str, read: ReadOptions, *, is_json: bool, value_type: pa.StructType | None
) -> Mapping[str, TopicScan]:
    """Return a scan of each topic whose name is a word of the SQL query, by topic name.

    If values are JSON and `value_type` is None, their type is inferred from the first records of
    each topic. Raises ConnectionLostError if no broker responds.
    """
    read = replace(read, columns=READ_COLUMNS, include_headers=True)
    asking = ClusterQueries(read, first_answer_timeout_s=FIRST_ANSWER_TIMEOUT_S)
    try:
        found = asking.find_topics(SubscribePattern(".*"))
        wanted = [at for at in sorted(found.partitions) if is_named(at.topic, query)]
        starts = asking.offsets(dict.fromkeys(wanted, EARLIEST))
        ends = asking.offsets(dict.fromkeys(wanted, LATEST))
    finally:
        asking.close()
    scans = {}
    for topic in sorted({at.topic for at in wanted}):
        topic_id = found.topic_ids.get(topic, "")
        ranges = [
            OffsetRange(topic, at.partition, starts[at], max(starts[at], ends[at]), topic_id)
            for at in wanted
            if at.topic == topic
        ]
        values = None
        if is_json:
            type_ = value_type or _sampled_type(topic, ranges, read)
            values = JsonValues(type_, reports_unknown_fields=value_type is None)
        scans[topic] = TopicScan(topic, ranges, read, values)
    return scans


def is_named(topic: str, query: str) -> bool:
    """Return whether a topic's name occurs in an SQL query as a whole word."""
    return re.search(rf"(?<![\w.-]){re.escape(topic)}(?![\w.-])", query) is not None


def _sampled_type(topic: str, ranges: list[OffsetRange], read: ReadOptions) -> pa.StructType:
    samples: list[pa.BinaryArray] = []
    for records in read_ranges(ranges, read):
        samples.append(records.column("value"))
        if sum(map(len, samples)) >= SAMPLE_ROWS:
            break
    type_ = inferred_type(samples)
    if type_ is None:
        raise ConfigError(
            "--json",
            f"none of the first {sum(map(len, samples))} values of {topic!r} is a JSON object with "
            "fields; leave out --json",
        )
    return type_
