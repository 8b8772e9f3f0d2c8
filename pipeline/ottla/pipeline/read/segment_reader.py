"""Reads parts of topics from copied segments in a Spark task: directly from the object store, with
read-ahead, without a broker.

If the object store fails, or if the segment was deleted in the meantime, the rest of a part is read
from brokers.
"""

import logging
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

from ottla.model.ids import Offset
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.pipeline.loop_thread import LoopThread
from ottla.pipeline.read.fetched_batches import FetchedBatches
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.reads.reader_limits import ReaderLimits
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader, open_remote_reader
from ottla.storage.tier.store_seam import StoreError

logger = logging.getLogger("ottla.pipeline")

LIMITS = ReaderLimits(chunk_file_bytes=0, index_file_bytes=64 << 20)
"""Limits of a task's reader. No chunks are cached in files, because a task reads each chunk only
once."""


@asynccontextmanager
async def open_segment_reader(cluster_id: str, options: ReadOptions) -> AsyncIterator[RemoteReader]:
    """Open and yield a reader of the copied segments of a cluster. The files of its cache are
    deleted at the end of the block."""
    assert options.tier is not None
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-"))
        disk = await stack.enter_async_context(RealDisk())
        store = await stack.enter_async_context(open_object_store(options.tier))
        yield await stack.enter_async_context(
            open_remote_reader(
                store,
                disk,
                directory,
                cluster_id=cluster_id,
                limits=LIMITS,
                errors=UnexpectedErrors(logger),
            )
        )


class SegmentRangeReader:
    """Reader of one offset range from one copied segment."""

    def __init__(self, wanted: OffsetRange, options: ReadOptions) -> None:
        assert wanted.copy is not None
        self._range = wanted
        self._copy = wanted.copy
        self._options = options
        self._config = options.consumer_config()
        self.position = wanted.start
        """Offset from which the next read starts."""

    def batches(self, loop: LoopThread, reader: RemoteReader) -> Iterator[FetchedBatches]:
        """Yield the batches of the range. Ends early, with `position` below the end of the range,
        if the object store fails."""
        while self.position < self._range.end:
            try:
                fetched = loop.call(self._next, reader)
            except StoreError as error:
                logger.warning(
                    "%s is read from brokers from offset %d on: %s",
                    self._range,
                    self.position,
                    error,
                )
                return
            if fetched is not None:
                yield fetched

    async def _next(self, reader: RemoteReader) -> FetchedBatches | None:
        topic, segment = self._range.topic, self._copy.segment
        start = Offset(self.position)
        found = await reader.read(
            topic,
            segment,
            start,
            end_offset=Offset(self._range.end),
            bytes_max=self._config.partition_bytes_max,
        )
        self.position = max(start + 1, found.end_offset)
        if not found.records:
            return None
        aborted: list[tuple[int, int]] | None = None
        if self._options.isolation_level == "read_committed":
            aborted = []
            for one in self._copy.aborted_in:
                listed = await reader.aborted(topic, one, start, found.end_offset)
                aborted += [(row.producer_id, row.first_offset) for row in listed.transactions]
        return FetchedBatches(
            found.records,
            start,
            self._range.end,
            aborted=aborted,
            check_crcs=self._config.check_crcs,
        )
