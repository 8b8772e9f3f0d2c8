"""Reads ranges of topics as Arrow batches: what a Spark task does.

`read_ranges` is a generator for a thread that blocks.  It gives the records of the ranges one range
after the other and each in the order of its offsets, whatever the network does.  Memory is bounded:
one answer is decoded while the next arrives.  Closed early, it closes its connections.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from ottla.model.errors import CorruptDataError
from ottla.pipeline.arrow_decode import ArrowDecoder
from ottla.pipeline.arrow_schema import HEADERS, column_names
from ottla.pipeline.fetched_batches import FetchedBatches
from ottla.pipeline.loop_thread import open_loop_thread
from ottla.pipeline.range_course import Course
from ottla.pipeline.range_fetcher import open_range_fetcher
from ottla.pipeline.ranges import OffsetRange
from ottla.pipeline.read_options import ReadOptions
from ottla.pipeline.replays import ReplayFilter


def read_ranges(ranges: Sequence[OffsetRange], options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Yield the records of `ranges` in the schema that `options` ask for.

    RefusedError where records are lost or do not come in time, CorruptDataError where bytes lie;
    each names the partition.
    """
    if not ranges:
        return
    rows: dict[Course, Rows] = {}
    with open_loop_thread() as loop:
        fetcher = loop.enter(open_range_fetcher(ranges, options))
        while (found := loop.call(fetcher.next)) is not None:
            course, fetched = found
            if course not in rows:
                rows = {course: Rows(course, options)}
            yield from rows[course].of(fetched)


class Rows:
    """Makes the rows of one range from what is fetched of it, in order."""

    def __init__(self, course: Course, options: ReadOptions) -> None:
        self._course = course
        self._names = column_names(options.columns, options.include_headers)
        self._first = course.range.start
        self._replays: ReplayFilter | None = None
        needed = self._names
        if options.drop_replays:
            # What lies before the range is read as well, to learn what was written before it.
            self._first = course.lookback
            self._replays = ReplayFilter(fail_on_data_loss=options.fail_on_data_loss)
            needed = column_names((*needed, "offset", HEADERS), include_headers=True)
        self._decoder = ArrowDecoder(course.at, needed)

    def of(self, fetched: FetchedBatches) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are wanted."""
        # Behind records that are lost it goes on within a batch.
        first = max(fetched.first, self._first)
        try:
            for rows in self._decoder.decode(fetched.bodies(), first, self._course.range.end):
                yield from [rows] if self._replays is None else self._new(rows, self._replays)
        except CorruptDataError as error:
            raise CorruptDataError(f"{self._course.at}: {error.where}") from error

    def _new(self, rows: pa.RecordBatch, replays: ReplayFilter) -> Iterator[pa.RecordBatch]:
        """Yield those of the rows that are in the range and that nobody wrote before."""
        wanted = rows.column("offset").to_numpy() >= self._course.range.start
        is_new = replays.keep(rows.column(HEADERS))
        if is_new is not None:
            wanted &= is_new
        if wanted.any():
            yield rows.filter(pa.array(wanted)).select(list(self._names))
