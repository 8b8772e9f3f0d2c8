"""The snapshot files beside the metadata log: found, written, read and let go of.

A snapshot is whole or not there: it is written under `.part`, flushed and renamed.  Which may go is
decided in `raft/snapshot.py`.
"""

from collections.abc import Iterable
from contextlib import suppress

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.raft import snapshot
from ottla.raft.snapshot import KeptSnapshot
from ottla.storage.disk_seam import Disk, DiskFile
from ottla.storage.epoch_cache import decode_epochs
from ottla.storage.files import LEADER_EPOCH_CHECKPOINT
from ottla.wire.batch import parse_header


async def open_snapshot_store(disk: Disk, directory: str) -> "SnapshotStore":
    """Find the whole snapshots of a directory; half-written and half-removed ones go."""
    found: dict[OffsetAndEpoch, KeptSnapshot] = {}
    for name in await disk.listdir(directory):
        if name.endswith((snapshot.PART_SUFFIX, snapshot.DELETED_SUFFIX)):
            await disk.unlink(f"{directory}/{name}")
            continue
        snapshot_id = snapshot.parse_name(name)
        if snapshot_id is not None:
            file = disk.open(f"{directory}/{name}")
            try:
                await disk.read_ahead(file, 0, BATCH_HEADER_BYTES)
                found[snapshot_id] = _facts_of(file)
            finally:
                file.close()
    return SnapshotStore(disk, directory, found)


def _facts_of(file: DiskFile) -> KeptSnapshot:
    try:
        opening = parse_header(file.pread(0, BATCH_HEADER_BYTES))
    except CorruptDataError as error:
        raise CorruptDataError(f"{file.path} is no snapshot: {error.where}") from error
    return KeptSnapshot(file.size_bytes, opening.max_timestamp)


async def knows_epoch_below(disk: Disk, directory: str, snapshot_id: OffsetAndEpoch) -> bool:
    """Return True if the epoch checkpoint has the epoch in which a snapshot ends.

    Followers are compared with it; a lost or older one must be made of all batches again.
    """
    if snapshot_id.offset == 0:
        return True
    try:
        epochs = decode_epochs(await disk.read_file(f"{directory}/{LEADER_EPOCH_CHECKPOINT}"))
    except (FileNotFoundError, CorruptDataError):
        return False
    return epochs.epoch_of(Offset(snapshot_id.offset - 1)) == snapshot_id.epoch


class SnapshotStore:
    """The whole snapshots of one replica, and the one being written."""

    def __init__(
        self, disk: Disk, directory: str, found: dict[OffsetAndEpoch, KeptSnapshot]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._kept = found
        self._being_written: set[OffsetAndEpoch] = set()

    def __contains__(self, snapshot_id: object) -> bool:
        return snapshot_id in self._kept

    @property
    def ids(self) -> list[OffsetAndEpoch]:
        """Return the ids, the oldest first."""
        return sorted(self._kept)

    @property
    def kept(self) -> list[KeptSnapshot]:
        """Return what retention asks of each, the oldest first."""
        return [self._kept[snapshot_id] for snapshot_id in self.ids]

    @property
    def latest_id(self) -> OffsetAndEpoch | None:
        """Return the newest one's id."""
        return max(self._kept, default=None)

    @property
    def earliest_id(self) -> OffsetAndEpoch | None:
        """Return the oldest one's id."""
        return min(self._kept, default=None)

    def size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return how long one's file is; None when it is not there."""
        kept = self._kept.get(snapshot_id)
        return None if kept is None else kept.size_bytes

    async def read(self, snapshot_id: OffsetAndEpoch, *, position: int, bytes_max: int) -> bytes:
        """Return a range of one's file; nothing when it is gone."""
        with suppress(FileNotFoundError):
            file = self._disk.open(self._path(snapshot_id))
            try:
                return await self._disk.read(file, position, bytes_max)
            finally:
                file.close()
        return b""

    async def read_whole(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """Return all bytes of one."""
        return await self._disk.read_file(self._path(snapshot_id))

    def begin(self, snapshot_id: OffsetAndEpoch) -> DiskFile:
        """Return the empty file that `install` will make a whole snapshot of."""
        file = self._disk.open(self._part_path(snapshot_id), create=True)
        file.set_size(0)
        return file

    async def write(self, snapshot_id: OffsetAndEpoch, batches: Iterable[bytes]) -> None:
        """Write one batch by batch; everybody else gets the loop after each.

        Nothing where somebody writes it already: both would write the same file, and what one has
        made a whole snapshot the other would go on writing.
        """
        if snapshot_id in self._being_written:
            return
        self._being_written.add(snapshot_id)
        part = self.begin(snapshot_id)
        try:
            position = 0
            for batch in batches:
                part.pwrite(position, [batch])
                position += len(batch)
                await self._disk.fsync(part)
            await self.install(part, snapshot_id)
        except OSError:
            self._discard(part, snapshot_id)
            raise
        finally:
            self._being_written.remove(snapshot_id)

    def _discard(self, part: DiskFile, snapshot_id: OffsetAndEpoch) -> None:
        """Give back what a part of a snapshot takes of a full disk."""
        with suppress(OSError):
            part.set_size(0)
            part.close()
            self._disk.unlink_empty(self._part_path(snapshot_id))

    async def install(self, part: DiskFile, snapshot_id: OffsetAndEpoch) -> None:
        """Make what was written a snapshot, durably."""
        await self._disk.fsync(part)
        facts = _facts_of(part)
        part.close()
        await self._disk.rename(self._part_path(snapshot_id), self._path(snapshot_id))
        await self._disk.fsync_directory(self._directory)
        self._kept[snapshot_id] = facts

    async def remove(self, snapshot_ids: Iterable[OffsetAndEpoch]) -> None:
        """Remove some durably, so that none comes back without the log that went with it."""
        gone = list(snapshot_ids)
        for snapshot_id in gone:
            del self._kept[snapshot_id]  # all at once: nobody may be given one of them meanwhile
        for snapshot_id in gone:
            with suppress(FileNotFoundError):
                await self._disk.unlink(self._path(snapshot_id))
        if gone:
            await self._disk.fsync_directory(self._directory)

    def _path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot.file_name(snapshot_id)}"

    def _part_path(self, snapshot_id: OffsetAndEpoch) -> str:
        return self._path(snapshot_id) + snapshot.PART_SUFFIX
