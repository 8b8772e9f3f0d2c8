"""Space kept beside the metadata log for the time when its disk is full.

Pure.  A file of zeros, `reserved.space`, in the directory of the metadata log.  When the disk has
no room for the log it is cut by just what the log needs, so that producers on the same disk do not
take that first; it grows again when there is room.  So a node on a full disk follows the metadata,
learns which topics are deleted, and starts again, until somebody has made room.
"""

from collections.abc import Callable

from ottla.model.limits import KIB, MIB
from ottla.storage.disk_errors import is_disk_full
from ottla.storage.disk_seam import Disk, DiskFile

RESERVED_FILE = "reserved.space"

RESERVED_BYTES = 2 * MIB
"""Some ten thousand records of metadata.  Less is used up sooner by a busy cluster, more takes it
from the logs."""

ELECTION_BYTES = 128 * KIB
"""The last of it, for votes and epochs alone: a voter without room for these must be silent."""

PIECE_BYTES = 256 * KIB


class ReservedSpace:
    """The file, and how much of it is left."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVED_FILE}"
        self.left_bytes = 0
        """What it held when it was looked at last."""
        self.on_needed: Callable[[], None] = lambda: None
        """Called each time that the disk had no room."""

    async def keep(self) -> None:
        """Fill the file up, where the volume has room for that and as much again.

        Raises OSError if the disk fails.
        """
        space = await self._disk.space(self._directory)
        if self._disk.exists(self._path):
            self._look()
        if space.usable_bytes < 2 * RESERVED_BYTES:
            return
        file = self._disk.open(self._path, create=True)
        try:
            zeros = memoryview(bytes(PIECE_BYTES))
            while (size_bytes := file.size_bytes) < RESERVED_BYTES:
                file.pwrite(size_bytes, [zeros[: RESERVED_BYTES - size_bytes]])
                self.left_bytes = file.size_bytes
        except OSError as error:
            if not is_disk_full(error):
                raise
        finally:
            file.close()

    def give(self, size_bytes: int, *, is_for_election: bool = False) -> bool:
        """Give some of the space to whoever writes next; return False when nothing is left."""
        self.on_needed()
        if not self._disk.exists(self._path):
            return False
        file = self._disk.open(self._path)
        try:
            has_given = _cut(file, size_bytes, 0 if is_for_election else ELECTION_BYTES)
            self.left_bytes = file.size_bytes
            return has_given
        finally:
            file.close()

    def _look(self) -> None:
        file = self._disk.open(self._path)
        try:
            self.left_bytes = file.size_bytes
        finally:
            file.close()


def _cut(file: DiskFile, size_bytes: int, kept_bytes: int) -> bool:
    left_bytes = file.size_bytes
    if left_bytes <= kept_bytes:
        return False
    file.set_size(max(kept_bytes, left_bytes - size_bytes))
    return True
