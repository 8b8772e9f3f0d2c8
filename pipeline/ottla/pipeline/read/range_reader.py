"""Reads ranges of topics as Arrow batches, in a Spark task.

`read_ranges` is a generator for a blocking thread. It yields the records of one range after the
other, each range in the order of its offsets, regardless of the order of leaders' responses. Memory
is bounded: one response is decoded while the next response arrives. If the generator is closed
early, it closes its connections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import pyarrow as pa

from ottla.model.errors import CorruptDataError
from ottla.pipeline.loop_thread import open_loop_thread
from ottla.pipeline.read.arrow_decode import ArrowDecoder
from ottla.pipeline.read.arrow_schema import HEADERS, column_names
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.range_fetcher import open_range_fetcher
from ottla.pipeline.read.range_progress import RangeProgress
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.pipeline.write.replays import ReplayFilter

LOOKBACK_GROWTH = 4
LOOKBACK_COUNT_MAX = 1_000_000
"""Maximum number of records before an offset range that one task reads to detect repeated writes.
Reading that many records takes about a second for each range."""


def read_ranges(ranges: Sequence[OffsetRange], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of `ranges` in the schema that `options` request.

    Raises RefusedError if records are lost or do not arrive in time, and CorruptDataError if bytes
    are corrupt.  Each error names the partition.
    """
    for is_copied, run in groupby(ranges, lambda one: one.copy is not None):
        yield from (_from_segments if is_copied else _from_brokers)(tuple(run), options)


def _from_segments(ranges: Sequence[OffsetRange], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges that are read from copied segments. If the object store fails,
    the rest of the range is read from brokers."""
    # Most tasks read from brokers only.
    from ottla.pipeline.read.segment_reader import SegmentRangeReader, open_segment_reader

    assert ranges[0].copy is not None
    with open_loop_thread() as loop:
        reader = loop.enter(open_segment_reader(ranges[0].copy.cluster_id, options))
        for one in ranges:
            rows = Rows(RangeProgress(one), options)
            reading = SegmentRangeReader(one, options)
            for fetched in reading.batches(loop, reader):
                yield from rows.of(fetched)
            if reading.position < one.end:
                rest = one._replace(start=reading.position, copy=None)
                yield from _from_brokers((rest,), options)


def _from_brokers(ranges: Sequence[OffsetRange], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of ranges that are read from brokers."""
    rows: dict[RangeProgress, Rows] = {}
    with open_loop_thread() as loop:
        fetcher = loop.enter(open_range_fetcher(ranges, options))
        while (found := loop.call(fetcher.next)) is not None:
            progress, fetched = found
            if progress not in rows:
                rows = {progress: Rows(progress, options)}
            yield from rows[progress].of(fetched)


class Rows:
    """Converter of the fetched batches of one offset range to rows, in order."""

    def __init__(
        self, progress: RangeProgress, options: ReadOptions, *, may_learn: bool = True
    ) -> None:
        self._progress = progress
        self._options = options
        self._names = column_names(options.columns, options.include_headers)
        self._first = progress.range.start
        self._may_learn = may_learn
        """True if the reader may read records before the configured look-back, when the look-back
        does not suffice to detect repeated records."""
        self.replays: ReplayFilter | None = None
        needed = self._names
        if options.drop_replays:
            # Records before the range are also read, because the range may repeat them.
            self._first = progress.lookback
            self.replays = ReplayFilter(fail_on_data_loss=options.fail_on_data_loss)
            needed = column_names((*needed, "offset", HEADERS), include_headers=True)
        self._decoder = ArrowDecoder(progress.at, needed)

    def of(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Yield the rows of fetched batches that the query has requested."""
        # After lost records, reading may continue in the middle of a batch.
        first = max(fetched.first, self._first)
        try:
            for rows in self._decoder.decode(fetched.bodies(), first, self._progress.range.end):
                if self.replays is None:
                    yield rows
                else:
                    yield from self._new(rows, self.replays)
        except CorruptDataError as error:
            raise CorruptDataError(f"{self._progress.at}: {error.where}") from error

    def _new(self, rows: pa.RecordBatch, replays: ReplayFilter) -> Iterator[pa.RecordBatch]:
        """Yield the rows within the offset range that do not repeat earlier records."""
        before = int(np.searchsorted(rows.column("offset").to_numpy(), self._progress.range.start))
        if before:
            replays.keep(rows.column(HEADERS).slice(0, before))
            rows = rows.slice(before)
        if not rows.num_rows:
            return
        if self._may_learn:
            self._may_learn = False
            replays = self.replays = self._sure(replays)
        is_new = replays.keep(rows.column(HEADERS))
        if is_new is not None:
            rows = rows.filter(pa.array(is_new))
        if rows.num_rows:
            yield rows.select(list(self._names))

    def _sure(self, replays: ReplayFilter) -> ReplayFilter:
        """Read records before the range until the filter of repeated records has read the start of
        every Spark batch that continues into the range. Returns the new filter."""
        count = self._options.replay_lookback_count
        margin, most = count // 2, min(self._progress.range.start, LOOKBACK_COUNT_MAX)
        while replays.is_unsure(margin) and count < most:
            count = max(1, count) * LOOKBACK_GROWTH
            replays = learn(
                self._progress.range, replace(self._options, replay_lookback_count=count)
            )
        return replays


def learn(wanted: OffsetRange, options: ReadOptions) -> ReplayFilter:
    """Return a filter of repeated records that has read the `replay_lookback_count` records before
    the offset range."""
    rows: Rows | None = None
    last = wanted._replace(start=wanted.start - 1, end=wanted.start)
    with open_loop_thread() as loop:
        fetcher = loop.enter(open_range_fetcher([last], options))
        while (found := loop.call(fetcher.next)) is not None:
            progress, fetched = found
            rows = rows or Rows(progress, options, may_learn=False)
            for _ in rows.of(fetched):
                pass
    learnt = None if rows is None else rows.replays
    return learnt or ReplayFilter(fail_on_data_loss=options.fail_on_data_loss)
