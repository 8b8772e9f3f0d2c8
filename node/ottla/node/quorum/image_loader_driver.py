"""Loads committed records into metadata images, and publishes the images.

One task reads committed batches and applies them to the image. It then calls every publisher with
`(delta, image)`, in the order in which the publishers were added. Invariants:
- MonotonicImage: the images that a publisher gets never become older, and contain only committed
  records.
- SupportedLevels: the node stops if an image has a feature level that this release does not
  support.
"""

from collections.abc import Callable

import trio

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.features import check_supported
from ottla.metadata.image import EMPTY, MetadataImage, Provenance
from ottla.metadata.publisher import Publisher
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError, only_error
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.collector_pause_driver import COLLECTOR_PAUSE
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.record_batches import replay_in_slices

LOAD_BYTES = 1 << 20
"""Number of bytes of metadata log batches that are loaded before other tasks run. A larger value
delays all other tasks of the process for longer."""


class ImageLoader:
    """Task that loads committed records of the metadata log into this node's metadata image, and
    calls its publishers."""

    def __init__(self, log: MetadataLog, errors: UnexpectedErrors | None = None) -> None:
        self._errors = errors or UnexpectedErrors()
        self.image: MetadataImage = EMPTY
        self.applied_end_offset = Offset(0)
        """Offset after the last record of the metadata log that the metadata image contains."""
        self.on_applied: Callable[[], None] = lambda: None
        """Function that is called after each newly applied part of the metadata log."""
        self.bytes_since_snapshot = 0
        """Number of bytes of the metadata log that were loaded since the latest snapshot. The
        snapshot writer reads this value."""
        self._log = log
        self._committed_end_offset = Offset(0)
        self._publishers: list[Publisher] = []
        self._waiting: list[Publisher] = []
        self._is_caught_up: Callable[[], bool] = lambda: True
        self._work = trio.Event()
        self._applied = trio.Event()

    def delay_new_publishers(self, is_caught_up: Callable[[], bool]) -> None:
        """Delay the first publication of the metadata image to new publishers until `is_caught_up`
        returns True."""
        self._is_caught_up = is_caught_up

    def add_publisher(self, publisher: Publisher) -> None:
        """Add a metadata publisher. After this node has caught up with the quorum, the publisher
        gets the whole metadata image, and then every change."""
        self._waiting.append(publisher)
        self.wake()

    def commit(self, end_offset: Offset) -> None:
        """Record that all metadata records before `end_offset` are committed, so that the task
        loads them."""
        self._committed_end_offset = max(self._committed_end_offset, end_offset)
        self.wake()

    def wake(self) -> None:
        """Wake the task of this loader, to check for committed records again."""
        self._work.set()

    async def wait_applied(self, end_offset: Offset) -> None:
        """Wait until all metadata records before `end_offset` are in the metadata image and
        published."""
        while self.applied_end_offset < end_offset:
            await self._applied.wait()

    async def run(self) -> None:
        """Load committed metadata records into the image and publish the images, until
        cancelled."""
        while True:
            self._work = trio.Event()
            await self._catch_up()
            await self._publish_to_new()
            await self._work.wait()

    async def load_latest_snapshot(self) -> None:
        """Load the metadata image from the latest snapshot, if a snapshot exists.

        If the snapshot is deleted while it is being read, a newer one has replaced it. The newer
        snapshot is loaded instead.
        """
        while True:
            snapshot_id = self._log.latest_snapshot_id
            if snapshot_id is None:
                return
            try:
                image = await self._image_of(snapshot_id)
                break
            except FileNotFoundError:
                if snapshot_id == self._log.latest_snapshot_id:
                    raise
        delta = MetadataDelta.between(self.image, image)
        self.bytes_since_snapshot = 0
        await self._publish(delta, image, snapshot_id.offset)

    async def _catch_up(self) -> None:
        while True:
            if self.applied_end_offset < self._log.start_offset:
                await self.load_latest_snapshot()
            elif self.applied_end_offset < self._committed_end_offset:
                await self._load_batches()
            else:
                return

    async def _load_batches(self) -> None:
        start = self.applied_end_offset
        end = min(self._committed_end_offset, self._log.end_offset)
        try:
            data = await self._log.read(start, end_offset=end, bytes_max=LOAD_BYTES)
        except RefusedError as refusal:
            if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                return  # The leader's snapshot has just replaced the log.
            raise
        # A change of 1,000 partitions creates as many objects as several collections need to begin,
        # and none of them is garbage.
        with COLLECTOR_PAUSE.paused():
            delta = MetadataDelta(self.image)
            provenance = await _replayed(delta, data)
            if provenance is None:
                raise CorruptDataError(f"metadata log: nothing to read at committed offset {start}")
            self.bytes_since_snapshot += len(data)
            image = delta.apply(provenance)
            await self._publish(delta, image, Offset(provenance.offset + 1))

    async def _image_of(self, snapshot_id: OffsetAndEpoch) -> MetadataImage:
        data = await self._log.read_whole_snapshot(snapshot_id)
        delta = MetadataDelta(EMPTY)
        # Nothing of an image is garbage, and each full collection would visit all of it.
        with COLLECTOR_PAUSE.paused():
            last = await _replayed(delta, data)
        if last is None:
            raise CorruptDataError(f"snapshot {snapshot_id}: it is empty")
        timestamp_ms = last.timestamp_ms
        return delta.apply(
            Provenance(Offset(snapshot_id.offset - 1), snapshot_id.epoch, timestamp_ms)
        )

    async def _publish(
        self, delta: MetadataDelta, image: MetadataImage, end_offset: Offset
    ) -> None:
        assert end_offset >= self.applied_end_offset, "MonotonicImage"
        self.image = image
        for publisher in self._publishers:
            await self._notify(publisher, delta, image)
        self.applied_end_offset = end_offset
        applied, self._applied = self._applied, trio.Event()
        applied.set()
        self.on_applied()

    async def _notify(
        self, publisher: Publisher, delta: MetadataDelta, image: MetadataImage
    ) -> None:
        """Call one metadata publisher. If it raises an exception, the other publishers are not
        affected."""
        try:
            await publisher.publish(delta, image)
        except* Exception as group:
            self._errors.note("publisher", publisher.name, only_error(group))

    async def _publish_to_new(self) -> None:
        while self._waiting and self._is_caught_up():
            publisher = self._waiting.pop(0)
            await self._notify(publisher, MetadataDelta.between(EMPTY, self.image), self.image)
            self._publishers.append(publisher)


async def _replayed(delta: MetadataDelta, data: bytes) -> Provenance | None:
    """Apply the complete batches in `data` to a delta of the metadata image. Other tasks run
    between batches. Returns the provenance (offset, epoch and timestamp) of the last record, or
    None if the batches change nothing.

    Raises NewerReleaseError if a newer release wrote the batches.
    """
    last: Provenance | None = None
    try:
        for provenance in replay_in_slices(delta, data):
            if last is not None:
                await trio.lowlevel.checkpoint()
            last = provenance
    except CorruptDataError:
        # A newer release may give a known kind of record another meaning.
        check_supported(delta.image.features.items())
        raise
    if delta.changed_features:
        check_supported(delta.image.features.items())
    return last
