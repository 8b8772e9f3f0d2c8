"""Writes a snapshot of the metadata image whenever enough log bytes were added or enough time has
passed.

The image is immutable, so it can be written while newer images are created. Other tasks may run
after each batch.
"""

import logging

import trio

from ottla.metadata.snapshot import records_of
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.seams import Clock
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.quorum.image_loader_driver import ImageLoader
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.raft import snapshot
from ottla.storage.disk.disk_errors import is_disk_full

_LOGGER = logging.getLogger(__name__)

CHECK_INTERVAL_MS = 1_000
"""Interval in ms between checks whether a metadata snapshot is due. With a longer interval, the
metadata log may exceed its maximum size."""


class _Order:
    """Request of a caller to write a metadata snapshot now, and its outcome."""

    def __init__(self) -> None:
        self.is_done = trio.Event()
        self.has_failed = False


class SnapshotWriter:
    """Background task that writes the snapshots of this node's metadata image. Every member of the
    quorum writes its own snapshots."""

    def __init__(
        self, log: MetadataLog, loader: ImageLoader, config: QuorumConfig, clock: Clock
    ) -> None:
        self._log = log
        self._loader = loader
        self._config = config
        self._clock = clock
        self._last_ms = clock.monotonic_ms()
        self._orders: list[_Order] = []
        self._ordered = trio.Event()

    async def run(self) -> None:
        """Write a snapshot of the metadata image whenever a snapshot is due or requested, until
        cancelled."""
        while True:
            with trio.move_on_after(CHECK_INTERVAL_MS / 1000):
                await self._ordered.wait()
            orders, self._orders = self._orders, []
            self._ordered = trio.Event()
            try:
                await self._work(is_ordered=bool(orders))
            except OSError as error:
                for order in orders:
                    order.has_failed = True
                if not is_disk_full(error):
                    raise
                # The snapshot stays due.  The log keeps the records that the snapshot would have
                # allowed it to delete.
                _LOGGER.error("there is no room for a snapshot of the metadata")
            finally:
                for order in orders:
                    order.is_done.set()

    async def _work(self, *, is_ordered: bool) -> None:
        if is_ordered or self._is_due():
            await self.write()
        else:
            await self._log.forget_old()

    async def order(self) -> None:
        """Request a snapshot of the metadata image from the background task, and wait for the
        snapshot. If the caller is cancelled, the task continues.

        Raises RefusedError(KAFKA_STORAGE_ERROR) if the disk has no space for the snapshot.
        """
        order = _Order()
        self._orders.append(order)
        self._ordered.set()
        await order.is_done.wait()
        if order.has_failed:
            raise RefusedError(
                ErrorCode.KAFKA_STORAGE_ERROR, "The disk of the metadata log has no room."
            )

    async def write(self) -> None:
        """Write a snapshot of the present metadata image now."""
        self._loader.bytes_since_snapshot = 0
        self._last_ms = self._clock.monotonic_ms()
        image = self._loader.image
        provenance = image.provenance
        if provenance.offset < 0:
            return
        file = SnapshotFile(
            id=provenance.end,
            last_contained_timestamp_ms=provenance.timestamp_ms,
            voters=self._log.voters_at(provenance.end.offset),
        )
        await self._log.write_snapshot(
            provenance.end,
            file.batches(records_of(image)),
            give_way=trio.lowlevel.checkpoint,
        )

    def _is_due(self) -> bool:
        return snapshot.is_due(
            self._config,
            bytes_since=self._loader.bytes_since_snapshot,
            ms_since=self._clock.monotonic_ms() - self._last_ms,
            has_new_records=self._loader.bytes_since_snapshot > 0,
        )
