"""Turns what is committed into images, and tells the publishers.

One task reads committed batches, folds them and calls every publisher in the order of installation
with `(delta, image)`.  Invariant: MonotonicImage (a publisher never sees an older image than
before, and none that contains what is not committed).
"""

from collections.abc import Callable

import trio

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, Provenance
from ottla.metadata.publisher import Publisher
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError, only_error
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.metadata_log import MetadataLog
from ottla.node.record_batches import replay_in_slices

LOAD_BYTES = 1 << 20
"""Bytes folded before the loop gets its turn; more delays everything else of the process."""


class ImageLoader:
    """The image of this node and those who follow it."""

    def __init__(self, log: MetadataLog, errors: UnexpectedErrors | None = None) -> None:
        self._errors = errors or UnexpectedErrors()
        self.image: MetadataImage = EMPTY
        self.applied_end_offset = Offset(0)
        """One past the last record that the image contains."""
        self.on_applied: Callable[[], None] = lambda: None
        """Called after each publication."""
        self.bytes_since_snapshot = 0
        """Bytes of log folded since the latest snapshot, for its writer."""
        self._log = log
        self._committed_end_offset = Offset(0)
        self._publishers: list[Publisher] = []
        self._waiting: list[Publisher] = []
        self._is_caught_up: Callable[[], bool] = lambda: True
        self._work = trio.Event()
        self._applied = trio.Event()

    def introduce_when(self, is_caught_up: Callable[[], bool]) -> None:
        """Hold new publishers back until this says that the image is worth showing."""
        self._is_caught_up = is_caught_up

    def add_publisher(self, publisher: Publisher) -> None:
        """Tell a publisher of the whole image once caught up, then of every change."""
        self._waiting.append(publisher)
        self.wake()

    def commit(self, end_offset: Offset) -> None:
        """Take note that everything below `end_offset` is committed."""
        self._committed_end_offset = max(self._committed_end_offset, end_offset)
        self.wake()

    def wake(self) -> None:
        """Look again whether there is something to do."""
        self._work.set()

    async def wait_applied(self, end_offset: Offset) -> None:
        """Wait until the image contains everything below `end_offset` and is published."""
        while self.applied_end_offset < end_offset:
            await self._applied.wait()

    async def run(self) -> None:
        """Load until cancelled."""
        while True:
            self._work = trio.Event()
            await self._catch_up()
            await self._introduce_publishers()
            await self._work.wait()

    async def load_latest_snapshot(self) -> None:
        """Take the image from the newest snapshot, if there is one.

        One that a newer one replaces while it is read may be gone by then: the newer one is read.
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
                return  # a snapshot has just replaced the log
            raise
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
            await self._tell(publisher, delta, image)
        self.applied_end_offset = end_offset
        applied, self._applied = self._applied, trio.Event()
        applied.set()
        self.on_applied()

    async def _tell(self, publisher: Publisher, delta: MetadataDelta, image: MetadataImage) -> None:
        """Call one publisher; a bug that it meets keeps no other from the image."""
        try:
            await publisher.publish(delta, image)
        except* Exception as group:
            self._errors.note("publisher", publisher.name, only_error(group))

    async def _introduce_publishers(self) -> None:
        while self._waiting and self._is_caught_up():
            publisher = self._waiting.pop(0)
            await self._tell(publisher, MetadataDelta.between(EMPTY, self.image), self.image)
            self._publishers.append(publisher)


async def _replayed(delta: MetadataDelta, data: bytes) -> Provenance | None:
    """Fold whole batches, everything else of the process in between; return the last provenance."""
    last: Provenance | None = None
    for provenance in replay_in_slices(delta, data):
        if last is not None:
            await trio.lowlevel.checkpoint()
        last = provenance
    return last
