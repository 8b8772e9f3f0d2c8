"""Reads topics as they grow: a stream's driver side, asked by Spark batch by batch, and its tasks.

Spark keeps one process a query for the driver's side, so the connection stays open there.  What a
batch reads depends on its two offsets and the options only: one that is repeated, after a crash
too, reads the same records in the same tasks.
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
from ottla.pipeline.read.batch_reader import READ, cut, read_task
from ottla.pipeline.read.offsets import (
    EARLIEST,
    Patience,
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

    from ottla.pipeline.read.asking import Asking

logger = logging.getLogger("ottla.pipeline")

GO_ON = "set failOnDataLoss to false to go on with what is there"
IDLE_PAUSE_S = 0.05
"""Where there was nothing new: Spark asks every 10 ms, and each time brokers are asked twice."""


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream; before the first question it holds options only, for it travels to executors.

    Options are read with the first question: Spark says nothing of one that is refused before.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = dict(texts)
        self._asked: Asking | None = None
        self._initial: StreamPosition | None = None
        self._is_new: bool | None = None
        """Whether the query begins here, or goes on from a checkpoint; None before that is seen."""
        self._target: StreamPosition | None = None
        """Where a query that is to end with what there is now ends."""
        self._latest_seen: StreamPosition | None = None
        self._patience: Patience | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins: the same however often it is asked."""
        with one_sentence(READ):
            if self._initial is None:
                from ottla.pipeline.read.places import present, starting_position

                topics = present(self._asking, self._options)
                self._initial = starting_position(self._asking, self._options, topics)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch takes unless the trigger says otherwise."""
        with one_sentence(READ):
            options = self._options
        if options.offsets_per_trigger_max is not None:
            return ReadMaxRows(options.offsets_per_trigger_max)
        if options.offsets_per_trigger_min is not None:
            return ReadMinRows(options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where the query ends: at what there is now."""
        with one_sentence(READ):
            self._target = self._latest(None)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends: at `start`, where there is nothing or not enough."""
        with one_sentence(READ):
            before = StreamPosition.from_json(start)
            latest = self._latest_seen = self._target or self._latest(before)
            self._judge(between(before, latest))
            end = self._admitted(before, latest, limit)
            if self._is_new is None:
                self._is_new = before == self._initial
            if self._is_new and before == self._initial:
                # Nothing else keeps it: `initialOffset` is asked again when this batch is repeated.
                return StreamPosition(end.offsets, end.topic_ids, begin=before.offsets).to_json()
            if end.is_at(before):
                return start
        return end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends of the logs as they were last seen, for the query's progress."""
        return None if self._latest_seen is None else self._latest_seen.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Cut one batch into tasks."""
        with one_sentence(READ):
            batch = between(StreamPosition.from_json(start), StreamPosition.from_json(end))
            self._judge(batch)
        return [*cut(list(batch.ranges), self._options)]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Read one task's records."""
        return read_task(partition, self._options.read)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the shadow group, where options name one; the stream goes on if that fails."""
        if self._options.shadow_group is not None:
            try:
                position = StreamPosition.from_json(end)
                self._asking.commit(self._options.shadow_group, position, "")
            except OttlaError as error:
                logger.warning("group %s is not told: %s", self._options.shadow_group, error)

    def stop(self) -> None:
        """Close the connection."""
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    @cached_property
    def _options(self) -> SourceOptions:
        return parse_source_options(self._texts, is_stream=True)

    @property
    def _asking(self) -> "Asking":
        if self._asked is None:
            # Executors that only read need not load what asks.
            from ottla.pipeline.read.asking import Asking

            self._asked = Asking(self._options.read)
        return self._asked

    def _latest(self, before: StreamPosition | None) -> StreamPosition:
        """Return where logs end now; a leader that is new may not know all of it at first."""
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
        """Return how far the next batch goes, given what the trigger and the options allow."""
        if isinstance(limit, ReadAllAvailable):
            return latest
        new = new_partitions(before, latest)
        earliest = self._asking.offsets(dict.fromkeys(new, EARLIEST))
        least = self._options.offsets_per_trigger_min
        if least is not None and self._target is None:
            if self._patience is None:
                self._patience = Patience(least, self._options.trigger_delay_ms_max)
            count = record_count(before, latest, earliest)
            if not self._patience.lets_through(count, time.monotonic_ns() // 1_000_000):
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
