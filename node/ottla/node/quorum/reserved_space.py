"""Disk space that is reserved for the metadata log, to be used when its disk is full.

Pure. The reserve is a file of zeros, `reserved.space`, in the directory of the metadata log. When
the disk has too little space for a write to the log, the file is shortened by exactly the size of
the write, so that producers on the same disk cannot use this space. The file grows again when the
disk has enough space. A node with a full disk can therefore still follow the metadata, delete
topics, and restart.
"""

from collections.abc import Callable

from ottla.model.limits import KIB, MIB
from ottla.storage.disk.disk_errors import is_disk_full
from ottla.storage.disk.disk_seam import Disk, DiskFile

RESERVED_FILE = "reserved.space"

RESERVED_BYTES = 2 * MIB
"""Size in bytes of the disk space reserved for the metadata log, which suffices for some ten
thousand metadata records. In a busy cluster, a smaller reserve is used up sooner. A larger reserve
occupies space of the partition logs."""

ELECTION_BYTES = 128 * KIB
"""Number of bytes at the end of the reserved disk space that only votes and epochs may use. A voter
that cannot store its vote and epoch must not send responses."""

ZEROS = bytes(256 * KIB)
"""Block of zeros that is written repeatedly to fill the file of reserved disk space."""


class ReservedSpace:
    """File that reserves disk space for the metadata log, and the number of bytes still left in the
    file."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVED_FILE}"
        self.left_bytes = 0
        """Size of the file of reserved disk space at the last check, in bytes."""
        self.on_needed: Callable[[], None] = lambda: None
        """Function that is called each time the metadata log finds its disk full."""

    async def keep(self) -> None:
        """Refill the reserved disk space if the volume has free space for twice the size of the
        reserve.

        Raises OSError if the disk fails.
        """
        space = await self._disk.space(self._directory)
        if self._disk.exists(self._path):
            self._look()
        if space.usable_bytes < 2 * RESERVED_BYTES:
            return
        file = self._disk.open(self._path, create=True)
        try:
            while (size_bytes := file.size_bytes) < RESERVED_BYTES:
                file.pwrite(size_bytes, [ZEROS[: RESERVED_BYTES - size_bytes]])
                self.left_bytes = file.size_bytes
        except OSError as error:
            if not is_disk_full(error):
                raise
        finally:
            file.close()

    def give(self, size_bytes: int, *, is_for_election: bool = False) -> bool:
        """Free `size_bytes` of the reserved disk space for the metadata log's next write. Returns
        False if no reserved space is left.

        With `is_for_election`, the part that is reserved for votes and epochs may be used too.
        """
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
