"""Exports a topic into a table, each record once, even if the export is stopped and run again.

The table contains the position of the export (`table_sink.py`), so the next run continues exactly
after the last row. Memory is bounded by one fetched response, one row group, and at most
`SAMPLE_ROWS` records from which columns are inferred.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.pipeline.export.json_values import JsonValues, inferred_type
from ottla.pipeline.export.parquet_file import ParquetFile
from ottla.pipeline.export.table_columns import READ_COLUMNS, TableRows
from ottla.pipeline.export.table_position import (
    ExportProgress,
    LogBounds,
    TablePosition,
    first_position,
    pending_ranges,
)
from ottla.pipeline.export.table_sink import TableSink
from ottla.pipeline.read.cluster_queries import FIRST_ANSWER_TIMEOUT_S, ClusterQueries
from ottla.pipeline.read.offsets import EARLIEST, LATEST
from ottla.pipeline.read.range_reader import read_ranges
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.read.source_options import Subscribe

POLL_S = 0.5
"""Interval in seconds between an export's checks for new records. Each check sends two small
requests."""
SAMPLE_ROWS = 20_000
"""Number of records from which the columns of JSON values are inferred.  If the topic has fewer,
all of its records are used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of an export: the topic, the format of the rows, and the size of the commits."""

    topic: str
    read: ReadOptions
    """Options for reading the topic: addresses, login and isolation level."""
    is_json: bool = False
    """True if the records' values are JSON, which become typed columns."""
    value_type: pa.StructType | None = None
    """Arrow type of the records' JSON values. None infers it from the first records."""
    follows: bool = False
    """True if the export waits for new records at the end of the topic instead of ending there."""
    file_bytes: int = 128 << 20
    """Size in bytes at which a data file of the table is finished and committed."""
    commit_interval_s: float = 60.0
    """Maximum time in seconds that rows wait until they are committed to the table, if `follows` is
    true."""
    compression: str = "zstd"
    """Compression codec of Parquet files: zstd, snappy, lz4, gzip or none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportFigures:
    """Counters and position of one run of an export. The progress line and the summary show
    them."""

    row_count: int
    """Number of rows that this run of the export has read."""
    committed_count: int
    """Number of rows that this run of the export has committed to the table."""
    file_count: int
    behind_count: int
    """Number of offsets between the rows that the export has read and the end of the topic at the
    last check."""
    bad_count: int
    """Number of rows read by this run of the export whose value does not fit the table's
    columns."""
    position: TablePosition | None
    """Position of the export's last commit: the next offset of each partition. None before the
    first commit."""


def log_bounds(asking: ClusterQueries, topic: str) -> LogBounds:
    """Return the present bounds of the logs of a topic's partitions. Raises RefusedError if the
    topic does not exist."""
    found = asking.find_topics(Subscribe(frozenset({topic})))
    if found.missing:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic!r}")
    starts = asking.offsets(dict.fromkeys(found.partitions, EARLIEST))
    ends = asking.offsets(dict.fromkeys(found.partitions, LATEST))
    return LogBounds(
        topic=topic,
        topic_id=found.topic_ids.get(topic, ""),
        starts={at.partition: offset for at, offset in starts.items()},
        # Retention may have moved the start between the two requests.
        ends={at.partition: max(offset, starts[at]) for at, offset in ends.items()},
    )


class TopicExport:
    """One run of an export from a topic into a table."""

    def __init__(
        self,
        sink: TableSink,
        options: ExportOptions,
        *,
        show: Callable[[ExportFigures], None] = lambda figures: None,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a run of the export, which does not start yet. `show` is called with the run's
        counters and position after each batch. If `is_ending` returns True, the run commits the
        rows so far and ends."""
        self._sink = sink
        self._options = options
        self._read = replace(options.read, columns=READ_COLUMNS, include_headers=True)
        self._show = show
        self._is_ending = is_ending
        self._rows: TableRows | None = None
        self._sample: list[pa.RecordBatch] | None = None
        self._progress: ExportProgress | None = None
        self._file: ParquetFile | None = None
        self._opened_at = 0.0
        self._row_count = self._committed_count = self._file_count = 0
        self._end_count = 0
        self._settle_columns()

    def run(self) -> ExportFigures:
        """Export the topic up to its present end, or without end if `follows` is true. Ends early
        if `is_ending` returns True. Returns the final counters and position.

        Raises RefusedError if records were lost, if the topic was deleted and created again, or if
        another export writes the table. Raises ConnectionLostError if no broker responds.
        """
        asking = ClusterQueries(self._read, first_answer_timeout_s=FIRST_ANSWER_TIMEOUT_S)
        try:
            while True:
                bounds = log_bounds(asking, self._options.topic)
                ranges = self._pending(bounds)
                lost = self._export(ranges) if ranges else None
                if lost is not None:
                    self._commit()
                    self._pending(
                        log_bounds(asking, self._options.topic)
                    )  # raises with both offsets
                    raise lost
                if self._is_ending() or not self._options.follows:
                    break
                if self._is_due():
                    self._commit()
                if not ranges:
                    time.sleep(POLL_S)
            self._commit()
        finally:
            asking.close()
        return self.figures()

    def figures(self) -> ExportFigures:
        """Return the present counters and position of this run of the export."""
        done = 0 if self._progress is None else sum(self._progress.present().next_offsets.values())
        return ExportFigures(
            row_count=self._row_count,
            committed_count=self._committed_count,
            file_count=self._file_count,
            behind_count=max(0, self._end_count - done),
            bad_count=0 if self._rows is None else self._rows.bad_count,
            position=self._sink.position,
        )

    def _settle_columns(self) -> None:
        """Choose the columns of the table: the columns of the existing table, or the columns that
        the options define. If the options define none for JSON values, start a sample from which
        they are inferred."""
        schema, options = self._sink.schema, self._options
        values: JsonValues | None = None
        if schema is None:
            if options.is_json and options.value_type is None:
                self._sample = []
                return
            if options.is_json:
                values = JsonValues(options.value_type, reports_unknown_fields=False)
        else:
            values = self._values_of(schema)
        self._rows = TableRows(options.topic, values)
        if schema is not None and schema.names != self._rows.schema.names:
            raise ConfigError(
                self._sink.name, f"has the columns {', '.join(schema.names)}; export elsewhere"
            )
        self._sink.prepare(self._rows.schema)

    def _values_of(self, schema: pa.Schema) -> JsonValues | None:
        """Return the parser that converts JSON values of records to columns of an existing
        table, or None if the table stores values as bytes."""
        type_ = schema.field("value").type if "value" in schema.names else pa.null()
        options = self._options
        if pa.types.is_struct(type_) != options.is_json:
            form = "JSON" if pa.types.is_struct(type_) else "bytes"
            raise ConfigError(
                self._sink.name, f"has values as {form}; export as before, or elsewhere"
            )
        if not options.is_json:
            return None
        if options.value_type is not None and options.value_type != type_:
            raise ConfigError(
                self._sink.name,
                f"has values of the schema {type_}, not {options.value_type}; export elsewhere",
            )
        return JsonValues(type_, reports_unknown_fields=options.value_type is None)

    def _pending(self, bounds: LogBounds) -> list[OffsetRange]:
        if self._progress is None:
            self._progress = ExportProgress(self._sink.position or first_position(bounds))
        self._end_count = sum(bounds.ends.values())
        return pending_ranges(self._progress.present(), bounds)

    def _export(self, ranges: Sequence[OffsetRange]) -> RefusedError | None:
        """Write the topic's records in ranges of offsets to the table. Returns the error if the log
        has lost some of these records, or else None."""
        assert self._progress is not None
        self._progress.begin(ranges)
        try:
            for records in read_ranges(ranges, self._read):
                self._add(records)
                if self._is_ending():
                    self._use_sample()
                    return None
        except RefusedError as error:
            if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                raise
            self._use_sample()
            return error
        self._use_sample()
        self._progress.end()
        return None

    def _add(self, records: pa.RecordBatch) -> None:
        assert self._progress is not None
        if self._sample is not None:
            self._sample.append(records)
            if sum(one.num_rows for one in self._sample) >= SAMPLE_ROWS:
                self._use_sample()
            return
        assert self._rows is not None
        offsets = records.column("offset")
        self._progress.add(
            records.column("partition")[0].as_py(),
            offsets[0].as_py(),
            offsets[-1].as_py(),
            records.num_rows,
        )
        if self._file is None:
            self._file = self._sink.open_file(
                self._rows.schema, compression=self._options.compression
            )
            self._opened_at = time.monotonic()
        self._file.add(self._rows.of(records))
        self._row_count += records.num_rows
        self._show(self.figures())
        if self._is_due():
            self._commit()

    def _use_sample(self) -> None:
        """Infer the columns of the table from the sampled records, and write these records."""
        sample = self._sample
        if not sample:
            return
        self._sample = None
        type_ = inferred_type([records.column("value") for records in sample])
        if type_ is None:
            count = sum(one.num_rows for one in sample)
            raise ConfigError(
                "--json",
                f"none of the first {count} values of {self._options.topic!r} is a JSON object "
                "with fields; export without --json",
            )
        values = JsonValues(type_, reports_unknown_fields=True)
        self._rows = TableRows(self._options.topic, values)
        self._sink.prepare(self._rows.schema)
        for records in sample:
            self._add(records)

    def _is_due(self) -> bool:
        if self._file is None:
            return False
        if self._file.size_bytes >= self._options.file_bytes:
            return True
        age_s = time.monotonic() - self._opened_at
        return self._options.follows and age_s >= self._options.commit_interval_s

    def _commit(self) -> None:
        """Commit the rows of the open data file to the table, if there is one."""
        if self._file is None:
            return
        assert self._progress is not None
        position = self._progress.position(uuid.uuid4().hex)
        file, self._file = self._file, None
        self._sink.commit(file, position)
        self._committed_count += self._progress.row_count
        self._file_count += 1
        self._progress.on_committed(position)
        self._show(self.figures())
