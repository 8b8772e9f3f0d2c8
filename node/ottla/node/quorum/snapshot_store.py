"""The snapshot files of the metadata log: finding, writing, reading and deleting them.

A snapshot is either complete or absent: it is written to a `.part` file, flushed and renamed.
`raft/snapshot.py` decides which snapshots are deleted.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, OffsetAndEpoch
from ottla.model.limits import BATCH_HEADER_BYTES
from ottla.raft import snapshot
from ottla.raft.snapshot import KeptSnapshot
from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.storage.segments.epoch_cache import decode_epochs
from ottla.storage.segments.files import LEADER_EPOCH_CHECKPOINT
from ottla.wire.batch import parse_header


async def open_snapshot_store(disk: Disk, directory: str) -> "SnapshotStore":
    """Find the complete metadata snapshots in a directory, and return a store that contains them.
    Files that are partly written or partly removed are deleted."""
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
    """Return whether the leader-epoch checkpoint contains the epoch in which a snapshot ends.

    The epochs of followers are compared with that checkpoint. A lost or outdated checkpoint must be
    rebuilt from all batches.
    """
    if snapshot_id.offset == 0:
        return True
    try:
        epochs = decode_epochs(await disk.read_file(f"{directory}/{LEADER_EPOCH_CHECKPOINT}"))
    except (FileNotFoundError, CorruptDataError):
        return False
    return epochs.epoch_of(Offset(snapshot_id.offset - 1)) == snapshot_id.epoch


class SnapshotStore:
    """Complete snapshots of the metadata log in one directory, and the snapshot that is being
    written."""

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
        """Ids of the complete metadata snapshots (end offset and epoch), oldest first."""
        return sorted(self._kept)

    @property
    def kept(self) -> list[KeptSnapshot]:
        """Properties of each complete metadata snapshot that decide about its deletion, oldest
        snapshot first."""
        return [self._kept[snapshot_id] for snapshot_id in self.ids]

    @property
    def latest_id(self) -> OffsetAndEpoch | None:
        """Id of the latest complete snapshot of the metadata log, or None without a snapshot."""
        return max(self._kept, default=None)

    @property
    def earliest_id(self) -> OffsetAndEpoch | None:
        """Id of the earliest complete snapshot of the metadata log, or None without a snapshot."""
        return min(self._kept, default=None)

    def size_bytes(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Return the size in bytes of a metadata snapshot's file, or None if the file does not
        exist."""
        kept = self._kept.get(snapshot_id)
        return None if kept is None else kept.size_bytes

    async def read(self, snapshot_id: OffsetAndEpoch, *, position: int, bytes_max: int) -> bytes:
        """Return a range of bytes of a metadata snapshot's file, or b"" if the file no longer
        exists."""
        with suppress(FileNotFoundError):
            file = self._disk.open(self._path(snapshot_id))
            try:
                return await self._disk.read(file, position, bytes_max)
            finally:
                file.close()
        return b""

    async def read_whole(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """Return the complete contents of a metadata snapshot's file."""
        return await self._disk.read_file(self._path(snapshot_id))

    def begin(self, snapshot_id: OffsetAndEpoch) -> DiskFile:
        """Create and return the empty `.part` file of a metadata snapshot. The file becomes a
        complete snapshot by a later call of `install`."""
        file = self._disk.open(self._part_path(snapshot_id), create=True)
        file.set_size(0)
        return file

    async def write(
        self,
        snapshot_id: OffsetAndEpoch,
        batches: Iterable[bytes],
        *,
        give_way: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Write a metadata snapshot batch by batch. Other tasks run after each batch. `give_way` is
        awaited wherever `batches` yields an empty batch, so that other tasks can run there too.

        Returns at once if this snapshot is already being written, because two writers would use the
        same file.
        """
        if snapshot_id in self._being_written:
            return
        self._being_written.add(snapshot_id)
        part = self.begin(snapshot_id)
        try:
            position = 0
            for batch in batches:
                if not batch:
                    if give_way is not None:
                        await give_way()
                    continue
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
        """Delete the `.part` file of an incomplete snapshot, to free its space on a full disk."""
        with suppress(OSError):
            part.set_size(0)
            part.close()
            self._disk.unlink_empty(self._part_path(snapshot_id))

    async def install(self, part: DiskFile, snapshot_id: OffsetAndEpoch) -> None:
        """Turn a fully written `.part` file into a complete metadata snapshot, durably."""
        await self._disk.fsync(part)
        facts = _facts_of(part)
        part.close()
        await self._disk.rename(self._part_path(snapshot_id), self._path(snapshot_id))
        await self._disk.fsync_directory(self._directory)
        self._kept[snapshot_id] = facts

    async def remove(self, snapshot_ids: Iterable[OffsetAndEpoch]) -> None:
        """Delete metadata snapshots durably. The log below them may then be deleted, because a
        power loss cannot bring a snapshot back."""
        gone = list(snapshot_ids)
        for snapshot_id in gone:
            del self._kept[snapshot_id]  # all at once: none of them may be returned meanwhile
        for snapshot_id in gone:
            with suppress(FileNotFoundError):
                await self._disk.unlink(self._path(snapshot_id))
        if gone:
            await self._disk.fsync_directory(self._directory)

    def _path(self, snapshot_id: OffsetAndEpoch) -> str:
        return f"{self._directory}/{snapshot.file_name(snapshot_id)}"

    def _part_path(self, snapshot_id: OffsetAndEpoch) -> str:
        return self._path(snapshot_id) + snapshot.PART_SUFFIX
