"""Reader of a stream: the driver's side, which Spark calls for each batch, and the tasks.

Spark keeps one process per query for the driver's side, so the connection stays open there. The
records of a batch depend only on its two offsets and the options. If a batch is repeated, even
after a crash, it reads the same records in the same tasks.
"""

# ruff: noqa: N802 - Spark names these methods

import logging
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.pipeline.one_sentence import one_sentence
from ottla.pipeline.read.batch_reader import READ, TaskPartition, cut, open_planner, read_task
from ottla.pipeline.read.offsets import (
    EARLIEST,
    BatchDelay,
    StreamBatch,
    StreamPosition,
    between,
    is_behind,
    new_partitions,
    rate_limited,
    record_count,
)
from ottla.pipeline.read.source_options import SourceOptions, parse_source_options

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.pipeline.read.cluster_queries import ClusterQueries
    from ottla.pipeline.read.segment_planner import SegmentPlanner

logger = logging.getLogger("ottla.pipeline")

GO_ON = "set failOnDataLoss to false to go on with what is there"
IDLE_PAUSE_S = 0.05
"""Pause in seconds after a check of a stream without new records. Without it, Spark would check
every 10 ms, and each check would send two requests to brokers."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream. Before the first call it contains only options, because Spark pickles it
    and sends it to executors.

    Options are parsed at the first call, because Spark hides errors that are raised earlier.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._asked: ClusterQueries | None = None
        self._initial: StreamPosition | None = None
        self._is_new: bool | None = None
        """True if the streaming query is new, False if it continues from a checkpoint. None until
        the first call shows which."""
        self._target: StreamPosition | None = None
        """End of a streaming query that processes only the records existing at its start
        (availableNow). None for any other query."""
        self._latest_seen: StreamPosition | None = None
        self._batch_delay: BatchDelay | None = None
        self._planner: SegmentPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return the start of a new streaming query, by partition. Every call returns the same
        start."""
        with one_sentence(READ):
            if self._initial is None:
                from ottla.pipeline.read.places import present, starting_position

                topics = present(self._asking, self._options)
                self._initial = starting_position(self._asking, self._options, topics)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the default limit on the number of records in a batch. A limit of the trigger
        takes precedence."""
        with one_sentence(READ):
            options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Set the end of the streaming query to the present ends of the logs."""
        with one_sentence(READ):
            self._target = self._latest(None)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end position of the next batch. Returns `start` if there are no new records,
        or fewer than a batch requires."""
        with one_sentence(READ):
            before = StreamPosition.from_json(start)
            latest = self._latest_seen = self._target or self._latest(before)
            self._judge(between(before, latest))
            end = self._admitted(before, latest, limit)
            if self._is_new is None:
                self._is_new = before == self._initial
            if self._is_new and before == self._initial:
                # The query's start is stored only here.  If this batch is repeated, Spark calls
                # `initialOffset` again, which may then return another start.
                return StreamPosition(end.offsets, end.topic_ids, begin=before.offsets).to_json()
            if end.is_at(before):
                return start
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end offsets of the logs when they were last requested, or None before the
        first request. Spark shows them in the query's progress."""
        return None if self._latest_seen is None else self._latest_seen.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the Spark tasks of the batch between two positions, as one input partition
        each."""
        with one_sentence(READ):
            batch = between(StreamPosition.from_json(start), StreamPosition.from_json(end))
            self._judge(batch)
            tasks = cut(list(batch.ranges), self._options)
            if self._options.read.tier is not None:
                # A task has the same records whether or not their segments are copied.
                planner = self._planner = self._planner or open_planner(
                    self._options.read, self._asking
                )
                tasks = [TaskPartition(tuple(planner.split(task.ranges))) for task in tasks]
        return [*tasks]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the records of one Spark task in a batch of the stream."""
        return read_task(partition, self._options.read)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the position `end` to the group that the option `shadowGroup` names, if it is set.
        The stream continues if this fails."""
        if self._options.shadow_group is not None:
            try:
                position = StreamPosition.from_json(end)
                self._asking.commit(self._options.shadow_group, position, "")
            except OttlaError as error:
                logger.warning(
                    "no progress is committed to group %s: %s", self._options.shadow_group, error
                )

    def stop(self) -> None:
        """Close the stream's connections to the cluster and the object store."""
        if self._planner is not None:
            self._planner.close()
            self._planner = None
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_source_options(self._texts, is_stream=True)

    @property
    def _asking(self) -> "ClusterQueries":
        if self._asked is None:
            # Executors that only read records need not import the driver's modules.
            from ottla.pipeline.read.cluster_queries import ClusterQueries

            self._asked = ClusterQueries(self._options.read)
        return self._asked

    def _latest(self, before: StreamPosition | None) -> StreamPosition:
        """Return the present end offsets of the logs. Repeats the request if they are before
        `before`, because a new leader may at first report a lower end."""
        if before is not None and self._latest_seen is not None and self._latest_seen.is_at(before):
            time.sleep(IDLE_PAUSE_S)
        for attempt in range(self._options.read.fetch_retries + 1):
            if attempt:
                time.sleep(self._options.read.fetch_retry_interval_ms / 1_000)
            latest = self._asking.ends(self._options.topics)
            if before is None or not is_behind(before, latest):
                break
        return latest

    def _admitted(
        self, before: StreamPosition, latest: StreamPosition, limit: ReadLimit
    ) -> StreamPosition:
        """Return the end position of the next batch within the limits of the trigger and the
        options."""
        if isinstance(limit, ReadAllAvailable):
            return latest
        new = new_partitions(before, latest)
        earliest = self._asking.offsets(dict.fromkeys(new, EARLIEST))
        least = self._options.offsets_per_trigger_min
        if least is not None and self._target is None:
            if self._batch_delay is None:
                self._batch_delay = BatchDelay(least, self._options.trigger_delay_ms_max)
            count = record_count(before, latest, earliest)
            if not self._batch_delay.may_start(count, time.monotonic_ns() // 1_000_000):
                return before
        if isinstance(limit, ReadMaxRows):
            return rate_limited(limit.max_rows, before, latest, earliest)
        return latest

    def _judge(self, batch: StreamBatch) -> None:
        if batch.losses and self._options.read.fail_on_data_loss:
            raise RefusedError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{'; '.join(batch.losses)}: records may be lost; {GO_ON}",
            )
